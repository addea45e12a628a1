"""Addresses of Ray: one without a cluster, and none although a cluster runs. What faults do: faults/."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import toy

from tasks.sweep.cluster import Resources
from tasks.sweep.engine import run
from tsfmscope.errors import SweepError

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster() -> Iterator[Any]:
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def test_an_address_without_a_cluster_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SweepError, match=r"127.0.0.1:1.*no Ray cluster answers.*ray start --head"):
        run(toy.make([1], tmp_path / "log"), toy.port(tmp_path), Resources(address="127.0.0.1:1"))


def test_the_address_of_a_ray_client_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SweepError, match=r"got 'ray://127.0.0.1:1', expected HOST:PORT or auto"):
        run(toy.make([1], tmp_path / "log"), toy.port(tmp_path), Resources(address="ray://127.0.0.1:1"))


def test_without_an_address_a_cluster_on_this_machine_is_left_alone(tmp_path: Path, cluster: Any) -> None:
    assert cluster.address  # Ray would join it by itself, and refuse the size of our object store
    summary = run(toy.make(range(3), tmp_path / "log"), toy.port(tmp_path / "store"), Resources(actors=1))
    assert (summary.done, summary.failed) == (3, 0)
