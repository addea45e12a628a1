"""A cluster of one node, and a process that starts drivers which join it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = str(Path(__file__).parent)
if HERE not in sys.path:
    sys.path.insert(0, HERE)
if HERE not in os.environ.get("PYTHONPATH", "").split(os.pathsep):
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [HERE, os.environ.get("PYTHONPATH", "")]))

from launcher import Launcher  # noqa: E402  # found through the path above, as workers and drivers find it


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """A node of two cores, whose workers have the environment of ours."""
    import ray
    from ray.cluster_utils import Cluster

    from tasks.sweep.cluster import QUIET, environment, worker_environment

    with environment({**QUIET, **worker_environment(1)}):
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
        yield cluster
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture(scope="session")
def launcher(cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    """Starts drivers that join the cluster."""
    launcher = Launcher(cluster.address, tmp_path_factory.mktemp("drivers"))
    yield launcher
    launcher.close()
