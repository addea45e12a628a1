from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.sweep.actor import _torch_device
from tasks.sweep.cluster import Resources
from tasks.sweep.placement import ActorResources, Node, allocate, fits
from tsfmscope.errors import SweepError

EIGHT = Node("eight", {"CPU": 8, "GPU": 2, "memory": 16 * 2**30})
PLAIN = Node("plain", {"CPU": 4, "memory": 8 * 2**30, "scratch": 1}, {"market": "spot"})


def test_a_training_is_shared_by_one_process_a_gpu_or_by_as_many_as_asked_for() -> None:
    asked = {
        ActorResources(): 1,
        ActorResources(gpus=0.5): 1,
        ActorResources(gpus=4): 4,
        ActorResources(gpus=2, cpus=2, processes=2): 2,
    }
    asked |= {ActorResources(cpus=3, processes=3): 3, ActorResources(cpus=0.5, processes=1): 1}
    assert {needs: needs.shares for needs in asked} == asked
    with pytest.raises(ValueError, match="processes: got 2, expected none or 4, one per GPU"):
        ActorResources(cpus=4, gpus=4, processes=2)
    with pytest.raises(ValueError, match="processes: got 4 with 2 cpus, expected at most one per cpu"):
        ActorResources(cpus=2, processes=4)


@pytest.mark.parametrize(
    ("needs", "nodes", "expected"),
    [
        (ActorResources(), [EIGHT, PLAIN], 12),
        (ActorResources(cpus=3), [EIGHT, PLAIN], 2 + 1),  # not 12 / 3: none is split over two nodes
        (ActorResources(cpus=0.5), [PLAIN], 8),
        (ActorResources(gpus=1), [EIGHT, PLAIN], 2),
        (ActorResources(gpus=0.5), [EIGHT], 4),
        (ActorResources(gpus=0.4), [EIGHT], 4),  # not 2 / 0.4 = 5: no fraction is split over two GPUs
        (ActorResources(gpus=0.1), [EIGHT], 8),  # as many as there are CPUs
        (ActorResources(gpus=2), [EIGHT], 1),
        (ActorResources(gpus=3), [EIGHT, EIGHT], 0),
        (ActorResources(memory_mb=5000), [EIGHT, PLAIN], 3 + 1),
        (ActorResources(custom={"scratch": 1}), [EIGHT, PLAIN], 1),
        (ActorResources(labels={"market": "spot"}), [EIGHT, PLAIN], 4),
        (ActorResources(labels={"market": "!spot"}), [EIGHT, PLAIN], 8),
        (ActorResources(labels={"market": "in(spot, on-demand)"}), [EIGHT, PLAIN], 4),
        (ActorResources(labels={"market": "spot"}, gpus=1), [EIGHT, PLAIN], 0),
        (ActorResources(), [], 0),
    ],
)
def test_what_fits_is_counted_node_by_node(needs: ActorResources, nodes: list[Node], expected: int) -> None:
    assert fits(needs, nodes) == expected
    assert allocate({needs: 10**6}, nodes) == {needs: expected}


GPU, BESIDE = ActorResources(gpus=0.5), ActorResources()


@pytest.mark.parametrize(
    ("wanted", "most", "expected"),
    [
        ({BESIDE: 100, GPU: 100}, None, {GPU: 4, BESIDE: 4}),  # 8 CPUs; each GPU has its two
        ({BESIDE: 100, GPU: 1}, None, {GPU: 1, BESIDE: 7}),
        ({BESIDE: 2, GPU: 100}, None, {GPU: 4, BESIDE: 2}),
        ({BESIDE: 100, GPU: 100}, 3, {GPU: 2, BESIDE: 1}),
        ({BESIDE: 100, GPU: 100}, 1, {GPU: 1, BESIDE: 0}),
        ({BESIDE: 100, ActorResources(cpus=6, actors=1): 5}, None, {ActorResources(cpus=6, actors=1): 1, BESIDE: 2}),
        ({}, None, {}),
    ],
)
def test_kinds_share_a_node_in_turn_those_with_gpus_first(
    wanted: dict[ActorResources, int], most: int | None, expected: dict[ActorResources, int]
) -> None:
    assert allocate(wanted, [EIGHT], most) == expected


def test_cpu_actors_leave_the_cores_beside_gpus_to_those_that_need_them() -> None:
    crowded = Node("gpus", {"CPU": 2, "GPU": 2})
    assert allocate({ActorResources(gpus=1): 2, BESIDE: 4}, [crowded, PLAIN]) == {ActorResources(gpus=1): 2, BESIDE: 4}


kinds = st.builds(
    ActorResources,
    cpus=st.sampled_from([0.5, 1, 2]),
    gpus=st.sampled_from([0, 0, 0.25, 0.5, 1]),
    actors=st.sampled_from([None, 1, 3]),
)
nodes = st.builds(lambda cpu, gpu: {"CPU": cpu, "GPU": gpu}, st.integers(0, 5), st.integers(0, 2))


def packs(given: dict[ActorResources, int], has: list[dict[str, int]]) -> bool:
    """Whether so many actors have a place, by trying every one: an independent, slow definition."""
    actors = [needs for needs, count in given.items() for _ in range(count)]
    seen = set()

    def place(i: int, cpus: tuple[float, ...], gpus: tuple[tuple[float, ...], ...]) -> bool:
        if i == len(actors):
            return True
        if (i, cpus, gpus) in seen:
            return False
        seen.add((i, cpus, gpus))
        for n, node in enumerate(gpus):
            if cpus[n] < actors[i].cpus:
                continue
            less = (*cpus[:n], cpus[n] - actors[i].cpus, *cpus[n + 1 :])
            if not actors[i].gpus and place(i + 1, less, gpus):
                return True
            for g in [g for g, left in enumerate(node) if actors[i].gpus and left >= actors[i].gpus]:
                taken = (*node[:g], node[g] - actors[i].gpus, *node[g + 1 :])
                if place(i + 1, less, (*gpus[:n], taken, *gpus[n + 1 :])):
                    return True
        return False

    return place(0, tuple(h["CPU"] for h in has), tuple((1.0,) * h["GPU"] for h in has))


@given(
    wanted=st.dictionaries(kinds, st.integers(1, 3), max_size=2),
    has=st.lists(nodes, max_size=2),
    most=st.sampled_from([None, 2, 4]),
)
@settings(deadline=None, max_examples=150)
def test_what_is_allotted_has_a_place_and_is_within_every_limit(
    wanted: dict[ActorResources, int], has: list[dict[str, int]], most: int | None
) -> None:
    given = allocate(wanted, [Node(str(i), one) for i, one in enumerate(has)], most)
    assert given.keys() == wanted.keys()
    assert all(0 <= count <= min(wanted[n], n.actors or 99) for n, count in given.items())
    assert sum(given.values()) <= (most or 99)
    assert packs(given, has)
    if len(wanted) == 1 and most is None:  # one kind: no more would have fitted
        ((needs, count),) = given.items()
        assert count == min(wanted[needs], needs.actors or 99) or not packs({needs: count + 1}, has)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"cpus": 0}, "resources.cpus: got 0"),
        ({"gpus": -1}, "resources.gpus: got -1"),
        ({"gpus": 1.5}, "resources.gpus: got 1.5, expected 0, a fraction below 1, or a whole number"),
        ({"actors": 0}, "resources.actors: got 0"),
    ],
)
def test_amounts_that_cannot_be_are_refused(change: dict[str, float], text: str) -> None:
    for kind in (ActorResources, Resources):
        with pytest.raises(ValueError, match=text.replace("(", "[(]")):
            kind(**change)  # type: ignore[arg-type]


def test_a_task_has_the_needs_that_are_said_of_it_and_else_the_usual() -> None:
    resources = Resources(gpus=0.5, memory_mb=100, tasks={"measure": ActorResources(cpus=2)})
    assert resources.for_task("measure") == ActorResources(cpus=2)
    assert resources.for_task("embed") == ActorResources(gpus=0.5, memory_mb=100)


@pytest.mark.parametrize(
    ("ids", "shown", "devices", "wrong"),
    [
        ([0], "0", 1, None),
        ([3], "3", 1, None),
        ([0, 1], "0,1", 2, None),
        ([0], "0,1", 1, r"Ray assigned \[0\], CUDA_VISIBLE_DEVICES shows \['0', '1'\]"),
        ([0, 1], "0,1", 1, r"shows \['0', '1'\], expected 1 GPUs"),
        ([1], "0", 1, r"assigned \[1\]"),
        ([0], "", 1, r"shows \[\]"),
    ],
)
def test_an_actor_that_shows_other_gpus_than_its_own_does_not_start(
    ids: list[int], shown: str, devices: int, wrong: str | None
) -> None:
    if wrong is None:
        assert _torch_device(ids, shown, devices) == "cuda:0"
        return
    with pytest.raises(SweepError, match=wrong):
        _torch_device(ids, shown, devices)
