"""What runs in a worker process: loads a model once, does jobs with it, answers rows or a failure, never raises."""

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

from tasks import reused
from tasks.errors import SweepError
from tasks.feeding import used
from tasks.sweep.jobs import PLACE, Job, Place, Port, Result
from tasks.sweep.policy import Failure

LONG_S = 1.0  # a call that takes longer was no short one: those behind it may have a better place
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class Site:
    """Where an actor turned out to run."""

    actor: str
    node: str
    device: str  # "cpu", or "cuda:<id on the node>"
    node_id: str = ""  # ray's, in hex
    unfit: str = ""  # why no job can run there, where that is so


@dataclass(frozen=True)
class Setting:
    """What an actor's process is fitted to."""

    threads: int
    folder: str  # the driver's
    devices: int | None = None  # GPUs that it should see; None: as many as Ray assigns
    notice_seconds: float = 20  # from SIGTERM until what runs is handed back
    environment: str = ""  # digest of its packages, where they are its own
    prefix: str | None = None  # sys.prefix of the Python that has them
    processes: int = 1  # that a job may share its work among


@dataclass(frozen=True)
class Outcome:
    """What became of one job or load: rows, or a failure."""

    rows: Sequence[Mapping[str, Any]]
    failure: Failure | None
    timing: Mapping[str, Any]
    leaving: bool = False  # the actor was told to end: give it no more
    undone: bool = False  # for want of time, or of its model as it was loaded: neither rows nor a failure


class Undone(BaseException):
    """Raised in a job that runs when its actor has to go; no Exception, so that jobs let it through."""


class Worker:
    """One actor. Knows no Ray but for `start`, so the rest runs in any process."""

    def __init__(self, name: str, port: Port, setting: Setting) -> None:
        self._name = name
        self._port = port
        self._setting = setting
        self._site = Site(name, "", "cpu")
        self._torch_device = "cpu"
        self._model: Any = None
        self._load_seconds = 0.0
        self._last_seconds = 0.0  # of its last call that did jobs
        self._leaving = self._working = self._spoilt = False

    def start(self) -> Site:
        """Fit the process to the driver's folder, and to what Ray has assigned to it: threads and device.

        A node without the folder, or that starts another Python, is unfit. Raises SweepError on a wrong device.
        """
        import ray
        import ray.util

        address, node_id = ray.util.get_node_ip_address(), ray.get_runtime_context().get_node_id()
        unfit = ""
        try:
            os.chdir(self._setting.folder)  # jobs name files relative to it
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
            return Site(self._name, address, "", node_id, unfit)
        for variable in THREAD_VARIABLES:
            os.environ[variable] = str(self._setting.threads)
        ids = ray.get_gpu_ids()
        if ids:
            self._torch_device = _torch_device(ids, os.environ.get("CUDA_VISIBLE_DEVICES", ""), self._setting.devices)
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""  # ray leaves all GPUs visible to an actor that asked for none
        device = f"cuda:{ids[0]}" if ids else "cpu"
        self._site = Site(self._name, address, device, node_id)
        self._heed_notice()
        return self._site

    def _heed_notice(self) -> None:
        """On SIGTERM, go on with the job for a while, then hand it back; Ray's handler would fail it at once."""
        if threading.current_thread() is not threading.main_thread():
            return  # a trial of Ray Tune, which sees to its own end

        def noticed(signum: int, frame: Any) -> None:
            self._leaving = True
            signal.setitimer(signal.ITIMER_REAL, self._setting.notice_seconds)

        def time_is_up(signum: int, frame: Any) -> None:
            if self._working:
                raise Undone

        signal.signal(signal.SIGTERM, noticed)
        signal.signal(signal.SIGALRM, time_is_up)

    def load(self, job: Job) -> Outcome:
        """Load what the job's group shares, in place of what was loaded before."""
        if self._leaving:
            return self._unbegun()
        self._model, self._spoilt = None, False
        gc.collect()  # two models at once may not fit
        began = time.monotonic()
        outcome = self._guarded(lambda: self._load(job), self._place())
        self._load_seconds = time.monotonic() - began
        return outcome

    def run(self, job: Job, divisor: int) -> Outcome:
        """Do one job with what was loaded last, unless a job that failed in passing may have left it half changed."""
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
        """Pickled outcomes of jobs (and their divisors) done one after the other, until one fails or the time is over.

        The jobs left over are as they were. An answer that cannot be pickled is a failure of its job alone.
        queued: behind another call, which was thought to be short; if it was not, no job of these is begun.
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
        except Exception:  # whatever a row's own way of being pickled raises
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
        info = used(partial(self._port.write_dump, job), result.dump)
        return Result(rows=[{**result.rows[0], **info}, *result.rows[1:]], tokens=result.tokens)

    def _place(self, divisor: int = 1) -> Place:
        return Place(self._torch_device, divisor, self._setting.environment, self._setting.processes)

    def _unbegun(self) -> Outcome:
        return Outcome([], None, {}, leaving=True, undone=True)

    def _guarded(self, work: Callable[[], Result], place: Place) -> Outcome:
        started, began = datetime.now(UTC), time.monotonic()
        result, failure, undone = Result(rows=()), None, False
        token = PLACE.set(place)
        try:
            self._working = True
            result = work()
            self._working = False
        except Undone:
            undone = True
        except (Exception, SystemExit) as error:  # sys.exit in a job would end the actor
            self._working = False
            failure = Failure.of(error)
        finally:
            self._working = False
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
        return Outcome(list(result.rows), failure, timing, self._leaving, undone)


def _picklable(outcome: Outcome) -> Outcome:
    try:
        pickle.dumps(outcome)
    except Exception as error:
        return Outcome([], Failure.of(error), outcome.timing)
    return outcome


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


def _torch_device(ids: Sequence[Any], shown: str, devices: int | None) -> str:
    """Torch's device of an actor that Ray assigned these GPUs and whose environment shows those.

    Raises SweepError where it would see other GPUs than its own, or more than it asked for.
    """
    visible = [one for one in shown.split(",") if one]
    if visible != [str(one) for one in ids]:
        raise SweepError(f"GPUs of this actor: Ray assigned {list(ids)}, CUDA_VISIBLE_DEVICES shows {visible}")
    if devices is not None and len(visible) != devices:
        raise SweepError(f"GPUs of this actor: it shows {visible}, expected {devices}")
    return "cuda:0"


def _limit_threads(threads: int) -> None:
    """For libraries that were loaded before the environment variables were set."""
    import threadpoolctl

    threadpoolctl.threadpool_limits(threads)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(threads)


def _free_memory() -> None:
    gc.collect()
    reused.drop()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        with contextlib.suppress(RuntimeError):  # a lost CUDA context is replaced with its actor
            torch.cuda.empty_cache()
