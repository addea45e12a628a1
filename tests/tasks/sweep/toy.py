"""Work to hand out, with an execution log outside the store, and a store of JSON lines."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tasks.job import Job, Result, StoreCallbacks, Task, current_context
from tsfmscope.errors import StaleInputError

WORK = Task("toy", 1, "toy:entry", "toy:loader")
PLAIN = Task("plain", 1, "toy:entry")
WAIT_S = 240  # for what must come


def log(path: str, line: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


def read_log(path: str | Path, word: str) -> list[str]:
    """What follows the word in each line of an execution log that begins with it."""
    lines = Path(path).read_text().splitlines() if Path(path).exists() else []
    return [line.removeprefix(f"{word} ") for line in lines if line.startswith(f"{word} ")]


def loader(job: Job) -> str:
    log(job.spec["log"], f"load {job.group}")
    match job.spec.get("load"):
        case "raise":
            raise ValueError("checkpoint without weights")
        case "die":
            os._exit(3)
        case "hang":
            time.sleep(60)
        case str(node) if "." in node:  # that has not got the weights
            import ray.util

            if ray.util.get_node_ip_address() == node:
                log(job.spec["log"], f"refused {job.group}")
                raise FileNotFoundError(f"no weights on {node}")
    return f"model {job.group}"


def entry(job: Job, data: Any, model: str | None) -> Result:
    spec = job.spec
    log(spec["log"], f"run {spec['n']}")
    match spec.get("do"):
        case "raise":
            raise ZeroDivisionError(f"job {spec['n']} is poisoned")
        case "exit":
            sys.exit(5)
        case "die":
            time.sleep(0.05)
            os._exit(7)
        case "hang":
            time.sleep(60)
        case "die once":
            if read_log(spec["log"], "run").count(str(spec["n"])) == 1:
                os.kill(os.getpid(), signal.SIGKILL)
        case "memory":
            if current_context().batch(64) > spec.get("fits", 32):
                raise type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory")
        case "unpicklable":
            return Result([{"n": (n for n in ())}])
        case "unreadable":
            return Result([{"n": Unreadable()}])
        case "nothing":
            return Result([])
        case "hang once":
            if read_log(spec["log"], "run").count(str(spec["n"])) == 1:
                time.sleep(600)
        case "told to end":  # as a machine that is taken away tells its processes
            if read_log(spec["log"], "run").count(str(spec["n"])) == 1:
                os.kill(os.getpid(), signal.SIGTERM)
    if "meet" in spec:
        meet(spec["log"], spec["meet"])
    if "paced" in spec:
        pace(spec["log"], *spec["paced"])
    time.sleep(spec.get("sleep", 0))
    row = {"n": spec["n"], "model": model, "data": data, "seed": job.seed, "batch": current_context().batch(8)}
    row |= {"threads": os.environ["OMP_NUM_THREADS"], "gpus": os.environ.get("CUDA_VISIBLE_DEVICES")}
    if spec.get("where"):
        import ray

        row["node"] = ray.get_runtime_context().get_node_id()
    if spec.get("torch"):
        row["torch"] = torch_facts()
    return Result([row], dump=tables(spec["dump"]) if "dump" in spec else None, tokens=10)


def meet(path: str, count: int) -> None:
    """Wait until so many actors are at work, however late the last comes."""
    log(path, f"at {os.getpid()}")
    deadline = time.monotonic() + WAIT_S
    while (came := len(set(read_log(path, "at")))) < count:
        if time.monotonic() > deadline:
            raise ValueError(f"{came} actors came, expected {count}")
        time.sleep(0.02)


def pace(path: str, most: int, events: int) -> None:
    """Wait where this node has done so many jobs since the last `event` of the log, until the next, if one is left."""
    import ray

    node, event = ray.get_runtime_context().get_node_id(), len(read_log(path, "event"))
    log(path, f"after {event} {node}")
    deadline = time.monotonic() + WAIT_S
    while read_log(path, "after").count(f"{event} {node}") > most and len(read_log(path, "event")) == event < events:
        if time.monotonic() > deadline:
            raise ValueError(f"event {event + 1} of {events} did not come")
        time.sleep(0.05)


def torch_facts() -> dict[str, Any]:
    """What torch sees of GPUs, and a sum that was worked out on the job's device."""
    import torch

    count, device = torch.cuda.device_count(), current_context().device
    uuid = str(torch.cuda.get_device_properties(0).uuid) if count else None
    total = torch.ones(1000, device=device).sum().item()
    return {"count": count, "uuid": uuid, "device": device, "sum": total}


def row(job: Job, data: Any, model: None) -> Result:
    """A row of the store's table `training`; the job 13 dies."""
    log(job.spec["log"], f"run {job.spec['n']}")
    if job.spec["n"] == 13:
        os._exit(7)
    return Result([{"model": "m", "step": job.spec["n"], "loss": 0.0, "learning_rate": 0.0}])


def tables(count: int) -> Any:
    import numpy as np
    import pyarrow as pa

    for index in range(count):
        yield pa.table({"x": np.full(1_000_000, index, dtype=np.float64)})


def make(numbers: Sequence[int], log_path: str | Path, task: Task = WORK, groups: int = 1, **spec: Any) -> list[Job]:
    """One job a number, in groups g0, g1 ... of consecutive ones."""
    return [
        Job(task, {"n": n, "log": str(log_path), **spec}, group=f"g{index * groups // len(numbers)}")
        for index, n in enumerate(numbers)
    ]


def read_records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for part in sorted(folder.glob("*.jsonl")) for line in part.read_text().splitlines()]


def _missing(folder: Path, keys: Any) -> list[str]:
    have = {record["key"] for record in read_records(folder)}
    return [key for key in keys if key not in have]


def _append(folder: Path, records: Any) -> None:
    text = "".join(json.dumps(record, default=str) + "\n" for record in records)
    part = folder / f"{time.time_ns()}.tmp"
    part.write_text(text)
    part.rename(part.with_suffix(".jsonl"))


def _check(inputs: Any) -> None:
    for path, fingerprint in inputs.items():
        if Path(path).read_text() != fingerprint:
            raise StaleInputError(f"{path}: got {Path(path).read_text()!r}, expected {fingerprint!r}")


def _read(job: Job) -> Any:
    return f"data of {job.spec['n']}"


def _write_dump(folder: Path, job: Job, dump: Any) -> dict[str, Any]:
    path, rows, writer = folder / f"{job.key}.parquet", 0, None
    for table in dump:
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
        rows += len(table)
    assert writer is not None
    writer.close()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"path": str(path), "rows": rows, "bytes": path.stat().st_size, "fingerprint": digest, "pid": os.getpid()}


class Unreadable:
    """What can be pickled here and not be read anywhere else."""

    def __reduce__(self) -> Any:
        return _only_there, (os.getpid(),)


def _only_there(pid: int) -> None:
    if os.getpid() != pid:
        raise LookupError("this process has not got it")


class Late:
    """Reads as `_read`. An actor that is handed this hangs in its start, in a folder that hangs, until a file comes."""

    def __init__(self, log_path: Path, latch: Path) -> None:
        self.where = str(log_path), str(latch)

    def __reduce__(self) -> Any:
        return _late, self.where


def _late(log_path: str, latch: str) -> Any:
    real = os.chdir

    def chdir(folder: str) -> None:
        log(log_path, f"starts {os.getpid()}")
        while not Path(latch).exists():
            time.sleep(0.02)
        real(folder)

    os.chdir = chdir
    return _read


def port(folder: Path) -> StoreCallbacks:
    folder.mkdir(parents=True, exist_ok=True)
    return StoreCallbacks(
        partial(_missing, folder), partial(_append, folder), _check, _read, partial(_write_dump, folder)
    )
