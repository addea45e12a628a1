"""Which nodes failed to load what, when they may try again, and when there is no more to hope for. Knows no Ray."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from tasks.sweep.actor import Site
from tasks.sweep.backlog import Shelf
from tasks.sweep.policy import Failure

PAUSE_S = 0.5  # before a node tries again for the first time; then twice as long each time


@dataclass
class Refusal:
    """What became of a node's tries to load for a shelf."""

    failure: Failure  # the last
    site: Site
    tries: int
    at: float  # of time.monotonic(), when the last failed
    again: float  # the same, from when on it may try again; inf: never


class Loads:
    """Failed loads, by what was to be loaded and node: the weights may lack on one node alone."""

    def __init__(self, max_attempts: int) -> None:
        self._max = max_attempts
        self._refusals: dict[Shelf, dict[str, Refusal]] = {}

    def failed(self, shelf: Shelf, site: Site, failure: Failure, sent: float) -> int:
        """Note a failed load that was asked for at `sent`. How often the node has tried.

        Loads that several actors of a node had under way when one failed are one try: an outage meets them together.
        """
        now, refused = time.monotonic(), self._refusals.setdefault(shelf, {})
        before = refused.get(site.node_id)
        tries = 1 if before is None else before.tries + (sent > before.at)
        stays = failure.transient and tries < self._max and (before is None or before.again < float("inf"))
        again = now + PAUSE_S * 2 ** (tries - 1) if stays else float("inf")
        refused[site.node_id] = Refusal(failure, site, tries, now, again)
        return tries

    def succeeded(self, shelf: Shelf, site: Site) -> None:
        """Forget what the node failed to load before."""
        refused = self._refusals.get(shelf, {})
        refused.pop(site.node_id, None)
        if not refused:
            self._refusals.pop(shelf, None)

    def barred(self, node: str) -> set[Shelf]:
        """What the node should not try to load now."""
        now = time.monotonic()
        return {shelf for shelf, by in self._refusals.items() if node in by and now < by[node].again}

    def hopeless(self, shelf: Shelf, nodes: Collection[str]) -> Refusal | None:
        """The last refusal, where none of these nodes may try again, or max_attempts of any have given up."""
        refused = self._refusals.get(shelf, {})
        ended = {name for name, one in refused.items() if one.again == float("inf")}
        if nodes and (ended >= set(nodes) or len(ended) >= self._max):
            return max((refused[name] for name in ended), key=lambda one: one.at)
        return None

    def __iter__(self) -> Iterator[Shelf]:
        """Shelves that some node failed to load for."""
        return iter(list(self._refusals))
