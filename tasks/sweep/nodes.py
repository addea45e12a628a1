"""Nodes of the cluster, open, leaving or gone, and requests to the autoscaler for more."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from typing import Any

from tsfmscope.tasks.sweep.placement import ActorResources, Node

# Seconds before a node's deadline at which its running jobs are handed back.
MARGIN_S = 5.0
PROBE_S = 1.0


class Nodes:
    """Snapshot of the cluster, refreshed by `look`."""

    def __init__(self) -> None:
        # Nodes that are alive and not about to leave.
        self.open: list[Node] = []
        # Node -> time of time.monotonic() by which it should be free; inf: no deadline.
        self.leaving: dict[str, float] = {}
        # Ids of the nodes that are alive.
        self._ids: set[str] = set()
        self._raylets: dict[str, tuple[str, int]] = {}
        # Time when a node last disappeared, or was asked to leave.
        self._shaken = float("-inf")

    def look(self) -> None:
        """Query Ray for the nodes, which takes about a millisecond."""
        import ray

        alive = [node for node in ray.nodes() if node["Alive"]]
        draining = _draining()
        if draining.keys() - self.leaving.keys() or self._ids - {node["NodeID"] for node in alive}:
            self._shaken = time.monotonic()
        for name in draining.keys() - self.leaving.keys():
            self.leaving[name] = _deadline(draining[name])
        self.leaving = {name: end for name, end in self.leaving.items() if name in draining}
        self.open = [
            Node(node["NodeID"], node["Resources"], node["Labels"]) for node in alive if node["NodeID"] not in draining
        ]
        self._ids = {node["NodeID"] for node in alive}
        self._raylets.update({n["NodeID"]: (n["NodeManagerAddress"], n["NodeManagerPort"]) for n in alive})

    def gone(self, name: str) -> bool:
        """Return whether the node was alive once, but not in the last snapshot."""
        return name in self._raylets and name not in self._ids

    def lost(self, name: str) -> bool:
        """Return whether the node is gone or leaving now.

        Ray needs up to 20 s to declare a node dead, but the node's actors end at once. So the node itself is
        contacted too.
        """
        if not name:
            return False
        self.look()
        return name in self.leaving or name not in self._ids or not _answers(*self._raylets[name])

    def shaken(self, since: float) -> bool:
        """Return whether a node may have failed since that time of time.monotonic().

        True if a node disappeared or was asked to leave after it, or if a node does not answer now.
        """
        self.look()
        return self._shaken >= since or not all(_answers(*self._raylets[name]) for name in self._ids)


class Request:
    """Resources requested from an autoscaler. A cluster has one request; each new one replaces the last.

    of_cluster: False for a local Ray instance, which has no autoscaler.
    """

    def __init__(self, *, of_cluster: bool) -> None:
        self._of_cluster = of_cluster
        # None: unknown, because a driver that was killed leaves its request behind.
        self._asked: dict[ActorResources, int] | None = None

    def make(self, actors: Mapping[ActorResources, int]) -> None:
        """Request resources for this many actors of each kind; nothing happens where no autoscaler runs."""
        from ray.autoscaler.sdk import request_resources

        if not self._of_cluster or actors == self._asked or _outside():
            return
        self._asked = dict(actors)
        each = [needs for needs, count in actors.items() for _ in range(count)]
        labels = [dict(needs.labels) for needs in each]
        request_resources(bundles=[needs.amounts for needs in each], bundle_label_selectors=labels)


def _outside() -> bool:
    """Return whether this driver is a Ray client.

    A client sees neither drains nor the nodes' own ports nor an autoscaler.
    """
    import ray

    return bool(ray.util.client.ray.is_connected())


def _draining() -> dict[str, int]:
    """Return the nodes that are about to leave, with their deadline in Unix ms (0: none).

    Autoscalers, `ray drain-node` and `ray start --block` announce them.
    """
    # The public state API needs a dashboard.
    from ray._private.state import state

    if _outside():
        return {}
    nodes: dict[str, int] = state.get_draining_nodes()
    return nodes


def _deadline(unix_ms: Any) -> float:
    left = unix_ms / 1000 - time.time()
    return time.monotonic() + left - min(MARGIN_S, left / 4) if unix_ms else float("inf")


def _answers(address: str, port: int) -> bool:
    if _outside():
        return True
    try:
        socket.create_connection((address, port), timeout=PROBE_S).close()
    except OSError:
        return False
    return True
