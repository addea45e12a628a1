"""The cluster's nodes: which take actors, which are about to leave, which have gone, and asking for more."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from typing import Any

from tasks.sweep.placement import Needs, Node

MARGIN_S = 5.0  # before a node's deadline: what still runs there is handed back
PROBE_S = 1.0


class Nodes:
    """A picture of the cluster, taken anew by `look`."""

    def __init__(self) -> None:
        self.open: list[Node] = []  # alive, and not to leave
        self.leaving: dict[str, float] = {}  # node -> time.monotonic() by which it should be free; inf: no deadline
        self._ids: set[str] = set()  # alive
        self._raylets: dict[str, tuple[str, int]] = {}
        self._shaken = float("-inf")  # when a node last went, or was told to

    def look(self) -> None:
        """Ask Ray, which takes about a millisecond."""
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
        """Whether the node was alive once, and not when last looked at."""
        return name in self._raylets and name not in self._ids

    def lost(self, name: str) -> bool:
        """Whether the node has gone or is leaving, as of now.

        Ray needs up to 20 s to be sure that a node is dead, its actors end at once: so the node itself is asked too.
        """
        if not name:
            return False
        self.look()
        return name in self.leaving or name not in self._ids or not _answers(*self._raylets[name])

    def shaken(self, since: float) -> bool:
        """Whether a node went or was told to after that time of time.monotonic(), or one does not answer now."""
        self.look()
        return self._shaken >= since or not all(_answers(*self._raylets[name]) for name in self._ids)


class Request:
    """What an autoscaler is asked to have room for: one request a cluster, which the last one to ask has said.

    of_cluster: not of a Ray of our own, which has no autoscaler.
    """

    def __init__(self, *, of_cluster: bool) -> None:
        self._of_cluster = of_cluster
        self._asked: dict[Needs, int] | None = None  # not known: a driver that was killed leaves what it asked for

    def make(self, actors: Mapping[Needs, int]) -> None:
        """Ask for room for so many actors of each kind; nothing happens where no autoscaler runs."""
        from ray.autoscaler.sdk import request_resources

        if not self._of_cluster or actors == self._asked or _outside():
            return
        self._asked = dict(actors)
        each = [needs for needs, count in actors.items() for _ in range(count)]
        labels = [dict(needs.labels) for needs in each]
        request_resources(bundles=[needs.amounts for needs in each], bundle_label_selectors=labels)


def _outside() -> bool:
    """Whether this driver is a Ray client, which sees neither drains nor the nodes' own ports, nor an autoscaler."""
    import ray

    return bool(ray.util.client.ray.is_connected())


def _draining() -> dict[str, int]:
    """Nodes that are to leave -> deadline, Unix ms; said by autoscalers, `ray drain-node`, `ray start --block`."""
    from ray._private.state import state  # the public state API needs a dashboard

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
