"""Unit of work and its result; independent of Ray and of the work itself."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

# Columns that name a cell: a model on a data set under one condition. Every result row begins with them.
IDENTITY = ("model", "base_model", "size_parameter", "size_rule", "dataset", "condition", "context", "noise")
# Columns that name a layer of the cell's hidden states.
LAYER = ("stack", "layer", "normed")

_JSON = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True)
class Task:
    """A kind of job: the function that runs it, and the function that loads what many jobs share.

    entry: "module:function", called as entry(job, data, model); returns a Result. loader: "module:function",
    called as loader(job) where the actor has not loaded the job's group yet; or None. table: the store's
    table for its rows; by default the task's name.
    """

    name: str
    version: int
    entry: str
    loader: str | None = None
    table: str = ""

    @cached_property
    def json(self) -> str:
        """Return the task's part of a job's key: the last members of a JSON object, equal in all jobs."""
        return f'"task":{_JSON.encode(self.name)},"version":{self.version}}}'


@dataclass(frozen=True)
class Job:
    """One unit of work. `spec` is plain data; `inputs` maps each input to its fingerprint.

    Jobs with the same loader, group and inputs "model:..." share a loaded model. The group is no part of the
    key. If options change how one model is loaded, the groups must differ.
    """

    task: Task
    spec: Mapping[str, Any]
    inputs: Mapping[str, str] = field(default_factory=dict)
    group: str = ""

    @cached_property
    def key(self) -> str:
        """Return the SHA-256 (hex) of task name and version, spec and inputs in canonical JSON."""
        inputs = _JSON.encode(dict(self.inputs)) if self.inputs else "{}"
        text = f'{{"inputs":{inputs},"spec":{self.spec_json},{self.task.json}'
        # Interned, because the driver has several sets of keys: a million strings take 128 MB.
        return sys.intern(hashlib.sha256(text.encode()).hexdigest())

    @cached_property
    def spec_json(self) -> str:
        """Return the spec in canonical JSON."""
        return _JSON.encode(dict(self.spec))

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the spec's JSON, which is computed again when needed."""
        return {name: value for name, value in self.__dict__.items() if name != "spec_json"}

    @property
    def spec_seed(self) -> int:
        """Return a seed that depends on the spec alone.

        It is for choices that must not change when an input changes, such as which rows of it are sampled.
        """
        return int.from_bytes(hashlib.sha256(self.spec_json.encode()).digest()[:8], "big") >> 1

    @property
    def seed(self) -> int:
        """Return the seed of everything random in this job: the first 63 bits of its key."""
        return int(self.key[:16], 16) >> 1


@dataclass(frozen=True)
class Result:
    """Return value of an entry: rows for the task's table, and at most one activation file.

    There must be at least one row, because a job without rows would never count as done. dump: tables of one
    schema, each of which becomes a row group; the engine adds the file's path, rows, bytes and fingerprint to
    the first row.
    """

    rows: Sequence[Mapping[str, Any]]
    dump: Iterable[pa.Table] | None = None
    # Number of processed tokens, for the timing's tokens_per_s.
    tokens: int | None = None


@dataclass(frozen=True)
class ExecutionContext:
    """Execution context of an entry or loader.

    It is no part of any key, so no result may depend on it beyond rounding. The one exception is a training
    that several processes share: its loss weighs missing steps differently.
    """

    # Device for torch: "cpu" or "cuda:0".
    device: str = "cpu"
    # Divisor of the batch size, doubled each time the job has run out of memory.
    divisor: int = 1
    # Number of processes that a job may use: one per GPU of the actor, or on its CPUs.
    processes: int = 1

    def batch(self, size: int) -> int:
        """Return the batch size to use in place of `size`, the default."""
        return max(1, size // self.divisor)


EXECUTION_CONTEXT: ContextVar[ExecutionContext] = ContextVar("EXECUTION_CONTEXT")


def current_context() -> ExecutionContext:
    """Return the execution context of the running job; the default one outside a sweep."""
    return EXECUTION_CONTEXT.get(ExecutionContext())


WATCHER: ContextVar[Callable[[Mapping[str, Any]], None]] = ContextVar("WATCHER")


def report(row: Mapping[str, Any]) -> None:
    """Report the running job's progress, after its state was saved. Without a watcher nothing happens.

    The watcher may end the job here. A job that continues from a saved state first reports all earlier rows
    again, in order, because a search that was killed may not have received them.
    """
    if watcher := WATCHER.get(None):
        watcher(row)


class StoreCallbacks(NamedTuple):
    """The store's callbacks for a sweep. The last three are picklable, because workers call them."""

    # keys -> keys that are not stored, in the same order
    missing: Callable[[Sequence[str]], Sequence[str]]
    # records (see records.record) -> None; stores them as one atomic part
    append: Callable[[Sequence[Mapping[str, Any]]], None]
    # inputs -> None; raises if a fingerprint differs
    check: Callable[[Mapping[str, str]], None]
    # job -> the data for its entry
    read: Callable[[Job], Any]
    # job, tables -> path, rows, bytes and fingerprint of the written file
    write_dump: Callable[[Job, Iterable[pa.Table]], Mapping[str, Any]]
