"""Work that ends when as many nodes as it is told do it at once."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import toy

from tasks.sweep.jobs import Job, Result, Task

WORK = Task("meeting", 1, "toy_nodes:entry")
WAIT_S = 120


def entry(job: Job, data: Any, model: None) -> Result:
    import numpy as np
    import pyarrow as pa
    import ray.util

    spec = job.spec
    node = ray.util.get_node_ip_address()
    toy.log(spec["log"], f"at {node}")
    deadline = time.monotonic() + WAIT_S
    while len(present := sorted(set(toy.logged(spec["log"], "at")))) < spec["nodes"]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{present} came, expected {spec['nodes']} nodes")
        time.sleep(0.02)
    time.sleep(0.05)
    dump = [pa.table({"x": np.arange(1000.0)})]
    row = {"n": spec["n"], "node": node, "folder": str(Path.cwd()), "python": os.environ.get("TOY_PYTHON")}
    return Result([row | {"step": 1, "loss": 0.0}], dump=dump)


def dump_entry(job: Job, data: Any, model: None) -> Result:
    """The same meeting; a row and a dump of the real store."""
    met = entry(job, data, model)
    row = {"model": "m", "dataset": "d", "condition": job.spec["condition"], "kind": "tokens", "n_windows": 1}
    return Result([row], dump=met.dump)
