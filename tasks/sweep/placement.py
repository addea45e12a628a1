"""What an actor takes, which nodes have it, and how many actors of each kind live beside each other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tasks.sweep.environments import Environment

SLACK = 1e-9  # ray counts resources in ten-thousandths


@dataclass(frozen=True)
class Needs:
    """What one actor of a kind takes; jobs whose tasks have equal needs share actors.

    Raises ValueError on a value that cannot be.
    """

    cpus: float = 1  # also the threads of its libraries
    gpus: float = 0  # a fraction lets several actors share one GPU
    memory_mb: int | None = None  # host memory that ray reserves
    custom: Mapping[str, float] = field(default_factory=dict, hash=False)  # custom resources of nodes, as ray counts
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)  # of nodes, as ray selects: see Node.matches
    actors: int | None = None  # at most so many; None: all that fit
    environment: Environment | None = None  # packages of its own; None: the driver's
    processes: int | None = None  # that a training is shared among; None: one a GPU, at least one

    def __post_init__(self) -> None:
        if self.actors is not None and self.actors < 1:
            raise ValueError(f"resources.actors: got {self.actors}, expected at least 1, or none for all that fit")
        if self.cpus <= 0:
            raise ValueError(f"resources.cpus: got {self.cpus}, expected more than 0")
        if self.gpus < 0 or (self.gpus > 1 and self.gpus != int(self.gpus)):
            raise ValueError(f"resources.gpus: got {self.gpus}, expected 0, a fraction below 1, or a whole number")
        if self.processes and self.gpus and self.processes != self.devices:
            raise ValueError(f"resources.processes: got {self.processes}, expected none or {self.devices}, one a GPU")
        if self.processes and self.processes > max(1, self.cpus):
            raise ValueError(f"resources.processes: got {self.processes} for cpus {self.cpus:g}, expected as many cpus")

    @property
    def shares(self) -> int:
        """Processes that a training is shared among."""
        return self.processes or max(1, self.devices)

    @property
    def threads(self) -> int:
        """Threads of an actor's libraries."""
        return max(1, int(self.cpus))

    @property
    def devices(self) -> int:
        """GPUs that an actor sees."""
        return math.ceil(self.gpus)

    @property
    def amounts(self) -> dict[str, float]:
        """What one actor takes, in ray's names and units."""
        asked = {"CPU": self.cpus, "GPU": self.gpus, **self.custom}
        if self.memory_mb:
            asked["memory"] = self.memory_mb * 2**20
        return {name: amount for name, amount in asked.items() if amount}

    def __str__(self) -> str:
        labels = f" on nodes with labels {dict(self.labels)}" if self.labels else ""
        own = f" in environment {self.environment.name}" if self.environment else ""
        return f"{self.amounts}{labels}{own}"


@dataclass(frozen=True)
class Node:
    """A node that takes new actors: all that it has, in ray's names and units, and its labels."""

    name: str  # ray's id of it, in hex
    has: Mapping[str, float] = field(hash=False)
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)

    def matches(self, needs: Needs) -> bool:
        """Whether it has the labels."""
        return all(_holds(selector, self.labels.get(name)) for name, selector in needs.labels.items())


def _holds(selector: str, value: str | None) -> bool:
    """Whether a label is as ray's selector asks: VALUE, !VALUE, in(A,B), !in(A,B)."""
    body = selector.removeprefix("!")
    options = body[3:-1].split(",") if body.startswith("in(") else [body]
    return (value in [option.strip() for option in options]) != selector.startswith("!")


def fits(needs: Needs, nodes: Sequence[Node]) -> int:
    """Actors that the nodes hold if nothing else runs there; none is split over two nodes, nor a fraction over GPUs."""
    return sum(_fit(needs, node.has) for node in nodes if node.matches(needs))


def _fit(needs: Needs, has: Mapping[str, float]) -> int:
    counts = [int(has.get(name, 0) / amount + SLACK) for name, amount in needs.amounts.items()]
    if 0 < needs.gpus < 1:
        counts.append(int(has.get("GPU", 0) + SLACK) * int(1 / needs.gpus + SLACK))
    return min(counts)


def within(wanted: Mapping[Needs, int], most: int) -> dict[Needs, int]:
    """As many actors of each kind as `allot` would give, were there room for all."""
    given = dict.fromkeys(wanted, 0)
    while sum(given.values()) < most:
        short = [needs for needs, count in given.items() if count < min(wanted[needs], needs.actors or math.inf)]
        if not short:
            break
        given[min(short, key=lambda needs: given[needs])] += 1
    return given


def allot(wanted: Mapping[Needs, int], nodes: Sequence[Node], most: int | None = None) -> dict[Needs, int]:
    """How many actors of each kind to have: in turn one of each, until `wanted` is met or no more fits.

    Kinds that take GPUs choose first, then those that ask for labels or take most: small actors find a place in what
    is left. `most` bounds all of them together.
    """
    free = [_Free(node) for node in sorted(nodes, key=lambda node: node.has.get("GPU", 0) > 0)]
    order = sorted(wanted, key=lambda needs: (-needs.gpus, -len(needs.labels), -needs.cpus, -(needs.memory_mb or 0)))
    places = {needs: [one for one in reversed(free) if one.node.matches(needs)] for needs in order}
    given = dict.fromkeys(order, 0)
    growing = list(order)
    while growing and sum(given.values()) < (most or math.inf):
        needs = growing.pop(0)
        if given[needs] >= min(wanted[needs], needs.actors or math.inf):
            continue
        while places[needs] and not places[needs][-1].take(needs):
            places[needs].pop()  # what is free only shrinks
        if places[needs]:
            given[needs] += 1
            growing.append(needs)
    return given


class _Free:
    """What is left of a node while actors are placed on it."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._amounts = {name: amount for name, amount in node.has.items() if name != "GPU"}
        self._gpus = [1.0] * int(node.has.get("GPU", 0) + SLACK)

    def take(self, needs: Needs) -> bool:
        """Take what one actor needs, a fraction of a GPU from the fullest that has it; False: there is not enough."""
        amounts = {name: amount for name, amount in needs.amounts.items() if name != "GPU"}
        share = min(needs.gpus, 1.0)
        fit = sorted((left, i) for i, left in enumerate(self._gpus) if needs.gpus and left >= share - SLACK)
        if len(fit) < needs.devices or any(self._amounts.get(n, 0) < a - SLACK for n, a in amounts.items()):
            return False
        for name, amount in amounts.items():
            self._amounts[name] -= amount
        for _, i in fit[: needs.devices]:
            self._gpus[i] -= share
        return True
