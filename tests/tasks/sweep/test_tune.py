"""A search on a real Ray: losers are stopped, errors are results, and a killed one loses an interval at most."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import toy
import toy_search
from processes import ROOT, kill_with_its_workers

from tasks.sweep.cluster import Resources, connect

pytestmark = pytest.mark.slow
ACTOR = "ray::ImplicitFunc"  # Tune's name of one that runs a function


def steps(folder: Path) -> dict[float, Counter[int]]:
    """Level of a trial -> how often each of its steps was done."""
    found: dict[float, Counter[int]] = {level: Counter() for level in toy_search.LEVELS}
    for line in toy.read_log(folder / "log", "step"):
        level, step = line.split()
        found[float(level)][int(step)] += 1
    return found


def driver(folder: Path, actors: int = 2, levels: Sequence[float] = toy_search.LEVELS) -> subprocess.Popen[str]:
    command = [sys.executable, toy_search.__file__, str(folder), str(actors), *map(str, levels)]
    paths = os.pathsep.join([str(ROOT), str(Path(toy.__file__).parent)])
    return subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": paths}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for(process: subprocess.Popen[str], come: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 240
    while not come():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_killed_search_goes_on_and_repeats_less_than_an_interval_of_each_trial(tmp_path: Path) -> None:
    first = driver(tmp_path)
    wait_for(first, lambda: steps(tmp_path)[1.0].total() >= 13)
    kill_with_its_workers(first, ACTOR)
    first.communicate()
    done = steps(tmp_path)[1.0].total()
    assert 13 <= done < toy_search.STEPS
    with driver(tmp_path) as second:
        out, err = second.communicate(timeout=240)
    assert second.returncode == 0, err
    finished = json.loads(out.splitlines()[-1])
    assert finished["1.0"]  # the best is never stopped; of the others it depends on their order in time
    for level, counted in steps(tmp_path).items():
        assert sum(count - 1 for count in counted.values()) < toy_search.INTERVAL, level
    assert set(steps(tmp_path)[1.0]) == set(range(1, toy_search.STEPS + 1))


@pytest.mark.long
def test_a_search_that_is_asked_to_stop_names_the_next_step_and_continues_with_what_ended_trials_reported(
    tmp_path: Path,
) -> None:
    process = driver(tmp_path, 1, [1.0, 3.0])
    wait_for(process, lambda: steps(tmp_path)[3.0].total() >= 2)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=240)
    assert "stopped by SIGTERM: 1 trials ended, 1 left; run the same command again to go on" in err.splitlines()
    assert process.returncode == 128 + signal.SIGTERM
    with driver(tmp_path, 1, [1.0, 3.0]) as second:
        out, err = second.communicate(timeout=240)
    assert second.returncode == 0, err
    assert json.loads(out.splitlines()[-1]) == {"1.0": True, "3.0": False}
    assert set(steps(tmp_path)[3.0]) == set(range(1, toy_search.INTERVAL + 1))


@pytest.fixture(scope="module")
def local_ray() -> Iterator[None]:
    """A Ray that the searches of this process share."""
    with connect(Resources(local_cpus=2)):
        yield


def test_a_search_tells_how_many_trials_have_ended_and_run(tmp_path: Path, local_ray: None) -> None:
    told = tmp_path / "told"
    toy_search.run(tmp_path, toy_search.jobs(tmp_path, 0.02), actors=1, on_progress=partial(_note, told))
    found = [tuple(map(int, line.split())) for line in told.read_text().splitlines()]
    ended = [count for count, _, _ in found]
    assert ended == sorted(ended) and ended[0] == 0 and ended[-1] >= 2
    assert max(running for _, _, running in found) == 1 and all(failed == 0 for _, failed, _ in found)


def _note(path: Path, *counts: int) -> None:
    with path.open("a") as file:
        print(*counts, file=file)


def test_a_loser_is_stopped_early(tmp_path: Path, local_ray: None) -> None:
    # two run at a time, so the third is compared with both of the others as soon as it reports
    best, _, worst = toy_search.run(tmp_path, toy_search.jobs(tmp_path, 0.02))
    assert best.outcome is not None and worst.outcome is None
    assert set(steps(tmp_path)[3.0]) == set(range(1, toy_search.INTERVAL + 1))


def test_a_trial_is_compared_with_those_of_its_group_alone(tmp_path: Path, local_ray: None) -> None:
    best, worst = toy_search.jobs(tmp_path, 0.0, levels=[1.0, 3.0])
    ended = toy_search.run(tmp_path, [best, replace(worst, group="other")], actors=1)
    assert [one.outcome is not None for one in ended] == [True, True]


def test_a_trial_that_falls_behind_at_its_last_step_is_not_stopped(tmp_path: Path, local_ray: None) -> None:
    # 20 = 5 x 2^2 is a rung; one runs at a time, so the second is compared with the first everywhere
    late = toy_search.jobs(tmp_path, 0.0, levels=[0.5], do="late")
    ended = toy_search.run(tmp_path, [*toy_search.jobs(tmp_path, 0.0, levels=[1.0]), *late], actors=1)
    assert [one.outcome is not None for one in ended] == [True, True]


def test_a_stored_trial_is_not_run_again_and_others_are_compared_with_it(tmp_path: Path, local_ray: None) -> None:
    worse, best = toy_search.jobs(tmp_path, 0.0, levels=[3.0, 1.0])
    said = [{"step": step, "loss": 1.0 / step} for step in (5, 10, 15, 20)]
    (ended,) = toy_search.run(tmp_path, [worse, best], actors=1, stored_rows={best.key: said})
    assert ended.job == worse and ended.outcome is None
    assert steps(tmp_path)[1.0].total() == 0 and steps(tmp_path)[3.0].total() == toy_search.INTERVAL


def test_a_trial_that_raises_is_an_answer_and_costs_itself_alone(tmp_path: Path, local_ray: None) -> None:
    poisoned = toy_search.jobs(tmp_path, 0.0, levels=[0.5], do="raise")
    ended = toy_search.run(tmp_path, [*poisoned, *toy_search.jobs(tmp_path, 0.0, levels=[1.0])])
    failed, whole = (one.outcome for one in ended)
    assert failed is not None and failed.failure is not None and failed.failure.type == "ZeroDivisionError"
    assert whole is not None and whole.rows == [{"step": 20, "loss": 1.0 / 20}]
