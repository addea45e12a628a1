"""What runs in a worker process: loads a model once, does jobs with it, answers rows or a failure, never raises."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from tasks.errors import SweepError
from tasks.sweep.feeding import used
from tasks.sweep.jobs import PLACE, Job, Place, Port, Result
from tasks.sweep.policy import Failure

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class Site:
    """Where an actor turned out to run."""

    actor: str
    node: str
    device: str  # "cpu", or "cuda:<id on the node>"


@dataclass(frozen=True)
class Outcome:
    """What became of one job or load: rows, or a failure."""

    rows: Sequence[Mapping[str, Any]]
    failure: Failure | None
    timing: Mapping[str, Any]


class Worker:
    """One actor. Knows no Ray but for `start`, so the rest runs in any process."""

    def __init__(self, name: str, port: Port, threads: int, folder: str) -> None:
        self._name = name
        self._port = port
        self._threads = threads
        self._folder = folder
        self._site = Site(name, "", "cpu")
        self._torch_device = "cpu"
        self._model: Any = None
        self._load_seconds = 0.0

    def start(self) -> Site:
        """Fit the process to the driver's folder, and to what Ray has assigned to it: threads and device.

        Raises SweepError where the node has not got the folder, and on a wrong device.
        """
        import ray
        import ray.util

        try:
            os.chdir(self._folder)  # jobs name files relative to it
        except OSError as error:
            raise SweepError(
                f"node {ray.util.get_node_ip_address()} has not got the driver's folder {self._folder} ({error}); "
                "run from a folder that all nodes share"
            ) from error
        for variable in THREAD_VARIABLES:
            os.environ[variable] = str(self._threads)
        ids = ray.get_gpu_ids()
        if ids:
            self._torch_device = _torch_device(ids)
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""  # ray leaves all GPUs visible to an actor that asked for none
        device = f"cuda:{ids[0]}" if ids else "cpu"
        self._site = Site(self._name, ray.util.get_node_ip_address(), device)
        return self._site

    def load(self, job: Job) -> Outcome:
        """Load what the job's group shares, in place of what was loaded before."""
        self._model = None
        gc.collect()  # two models at once may not fit
        began = time.monotonic()
        outcome = self._guarded(lambda: self._load(job), Place(self._torch_device))
        self._load_seconds = time.monotonic() - began
        return outcome

    def run(self, job: Job, divisor: int) -> Outcome:
        """Do one job with what was loaded last."""
        outcome = self._guarded(lambda: self._run(job), Place(self._torch_device, divisor))
        if outcome.failure is not None and outcome.failure.of_memory:
            _free_memory()
        return outcome

    def _load(self, job: Job) -> Result:
        assert job.task.loader is not None
        self._model = _resolve(job.task.loader)(job)
        _limit_threads(self._threads)
        return Result(rows=())

    def _run(self, job: Job) -> Result:
        entry = _resolve(job.task.entry)
        self._port.check(job.inputs)
        model = self._model if job.task.loader else None
        result: Result = entry(job, self._port.read(job), model)
        if not result.rows:
            raise ValueError(f"{job.task.entry}: got no rows, expected at least one, or the job is never found done")
        if result.dump is None:
            return result
        info = used(partial(self._port.write_dump, job), result.dump)
        return Result(rows=[{**result.rows[0], **info}, *result.rows[1:]], tokens=result.tokens)

    def _guarded(self, work: Callable[[], Result], place: Place) -> Outcome:
        started, began = datetime.now(UTC), time.monotonic()
        result, failure = Result(rows=()), None
        token = PLACE.set(place)
        try:
            result = work()
        except (Exception, SystemExit) as error:  # sys.exit in a job would end the actor
            failure = Failure.of(error)
        finally:
            PLACE.reset(token)
        seconds = time.monotonic() - began
        load_seconds, self._load_seconds = self._load_seconds, 0.0
        timing = {
            "seconds": seconds,
            "load_seconds": load_seconds,
            "actor": self._site.actor,
            "node": self._site.node,
            "device": self._site.device,
            "started": started,
            "tokens_per_s": result.tokens / seconds if result.tokens and seconds > 0 else None,
        }
        return Outcome(list(result.rows), failure, timing)


def _resolve(name: str) -> Callable[..., Any]:
    """The function "module:function"; SweepError where this process has not got it: no other job will do better."""
    module, _, function = name.partition(":")
    try:
        return getattr(importlib.import_module(module), function)  # type: ignore[no-any-return]
    except (ImportError, AttributeError, ValueError) as error:
        raise SweepError(
            f"{name}: got {type(error).__name__}: {error}; expected an importable module:function on the worker. "
            f"The worker looks in PYTHONPATH={os.environ.get('PYTHONPATH', '')}"
        ) from error


def _torch_device(ids: Sequence[Any]) -> str:
    visible = [i for i in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if i]
    if visible != [str(i) for i in ids]:
        raise SweepError(f"GPUs of this actor: Ray assigned {list(ids)}, CUDA_VISIBLE_DEVICES shows {visible}")
    return "cuda:0"


def _limit_threads(threads: int) -> None:
    """For libraries that were loaded before the environment variables were set."""
    import threadpoolctl

    threadpoolctl.threadpool_limits(threads)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(threads)


def _free_memory() -> None:
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        with contextlib.suppress(RuntimeError):  # a lost CUDA context is replaced with its actor
            torch.cuda.empty_cache()
