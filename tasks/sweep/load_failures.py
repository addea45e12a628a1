"""Failed loads by node: when a node may try again, and when no attempt is left. Independent of Ray."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from tsfmscope.tasks.sweep.actor import WorkerLocation
from tsfmscope.tasks.sweep.job_queue import JobGroup
from tsfmscope.tasks.sweep.policy import Failure

# Seconds before a node's first retry; doubled for each further one.
PAUSE_S = 0.5


@dataclass
class Refusal:
    """State of a node's attempts to load for a job group."""

    # The last failure.
    failure: Failure
    site: WorkerLocation
    tries: int
    # Time of time.monotonic() at which the last attempt failed.
    at: float
    # Time from which it may try again; inf: never.
    again: float


class LoadFailures:
    """Failed loads by job group and node: the weights may be missing on one node only."""

    def __init__(self, max_attempts: int) -> None:
        self._max = max_attempts
        self._refusals: dict[JobGroup, dict[str, Refusal]] = {}

    def failed(self, shelf: JobGroup, site: WorkerLocation, failure: Failure, sent: float) -> int:
        """Record a failed load that was requested at `sent`; return the number of the node's attempts.

        Loads that several actors of a node had started when one failed count as one attempt, because an
        outage hits them together.
        """
        now, refused = time.monotonic(), self._refusals.setdefault(shelf, {})
        before = refused.get(site.node_id)
        tries = 1 if before is None else before.tries + (sent > before.at)
        stays = failure.transient and tries < self._max and (before is None or before.again < float("inf"))
        again = now + PAUSE_S * 2 ** (tries - 1) if stays else float("inf")
        refused[site.node_id] = Refusal(failure, site, tries, now, again)
        return tries

    def succeeded(self, shelf: JobGroup, site: WorkerLocation) -> None:
        """Forget the node's failed attempts for this job group."""
        refused = self._refusals.get(shelf, {})
        refused.pop(site.node_id, None)
        if not refused:
            self._refusals.pop(shelf, None)

    def barred(self, node: str) -> set[JobGroup]:
        """Return the job groups that the node should not try to load now."""
        now = time.monotonic()
        return {shelf for shelf, by in self._refusals.items() if node in by and now < by[node].again}

    def hopeless(self, shelf: JobGroup, nodes: Collection[str]) -> Refusal | None:
        """Return the last refusal if no attempt is left, else None.

        No attempt is left if none of these nodes may try again, or if max_attempts nodes have given up.
        Without nodes, the result is None.
        """
        refused = self._refusals.get(shelf, {})
        ended = {name for name, one in refused.items() if one.again == float("inf")}
        if nodes and (ended >= set(nodes) or len(ended) >= self._max):
            return max((refused[name] for name in ended), key=lambda one: one.at)
        return None

    def __iter__(self) -> Iterator[JobGroup]:
        """Iterate over the job groups that some node failed to load for."""
        return iter(list(self._refusals))
