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
from typing import Any

from tasks.job import EXECUTION_CONTEXT, ExecutionContext, Job, Result, StoreCallbacks
from tasks.sweep.policy import Failure
from tsfmscope.errors import SweepError

# Seconds above which a call is long: the jobs queued behind it may find a better actor.
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
    # Number of processes that a job may use.
    processes: int = 1


@dataclass(frozen=True)
class Outcome:
    """Result of one job or load: rows, or a failure."""

    rows: Sequence[Mapping[str, Any]]
    failure: Failure | None
    timing: Mapping[str, Any]
    # Whether the actor was asked to end: send it no more jobs.
    is_leaving: bool = False
    # Whether there are neither rows nor a failure: no time was left, or the loaded model was not usable.
    is_unfinished: bool = False


class Preempted(BaseException):
    """Interruption of a job whose actor must end; not an Exception, so that jobs do not catch it."""


class Worker:
    """One actor. Only `start` uses Ray, so the other methods run in any process."""

    def __init__(self, name: str, callbacks: StoreCallbacks, config: WorkerConfig) -> None:
        self._name = name
        self._callbacks = callbacks
        self._config = config
        self._location = WorkerLocation(name, "", "cpu")
        self._torch_device = "cpu"
        self._model: Any = None
        self._load_seconds = 0.0
        # Duration of its last call with jobs.
        self._last_seconds = 0.0
        self._is_leaving = self._is_working = self._model_spoilt = False

    def start(self) -> WorkerLocation:
        """Adapt the process to the driver's folder, and to the threads and device that Ray has assigned.

        The location is unfit if the node lacks the folder. Raises SweepError if the
        process sees other GPUs than its own.
        """
        import ray
        import ray.util

        address, node_id = ray.util.get_node_ip_address(), ray.get_runtime_context().get_node_id()
        try:
            # Jobs name files relative to this folder.
            os.chdir(self._config.folder)
        except OSError as error:
            unfit = (
                f"node {address} lacks the driver's folder {self._config.folder} ({error}); "
                "run from a folder that all nodes share"
            )
            return WorkerLocation(self._name, address, "", node_id, unfit)
        for variable in THREAD_VARIABLES:
            os.environ[variable] = str(self._config.threads)
        ids = ray.get_gpu_ids()
        if ids:
            self._torch_device = _torch_device(ids, os.environ.get("CUDA_VISIBLE_DEVICES", ""), self._config.devices)
        else:
            # Ray leaves all GPUs visible to an actor that requested none.
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        device = f"cuda:{ids[0]}" if ids else "cpu"
        self._location = WorkerLocation(self._name, address, device, node_id)
        self._handle_notice()
        return self._location

    def _handle_notice(self) -> None:
        """Handle SIGTERM: continue the job for `notice_seconds`, then hand it back.

        Ray's handler would fail the job at once.
        """
        if threading.current_thread() is not threading.main_thread():
            # This is a trial of Ray Tune, which handles its end itself.
            return

        def handle_term(signum: int, frame: Any) -> None:
            self._is_leaving = True
            signal.setitimer(signal.ITIMER_REAL, self._config.notice_seconds)

        def handle_alarm(signum: int, frame: Any) -> None:
            if self._is_working:
                raise Preempted

        signal.signal(signal.SIGTERM, handle_term)
        signal.signal(signal.SIGALRM, handle_alarm)

    def load(self, job: Job) -> Outcome:
        """Load the model that the job's group shares, in place of the previous one."""
        if self._is_leaving:
            return self._not_started()
        self._model, self._model_spoilt = None, False
        # Two models may not fit into memory at once.
        gc.collect()
        began = time.monotonic()
        outcome = self._execute(lambda: self._load(job), self._context())
        self._load_seconds = time.monotonic() - began
        return outcome

    def run(self, job: Job, divisor: int) -> Outcome:
        """Run one job with the model that was loaded last.

        The job is returned unfinished if the actor has to end, or if a transient failure may have left the model
        half changed.
        """
        if self._is_leaving:
            return self._not_started()
        if self._model_spoilt and job.task.loader:
            return Outcome([], None, {}, is_unfinished=True)
        outcome = self._execute(lambda: self._run(job), self._context(divisor))
        if outcome.failure is not None and outcome.failure.transient:
            self._model_spoilt = True
        if outcome.failure is not None and outcome.failure.of_memory:
            _free_memory()
        return outcome

    def run_all(self, jobs: Sequence[tuple[Job, int]], seconds: float, *, was_queued: bool = False) -> bytes:
        """Run jobs (each with its divisor) until one fails or the time is over; return the pickled outcomes.

        A job that is returned unfinished, or an actor that has to end, stops the call as well. Jobs that were not
        reached are unchanged. An outcome that cannot be pickled becomes a failure of its job alone.

        seconds: time limit, checked after each job. was_queued: the call waited behind another call that was
        expected to be short; if that call was long, none of these jobs is begun.
        """
        outcomes: list[Outcome] = []
        began = time.monotonic()
        end = began + seconds
        if was_queued and self._last_seconds > LONG_S:
            return pickle.dumps(outcomes)
        for job, divisor in jobs:
            outcomes.append(self.run(job, divisor))
            last = outcomes[-1]
            if last.failure is not None or last.is_leaving or last.is_unfinished or time.monotonic() > end:
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
        import threadpoolctl

        # Limits the threads of libraries that were loaded before the environment variables were set.
        threadpoolctl.threadpool_limits(self._config.threads)
        if torch := sys.modules.get("torch"):
            torch.set_num_threads(self._config.threads)
        return Result(rows=())

    def _run(self, job: Job) -> Result:
        entry = _resolve(job.task.entry)
        self._callbacks.check(job.inputs)
        model = self._model if job.task.loader else None
        result: Result = entry(job, self._callbacks.read(job), model)
        if not result.rows:
            raise ValueError(
                f"{job.task.entry}: got no rows, expected at least one; a job without rows would never count as done"
            )
        if result.dump is None:
            return result
        info = self._callbacks.write_dump(job, result.dump)
        return Result(rows=[{**result.rows[0], **info}, *result.rows[1:]], tokens=result.tokens)

    def _context(self, divisor: int = 1) -> ExecutionContext:
        return ExecutionContext(self._torch_device, divisor, self._config.processes)

    def _not_started(self) -> Outcome:
        return Outcome([], None, {}, is_leaving=True, is_unfinished=True)

    def _execute(self, work: Callable[[], Result], context: ExecutionContext) -> Outcome:
        started_at, began = datetime.now(UTC), time.monotonic()
        result, failure, is_unfinished = Result(rows=()), None, False
        token = EXECUTION_CONTEXT.set(context)
        try:
            self._is_working = True
            result = work()
            self._is_working = False
        except Preempted:
            is_unfinished = True
        # SystemExit too, because sys.exit in a job would end the actor.
        except (Exception, SystemExit) as error:
            self._is_working = False
            failure = Failure.of(error)
        finally:
            self._is_working = False
            EXECUTION_CONTEXT.reset(token)
        seconds = time.monotonic() - began
        load_seconds, self._load_seconds = self._load_seconds, 0.0
        timing = {
            "seconds": seconds,
            "load_seconds": load_seconds,
            "actor": self._location.actor,
            "node": self._location.node,
            "device": self._location.device,
            "started": started_at,
            "tokens_per_s": result.tokens / seconds if result.tokens and seconds > 0 else None,
        }
        return Outcome(list(result.rows), failure, timing, self._is_leaving, is_unfinished)


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


def _torch_device(ids: Sequence[Any], cuda_visible_devices: str, devices: int | None) -> str:
    """Return torch's device of an actor.

    ids: GPUs that Ray assigned; cuda_visible_devices: the variable of that name; devices: number of GPUs that
    the actor requested.

    Raises:
        SweepError: the actor would see other GPUs than its own, or another number than it requested.
    """
    visible = [name for name in cuda_visible_devices.split(",") if name]
    if visible != [str(name) for name in ids]:
        raise SweepError(f"GPUs of this actor: Ray assigned {list(ids)}, CUDA_VISIBLE_DEVICES shows {visible}")
    if devices is not None and len(visible) != devices:
        raise SweepError(f"GPUs of this actor: CUDA_VISIBLE_DEVICES shows {visible}, expected {devices} GPUs")
    return "cuda:0"


def _free_memory() -> None:
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        # If the CUDA context is lost, the engine replaces the actor.
        with contextlib.suppress(RuntimeError):
            torch.cuda.empty_cache()
