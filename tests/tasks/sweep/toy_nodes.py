"""Jobs that end when as many nodes as their spec names do them at once."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import toy

from tasks.job import Job, Result, Task

NODES = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
TRIAL = Task("meeting", 1, "toy_nodes:trial")
DUMP = Task("meeting", 1, "toy_nodes:entry", table="dumps")
WAIT_S = 120


@contextmanager
def raylets() -> Iterator[Any]:
    """A cluster: a head without CPUs, and three nodes of one each."""
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for ip in NODES:
        cluster.add_node(wait=False, num_cpus=1, node_ip_address=ip)
    cluster.wait_for_nodes()
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def meet(job: Job) -> str:
    """Wait until as many nodes are at work as the job names; return this one."""
    import ray.util

    spec, node = job.spec, ray.util.get_node_ip_address()
    toy.log(spec["log"], f"at {node}")
    toy.log(spec["log"], f"with {os.environ.get('TOY_PYTHON')} in {Path.cwd()}")
    deadline = time.monotonic() + WAIT_S
    while len(present := sorted(set(toy.read_log(spec["log"], "at")))) < spec["nodes"]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{present} came, expected {spec['nodes']} nodes")
        time.sleep(0.02)
    time.sleep(0.05)
    return node


def trial(job: Job, data: Any, model: None) -> Result:
    row = {"n": job.spec["n"], "node": meet(job), "python": os.environ.get("TOY_PYTHON"), "step": 1, "loss": 0.0}
    return Result([row])


def entry(job: Job, data: Any, model: None) -> Result:
    """A row and an activation file of the real store."""
    import numpy as np
    import pyarrow as pa

    meet(job)
    row = {"model": "m", "dataset": "d", "condition": job.spec["condition"], "kind": "tokens", "n_windows": 1}
    return Result([row], dump=[pa.table({"x": np.arange(1000.0)})])
