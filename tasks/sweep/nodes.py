"""Nodes of the cluster, and requests to the autoscaler for more."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping

from tasks.sweep.placement import ActorResources, Node

# Seconds before a node's deadline at which its running jobs are handed back.
MARGIN_S = 5.0
PROBE_S = 1.0


class Nodes:
    """Snapshot of the cluster, updated by `refresh`."""

    def __init__(self) -> None:
        # Nodes that are alive and not about to leave.
        self.accepting: list[Node] = []
        # Node -> time of time.monotonic() by which it should be free; inf: no deadline.
        self.deadlines: dict[str, float] = {}
        # Ids of the nodes that are alive.
        self._ids: set[str] = set()
        self._raylets: dict[str, tuple[str, int]] = {}
        # Time at which a node last disappeared or was asked to leave.
        self._last_loss_at = float("-inf")

    def refresh(self) -> None:
        """Query Ray for the nodes, which takes about a millisecond."""
        import ray

        # The public state API needs a dashboard.
        from ray._private.state import state

        alive = [node for node in ray.nodes() if node["Alive"]]
        # Nodes that are about to leave, with their deadline in Unix ms (0: none). Autoscalers, `ray drain-node` and
        # `ray start --block` announce them.
        draining_nodes: dict[str, int] = state.get_draining_nodes()
        if draining_nodes.keys() - self.deadlines.keys() or self._ids - {node["NodeID"] for node in alive}:
            self._last_loss_at = time.monotonic()
        for name in draining_nodes.keys() - self.deadlines.keys():
            unix_ms = draining_nodes[name]
            seconds_left = unix_ms / 1000 - time.time() if unix_ms else float("inf")
            self.deadlines[name] = time.monotonic() + seconds_left - min(MARGIN_S, seconds_left / 4)
        self.deadlines = {name: end for name, end in self.deadlines.items() if name in draining_nodes}
        self.accepting = [
            Node(node["NodeID"], node["Resources"], node["Labels"])
            for node in alive
            if node["NodeID"] not in draining_nodes
        ]
        self._ids = {node["NodeID"] for node in alive}
        self._raylets.update({n["NodeID"]: (n["NodeManagerAddress"], n["NodeManagerPort"]) for n in alive})

    def has_disappeared(self, name: str) -> bool:
        """Return whether the node was alive in an earlier snapshot, but not in the last one."""
        return name in self._raylets and name not in self._ids

    def is_lost(self, name: str) -> bool:
        """Return whether the node is gone or leaving now.

        Ray needs up to 20 s to declare a node dead, but the node's actors end at once. So the node itself is
        contacted too.
        """
        if not name:
            return False
        self.refresh()
        return name in self.deadlines or name not in self._ids or not _is_reachable(*self._raylets[name])

    def may_have_failed(self, since: float) -> bool:
        """Return whether a node may have failed since that time of time.monotonic().

        True if a node disappeared or was asked to leave after that time, or if a node does not answer now.
        """
        self.refresh()
        return self._last_loss_at >= since or not all(_is_reachable(*self._raylets[name]) for name in self._ids)


class Request:
    """Resources requested from an autoscaler. A cluster has one request; each new one replaces the last.

    of_cluster: False for a local Ray instance, which has no autoscaler.
    """

    def __init__(self, *, of_cluster: bool) -> None:
        self._of_cluster = of_cluster
        # None: unknown, because a driver that was killed leaves its request behind.
        self._last: dict[ActorResources, int] | None = None

    def submit(self, actors: Mapping[ActorResources, int]) -> None:
        """Request resources for this many actors of each kind; nothing happens where no autoscaler runs."""
        from ray.autoscaler.sdk import request_resources

        if not self._of_cluster or actors == self._last:
            return
        self._last = dict(actors)
        bundles = [needs for needs, count in actors.items() for _ in range(count)]
        labels = [dict(needs.labels) for needs in bundles]
        request_resources(bundles=[needs.amounts for needs in bundles], bundle_label_selectors=labels)


def _is_reachable(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=PROBE_S).close()
    except OSError:
        return False
    return True
