"""Policy for failures: a pure function decides what to do, and is tested without a cluster."""

from __future__ import annotations

import errno
import traceback
from dataclasses import dataclass
from enum import Enum

from tsfmscope.errors import SweepError

# Class names anywhere in an error's ancestry; names, because ray and torch are not imported here.
TRANSIENT = frozenset(
    {
        # The actor or its node died, or cannot be reached.
        "RayActorError",
        "WorkerCrashedError",
        "NodeDiedError",
        "LocalRayletDiedError",
        "ObjectLostError",
        # torch raises it for the GPU, Ray for the host.
        "OutOfMemoryError",
        "MemoryError",
        "TimeoutError",
        "ConnectionError",
        # torch: the CUDA context of the process is lost.
        "AcceleratorError",
    }
)
FATAL = frozenset({"SweepError", "OutOfDiskError"})
# Error numbers after which no further job could be stored.
FATAL_ERRNO = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
# Largest divisor of a batch: if memory is too small for this part of a batch, it is too small for any part.
LAST_DIVISOR = 64
# Texts of CUDA's RuntimeError, and of Ray's message about a killed worker.
MEMORY_WORDS = ("out of memory", "low on memory", "(oom)")


class Action(Enum):
    """Next action of the engine."""

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
    # Whether the error is, or was raised from, an ImportError.
    lacks_package: bool = False

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Build the failure of an exception; Ray's wrapper of a worker's exception is removed first."""
        cause = getattr(error, "cause", None)
        if type(error).__name__.startswith("RayTaskError") and isinstance(cause, BaseException):
            error = cause
        root: BaseException | None = error
        while root is not None and not isinstance(root, ImportError):
            root = root.__cause__
        return cls(
            type=type(error).__name__,
            message=str(error),
            traceback="".join(traceback.format_exception(error)),
            ancestry=frozenset(kind.__name__ for kind in type(error).__mro__),
            errno=error.errno if isinstance(error, OSError) else None,
            lacks_package=root is not None,
        )

    @property
    def of_memory(self) -> bool:
        """Return whether the error was a lack of memory, on the host or the GPU."""
        text = self.message.lower()
        return bool(self.ancestry & {"OutOfMemoryError", "MemoryError"}) or any(w in text for w in MEMORY_WORDS)

    @property
    def transient(self) -> bool:
        """Return whether the same job may succeed at another time or on another actor."""
        return bool(self.ancestry & TRANSIENT) or self.of_memory

    @property
    def of_machine(self) -> bool:
        """Return whether the next run should try the job again.

        True for transient failures, and for a missing package: it stays missing during a run, but may be
        installed before the next one.
        """
        return self.transient or self.lacks_package


@dataclass(frozen=True)
class Decision:
    """Action after a failure, and changes for a retry: half the batch, a new actor."""

    action: Action
    halve: bool = False
    new_actor: bool = False


def decide(failure: Failure, attempts: int, max_attempts: int, divisor: int = LAST_DIVISOR) -> Decision:
    """Decide what to do after the `attempts`-th attempt of a job or a load has failed.

    - STOP: fatal failures (no disk space, code missing on the workers).
    - RETRY: transient failures while attempts < max_attempts, with half the batch if memory was short. If
      memory was short inside the job, so that the actor survived, retries continue until the divisor is
      LAST_DIVISOR.
    - RECORD: all other failures, and transient ones without a retry left.

    divisor: divisor of the batch size in the failed attempt.
    """
    new_actor = "AcceleratorError" in failure.ancestry
    if failure.ancestry & FATAL or failure.errno in FATAL_ERRNO:
        return Decision(Action.STOP)
    may_halve = failure.of_memory and "RayError" not in failure.ancestry and divisor < LAST_DIVISOR
    if failure.transient and (attempts < max_attempts or may_halve):
        return Decision(Action.RETRY, halve=failure.of_memory, new_actor=new_actor)
    return Decision(Action.RECORD, new_actor=new_actor)


def fatal(job: str, failure: Failure) -> SweepError:
    """Build the error that ends a sweep after the policy decided STOP."""
    error = SweepError(
        f"{job}: {failure.type}: {failure.message}\n"
        "Every further job would fail the same way: fix this and run the same command again"
    )
    error.add_note(f"On the worker:\n{failure.traceback}")
    return error
