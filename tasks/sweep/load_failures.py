"""Failed loads by node: when a node may try again, and when no attempt is left. Independent of Ray."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from tasks.sweep.actor import WorkerLocation
from tasks.sweep.job_queue import JobGroup
from tasks.sweep.policy import Failure

# Seconds before a node's first retry; doubled for each further one.
PAUSE_S = 0.5


@dataclass
class NodeFailures:
    """State of a node's attempts to load for a job group."""

    # Failure of the last attempt.
    failure: Failure
    location: WorkerLocation
    tries: int
    # Time of time.monotonic() at which the last attempt failed.
    failed_at: float
    # Time from which it may try again; inf: never.
    retry_at: float


class LoadFailures:
    """Failed loads by job group and node: the weights may be missing on one node only."""

    def __init__(self, max_attempts: int) -> None:
        self._max = max_attempts
        self._failures: dict[JobGroup, dict[str, NodeFailures]] = {}

    def record_failure(self, group: JobGroup, location: WorkerLocation, failure: Failure, requested_at: float) -> int:
        """Record a failed load that was requested at `requested_at`; return the number of the node's attempts.

        Loads that several actors of a node had started when one failed count as one attempt, because an
        outage hits them together.
        """
        now = time.monotonic()
        by_node = self._failures.setdefault(group, {})
        before = by_node.get(location.node_id)
        tries = 1 if before is None else before.tries + (requested_at > before.failed_at)
        stays = failure.transient and tries < self._max and (before is None or before.retry_at < float("inf"))
        retry_at = now + PAUSE_S * 2 ** (tries - 1) if stays else float("inf")
        by_node[location.node_id] = NodeFailures(failure, location, tries, now, retry_at)
        return tries

    def forget_failures(self, group: JobGroup, location: WorkerLocation) -> None:
        """Forget the node's failed attempts for this job group."""
        by_node = self._failures.get(group, {})
        by_node.pop(location.node_id, None)
        if not by_node:
            self._failures.pop(group, None)

    def excluded_groups(self, node: str) -> set[JobGroup]:
        """Return the job groups that the node should not try to load now."""
        now = time.monotonic()
        return {group for group, by in self._failures.items() if node in by and now < by[node].retry_at}

    def exhausted(self, group: JobGroup, nodes: Collection[str]) -> NodeFailures | None:
        """Return the last node's failures if no attempt is left, else None.

        No attempt is left if none of these nodes may try again, or if max_attempts nodes have no attempt left.
        Without nodes, the result is None.
        """
        by_node = self._failures.get(group, {})
        final = {name for name, node in by_node.items() if node.retry_at == float("inf")}
        if nodes and (final >= set(nodes) or len(final) >= self._max):
            return max((by_node[name] for name in final), key=lambda node: node.failed_at)
        return None

    def __iter__(self) -> Iterator[JobGroup]:
        """Iterate over the job groups that some node failed to load for."""
        return iter(list(self._failures))
