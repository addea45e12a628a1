"""What to do on a failure: a pure function, tested without a cluster."""

from __future__ import annotations

import errno
import traceback
from dataclasses import dataclass
from enum import Enum

from tasks.errors import SweepError

TRANSIENT = frozenset(  # class names anywhere in an error's ancestry; by name, as ray and torch are not imported here
    {
        "RayActorError",  # the actor or its node died, or cannot be reached
        "WorkerCrashedError",
        "NodeDiedError",
        "LocalRayletDiedError",
        "ObjectLostError",
        "OutOfMemoryError",  # torch's on the GPU, ray's on the host
        "MemoryError",
        "TimeoutError",
        "ConnectionError",
        "AcceleratorError",  # torch: the CUDA context of the process is lost
        "EnvironmentFailed",  # an index that does not answer, packages of which a version appears
        "PlaceError",  # store.errors: an object store does not answer, which it may do again
    }
)
FATAL = frozenset({"SweepError", "OutOfDiskError"})
FATAL_ERRNO = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})  # no further job could be stored
LAST_DIVISOR = 64  # of a batch; where memory lacks for so small a part of it, it would for any
MEMORY_WORDS = ("out of memory", "low on memory", "(oom)")  # CUDA's RuntimeError; ray's account of a killed worker


class Action(Enum):
    """What the engine does next."""

    RETRY = "retry"
    RECORD = "record"
    STOP = "stop"


@dataclass(frozen=True)
class Failure:
    """One error as plain text, so that it crosses process borders whatever its class was."""

    type: str
    message: str
    traceback: str
    ancestry: frozenset[str]
    errno: int | None = None
    lacks_package: bool = False  # came of an ImportError, whatever it was put as

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """The failure that an exception stands for; ray's wrapper of a worker's exception is taken off."""
        cause = getattr(error, "cause", None)
        if type(error).__name__.startswith("RayTaskError") and isinstance(cause, BaseException):
            error = cause
        return cls(
            type=type(error).__name__,
            message=str(error),
            traceback="".join(traceback.format_exception(error)),
            ancestry=frozenset(kind.__name__ for kind in type(error).__mro__),
            errno=error.errno if isinstance(error, OSError) else None,
            lacks_package=_of_import(error),
        )

    @property
    def of_memory(self) -> bool:
        """Whether memory, on the host or the GPU, was what lacked."""
        text = self.message.lower()
        return bool(self.ancestry & {"OutOfMemoryError", "MemoryError"}) or any(w in text for w in MEMORY_WORDS)

    @property
    def transient(self) -> bool:
        """Whether the same job may succeed at another time or place."""
        return bool(self.ancestry & TRANSIENT) or self.of_memory

    @property
    def of_machine(self) -> bool:
        """Whether the next run tries again by itself: passing, or mended by installing what within a run stays away."""
        return self.transient or self.lacks_package


def _of_import(error: BaseException | None) -> bool:
    """Whether an ImportError is the error or what it was raised from."""
    while error is not None and not isinstance(error, ImportError):
        error = error.__cause__
    return error is not None


@dataclass(frozen=True)
class Decision:
    """What to do, and how a retry differs: with half the batch, on a new actor."""

    action: Action
    halve: bool = False
    new_actor: bool = False


def decide(failure: Failure, attempts: int, max_attempts: int, divisor: int = LAST_DIVISOR) -> Decision:
    """What to do after a job's or a load's `attempts`-th attempt has failed, with the batch over `divisor`.

    Fatal (no disk space, code missing on the workers): STOP. Transient: RETRY while attempts < max_attempts, with
    half the batch where memory lacked; where it lacked within the job, which the actor has survived, until the batch
    is a LAST_DIVISOR-th. All else, and transient ones used up: RECORD.
    """
    if attempts < 1 or max_attempts < 1:
        raise ValueError(f"attempts: got {attempts} of {max_attempts}, expected both at least 1")
    new_actor = "AcceleratorError" in failure.ancestry
    if failure.ancestry & FATAL or failure.errno in FATAL_ERRNO:
        return Decision(Action.STOP)
    may_halve = failure.of_memory and "RayError" not in failure.ancestry and divisor < LAST_DIVISOR
    if failure.transient and (attempts < max_attempts or may_halve):
        return Decision(Action.RETRY, halve=failure.of_memory, new_actor=new_actor)
    return Decision(Action.RECORD, new_actor=new_actor)


def fatal(job: str, failure: Failure) -> SweepError:
    """What ends a sweep after the policy said STOP."""
    error = SweepError(
        f"{job}: {failure.type}: {failure.message}\n"
        "Every further job would fail the same way: mend this and run the same command again"
    )
    error.add_note(f"On the worker:\n{failure.traceback}")
    return error
