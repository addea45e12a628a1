"""Worker process of a sweep: loads a model once, runs jobs with it, and returns rows or a failure.

Errors of the work are returned as failures, not raised.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from tsfmscope.tasks import buffer_pool
from tsfmscope.tasks.errors import SweepError
from tsfmscope.tasks.job import EXECUTION_CONTEXT, ExecutionContext, Job, Result, StoreCallbacks
from tsfmscope.tasks.producer_consumer import consume
from tsfmscope.tasks.sweep.policy import Failure

# Seconds above which a call was not short. The jobs queued behind it may find a better actor.
LONG_S = 1.0
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class WorkerLocation:
    """Location of an actor."""

    actor: str
    node: str
    # "cpu", or "cuda:<id on the node>".
    device: str
    # Ray's node id, in hex.
    node_id: str = ""
    # Reason why no job can run there, or "".
    unfit: str = ""


@dataclass(frozen=True)
class WorkerConfig:
    """Configuration of an actor's process."""

    threads: int
    # The driver's working folder.
    folder: str
    # Number of GPUs that it should see; None: as many as Ray assigns.
    devices: int | None = None
    # Seconds from SIGTERM until the running job is handed back.
    notice_seconds: float = 20
    # Digest of its packages, if it has an environment of its own.
    environment: str = ""
    # sys.prefix of the Python of that environment.
    prefix: str | None = None
    # Number of processes that a job may use.
    processes: int = 1


@dataclass(frozen=True)
class Outcome:
    """Result of one job or load: rows, or a failure."""

    rows: Sequence[Mapping[str, Any]]
    failure: Failure | None
    timing: Mapping[str, Any]
    # The actor was asked to end: send it no more jobs.
    leaving: bool = False
    # Neither rows nor a failure: there was no time, or the loaded model was no longer usable.
    undone: bool = False


class Preempted(BaseException):
    """Interruption of a job whose actor must end; not an Exception, so that jobs do not catch it."""


class Worker:
    """One actor. Only `start` uses Ray, so the other methods run in any process."""

    def __init__(self, name: str, port: StoreCallbacks, setting: WorkerConfig) -> None:
        self._name = name
        self._port = port
        self._setting = setting
        self._site = WorkerLocation(name, "", "cpu")
        self._torch_device = "cpu"
        self._model: Any = None
        self._load_seconds = 0.0
        # Duration of its last call with jobs.
        self._last_seconds = 0.0
        self._leaving = self._working = self._spoilt = False

    def start(self) -> WorkerLocation:
        """Adapt the process to the driver's folder, and to the threads and device that Ray has assigned.

        The location is unfit if the node lacks the folder or starts another Python. Raises SweepError if the
        process sees other GPUs than its own.
        """
        import ray
        import ray.util

        address, node_id = ray.util.get_node_ip_address(), ray.get_runtime_context().get_node_id()
        unfit = ""
        try:
            # Jobs name files relative to this folder.
            os.chdir(self._setting.folder)
        except OSError as error:
            unfit = (
                f"node {address} has not got the driver's folder {self._setting.folder} ({error}); "
                "run from a folder that all nodes share"
            )
        if self._setting.prefix not in (None, sys.prefix):
            unfit = (
                f"node {address} runs {sys.prefix}, expected {self._setting.prefix}: its Ray heeds no py_executable; "
                "start the node with the Ray of constraints.txt"
            )
        if unfit:
            return WorkerLocation(self._name, address, "", node_id, unfit)
        for variable in THREAD_VARIABLES:
            os.environ[variable] = str(self._setting.threads)
        ids = ray.get_gpu_ids()
        if ids:
            self._torch_device = _torch_device(ids, os.environ.get("CUDA_VISIBLE_DEVICES", ""), self._setting.devices)
        else:
            # Ray leaves all GPUs visible to an actor that asked for none.
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        device = f"cuda:{ids[0]}" if ids else "cpu"
        self._site = WorkerLocation(self._name, address, device, node_id)
        self._heed_notice()
        return self._site

    def _heed_notice(self) -> None:
        """Handle SIGTERM: continue the job for `notice_seconds`, then hand it back.

        Ray's handler would fail the job at once.
        """
        if threading.current_thread() is not threading.main_thread():
            # This is a trial of Ray Tune, which handles its end itself.
            return

        def noticed(signum: int, frame: Any) -> None:
            self._leaving = True
            signal.setitimer(signal.ITIMER_REAL, self._setting.notice_seconds)

        def time_is_up(signum: int, frame: Any) -> None:
            if self._working:
                raise Preempted

        signal.signal(signal.SIGTERM, noticed)
        signal.signal(signal.SIGALRM, time_is_up)

    def load(self, job: Job) -> Outcome:
        """Load the model that the job's group shares, in place of the previous one."""
        if self._leaving:
            return self._unbegun()
        self._model, self._spoilt = None, False
        # Two models may not fit into memory at once.
        gc.collect()
        began = time.monotonic()
        outcome = self._guarded(lambda: self._load(job), self._place())
        self._load_seconds = time.monotonic() - began
        return outcome

    def run(self, job: Job, divisor: int) -> Outcome:
        """Run one job with the model that was loaded last.

        The job is returned undone if the actor has to end, or if a transient failure may have left the model
        half changed.
        """
        if self._leaving:
            return self._unbegun()
        if self._spoilt and job.task.loader:
            return Outcome([], None, {}, undone=True)
        outcome = self._guarded(lambda: self._run(job), self._place(divisor))
        if outcome.failure is not None and outcome.failure.transient:
            self._spoilt = True
        if outcome.failure is not None and outcome.failure.of_memory:
            _free_memory()
        return outcome

    def run_all(self, jobs: Sequence[tuple[Job, int]], seconds: float, *, queued: bool = False) -> bytes:
        """Run jobs (each with its divisor) until one fails or the time is over; return the pickled outcomes.

        A job that is returned undone, or an actor that has to end, stops the call as well. Jobs that were not
        reached are unchanged. An outcome that cannot be pickled becomes a failure of its job alone.

        seconds: time limit, checked after each job. queued: the call waited behind another call that was
        expected to be short; if that call was long, none of these jobs is begun.
        """
        outcomes: list[Outcome] = []
        began = time.monotonic()
        end = began + seconds
        if queued and self._last_seconds > LONG_S:
            return pickle.dumps(outcomes)
        for job, divisor in jobs:
            outcomes.append(self.run(job, divisor))
            last = outcomes[-1]
            if last.failure is not None or last.leaving or last.undone or time.monotonic() > end:
                break
        self._last_seconds = time.monotonic() - began
        try:
            return pickle.dumps(outcomes)
        # A row's own pickling code may raise anything.
        except Exception:
            return pickle.dumps([_picklable(outcome) for outcome in outcomes])

    def _load(self, job: Job) -> Result:
        assert job.task.loader is not None
        self._model = _resolve(job.task.loader)(job)
        _limit_threads(self._setting.threads)
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
        info = consume(partial(self._port.write_dump, job), result.dump)
        return Result(rows=[{**result.rows[0], **info}, *result.rows[1:]], tokens=result.tokens)

    def _place(self, divisor: int = 1) -> ExecutionContext:
        return ExecutionContext(self._torch_device, divisor, self._setting.environment, self._setting.processes)

    def _unbegun(self) -> Outcome:
        return Outcome([], None, {}, leaving=True, undone=True)

    def _guarded(self, work: Callable[[], Result], place: ExecutionContext) -> Outcome:
        started, began = datetime.now(UTC), time.monotonic()
        result, failure, undone = Result(rows=()), None, False
        token = EXECUTION_CONTEXT.set(place)
        try:
            self._working = True
            result = work()
            self._working = False
        except Preempted:
            undone = True
        # SystemExit too, because sys.exit in a job would end the actor.
        except (Exception, SystemExit) as error:
            self._working = False
            failure = Failure.of(error)
        finally:
            self._working = False
            EXECUTION_CONTEXT.reset(token)
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
        return Outcome(list(result.rows), failure, timing, self._leaving, undone)


def _picklable(outcome: Outcome) -> Outcome:
    try:
        pickle.dumps(outcome)
    except Exception as error:
        return Outcome([], Failure.of(error), outcome.timing)
    return outcome


def _resolve(name: str) -> Callable[..., Any]:
    """Return the function "module:function".

    Raises:
        SweepError: this process cannot import it, so every other job would fail as well.
    """
    module, _, function = name.partition(":")
    try:
        return getattr(importlib.import_module(module), function)  # type: ignore[no-any-return]
    except (ImportError, AttributeError, ValueError) as error:
        raise SweepError(
            f"{name}: got {type(error).__name__}: {error}; expected an importable module:function on the worker. "
            f"The worker looks in PYTHONPATH={os.environ.get('PYTHONPATH', '')}"
        ) from error


def _torch_device(ids: Sequence[Any], shown: str, devices: int | None) -> str:
    """Return torch's device of an actor.

    ids: GPUs that Ray assigned; shown: CUDA_VISIBLE_DEVICES of the process; devices: number of GPUs that the
    actor asked for.

    Raises:
        SweepError: the actor would see other GPUs than its own, or another number than it asked for.
    """
    visible = [one for one in shown.split(",") if one]
    if visible != [str(one) for one in ids]:
        raise SweepError(f"GPUs of this actor: Ray assigned {list(ids)}, CUDA_VISIBLE_DEVICES shows {visible}")
    if devices is not None and len(visible) != devices:
        raise SweepError(f"GPUs of this actor: it shows {visible}, expected {devices}")
    return "cuda:0"


def _limit_threads(threads: int) -> None:
    """Limit the threads of libraries that were loaded before the environment variables were set."""
    import threadpoolctl

    threadpoolctl.threadpool_limits(threads)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(threads)


def _free_memory() -> None:
    gc.collect()
    buffer_pool.drop()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        # If the CUDA context is lost, the engine replaces the actor.
        with contextlib.suppress(RuntimeError):
            torch.cuda.empty_cache()
