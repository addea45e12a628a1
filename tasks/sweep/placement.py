"""Resources of actors, nodes that have them, and the number of actors of each kind to run at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

# Tolerance for floating point; Ray counts resources in ten-thousandths.
SLACK = 1e-9


@dataclass(frozen=True)
class ActorResources:
    """Resources of one kind of actor; jobs whose tasks have equal needs share actors.

    Raises:
        ValueError: a value is invalid.
    """

    # CPUs; also the number of threads of its libraries.
    cpus: float = 1
    # GPUs; a fraction lets several actors share one GPU.
    gpus: float = 0
    # Host memory that Ray reserves.
    memory_mb: int | None = None
    # Custom resources, in Ray's units.
    custom: Mapping[str, float] = field(default_factory=dict, hash=False)
    # Selectors of node labels, in Ray's syntax: see Node.matches.
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    # Largest number of actors of this kind; None: all that fit.
    actors: int | None = None
    # Number of processes that share a training; None: one per GPU, at least one.
    processes: int | None = None

    def __post_init__(self) -> None:
        if self.actors is not None and self.actors < 1:
            raise ValueError(f"resources.actors: got {self.actors}, expected at least 1, or none for all that fit")
        if self.cpus <= 0:
            raise ValueError(f"resources.cpus: got {self.cpus}, expected more than 0")
        if self.gpus < 0 or (self.gpus > 1 and self.gpus != int(self.gpus)):
            raise ValueError(f"resources.gpus: got {self.gpus}, expected 0, a fraction below 1, or a whole number")
        if self.processes and self.gpus and self.processes != self.devices:
            raise ValueError(f"resources.processes: got {self.processes}, expected none or {self.devices}, one per GPU")
        if self.processes and self.processes > max(1, self.cpus):
            raise ValueError(
                f"resources.processes: got {self.processes} with {self.cpus:g} cpus, expected at most one per cpu"
            )

    @property
    def shares(self) -> int:
        """Return the number of processes that share a training."""
        return self.processes or max(1, self.devices)

    @property
    def threads(self) -> int:
        """Return the number of threads of an actor's libraries."""
        return max(1, int(self.cpus))

    @property
    def devices(self) -> int:
        """Return the number of GPUs that an actor sees."""
        return math.ceil(self.gpus)

    @property
    def amounts(self) -> dict[str, float]:
        """Return the resources of one actor, in Ray's names and units."""
        amounts = {"CPU": self.cpus, "GPU": self.gpus, **self.custom}
        if self.memory_mb:
            amounts["memory"] = self.memory_mb * 2**20
        return {name: amount for name, amount in amounts.items() if amount}

    def __str__(self) -> str:
        labels = f" on nodes with labels {dict(self.labels)}" if self.labels else ""
        return f"{self.amounts}{labels}"


@dataclass(frozen=True)
class Node:
    """A node that accepts new actors: its total resources, in Ray's names and units, and its labels."""

    # Ray's node id, in hex.
    name: str
    has: Mapping[str, float] = field(hash=False)
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)

    def matches(self, needs: ActorResources) -> bool:
        """Return whether the node has the labels that an actor needs."""
        return all(_holds(selector, self.labels.get(name)) for name, selector in needs.labels.items())


def _holds(selector: str, value: str | None) -> bool:
    """Return whether a label's value matches Ray's selector: VALUE, !VALUE, in(A,B), !in(A,B)."""
    body = selector.removeprefix("!")
    options = body[3:-1].split(",") if body.startswith("in(") else [body]
    return (value in [option.strip() for option in options]) != selector.startswith("!")


def fits(needs: ActorResources, nodes: Sequence[Node]) -> int:
    """Count the actors that fit on otherwise empty nodes.

    No actor is split over two nodes, and no fraction of a GPU over two GPUs.
    """
    total = 0
    for node in nodes:
        if node.matches(needs):
            counts = [int(node.has.get(name, 0) / amount + SLACK) for name, amount in needs.amounts.items()]
            if 0 < needs.gpus < 1:
                counts.append(int(node.has.get("GPU", 0) + SLACK) * int(1 / needs.gpus + SLACK))
            total += min(counts)
    return total


def cap(demand: Mapping[ActorResources, int], max_actors: int) -> dict[ActorResources, int]:
    """Return the numbers of actors that `allocate` would give if all of them fitted on the nodes."""
    counts = dict.fromkeys(demand, 0)
    while sum(counts.values()) < max_actors:
        short = [needs for needs, count in counts.items() if count < min(demand[needs], needs.actors or math.inf)]
        if not short:
            break
        counts[min(short, key=lambda needs: counts[needs])] += 1
    return counts


def allocate(
    demand: Mapping[ActorResources, int], nodes: Sequence[Node], max_actors: int | None = None
) -> dict[ActorResources, int]:
    """Return the number of actors of each kind, adding one per kind in turn while they are needed and fit.

    Kinds with GPUs choose first, then kinds with labels, then the largest; small actors fit into the
    remaining resources.

    max_actors: largest number of actors of all kinds together.
    """
    free = [_FreeResources(node) for node in sorted(nodes, key=lambda node: node.has.get("GPU", 0) > 0)]
    order = sorted(demand, key=lambda needs: (-needs.gpus, -len(needs.labels), -needs.cpus, -(needs.memory_mb or 0)))
    # Kind of actor -> nodes that match it, the preferred one last.
    candidates: dict[ActorResources, list[_FreeResources]] = {}
    for needs in order:
        candidates[needs] = [node for node in reversed(free) if node.node.matches(needs)]
    counts = dict.fromkeys(order, 0)
    open_kinds = list(order)
    while open_kinds and sum(counts.values()) < (max_actors or math.inf):
        needs = open_kinds.pop(0)
        if counts[needs] >= min(demand[needs], needs.actors or math.inf):
            continue
        while candidates[needs] and not candidates[needs][-1].take(needs):
            # Free resources only shrink, so the node is never tried again.
            candidates[needs].pop()
        if candidates[needs]:
            counts[needs] += 1
            open_kinds.append(needs)
    return counts


class _FreeResources:
    """Remaining resources of a node while actors are placed on it."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._amounts = {name: amount for name, amount in node.has.items() if name != "GPU"}
        self._gpus = [1.0] * int(node.has.get("GPU", 0) + SLACK)

    def take(self, needs: ActorResources) -> bool:
        """Take the resources of one actor; return False if there are not enough.

        A fraction of a GPU is taken from the fullest GPU that has it.
        """
        amounts = {name: amount for name, amount in needs.amounts.items() if name != "GPU"}
        share = min(needs.gpus, 1.0)
        fit = sorted(
            (share_left, i) for i, share_left in enumerate(self._gpus) if needs.gpus and share_left >= share - SLACK
        )
        if len(fit) < needs.devices or any(self._amounts.get(n, 0) < a - SLACK for n, a in amounts.items()):
            return False
        for name, amount in amounts.items():
            self._amounts[name] -= amount
        for _, i in fit[: needs.devices]:
            self._gpus[i] -= share
        return True
