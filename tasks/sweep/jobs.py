"""A unit of work and what it answers; knows neither Ray nor what is done."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

_JSON = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True)
class Task:
    """A kind of job: which function does it, which function loads what many jobs share.

    entry: "module:function", called as entry(job, data, model) and answering a Result.
    loader: "module:function", called as loader(job) where the job's group differs from the actor's last; or None.
    table: the store's table that its rows belong to; by default that of its name.
    """

    name: str
    version: int
    entry: str
    loader: str | None = None
    table: str = ""

    @cached_property
    def json(self) -> str:
        """What of it enters a job's key, as the last members of a JSON object: the same for all of its jobs."""
        return f'"task":{_JSON.encode(self.name)},"version":{self.version}}}'


@dataclass(frozen=True)
class Job:
    """One unit of work. `spec` is plain data; `inputs` maps what is read to its fingerprint.

    Jobs of one loader and group, and of the same inputs "model:...", share a loaded model; the group is no part of the
    key. Where other options load one model differently, their groups must differ.
    """

    task: Task
    spec: Mapping[str, Any]
    inputs: Mapping[str, str] = field(default_factory=dict)
    group: str = ""

    @cached_property
    def key(self) -> str:
        """SHA-256 (hex) of task name and version, spec and inputs in canonical JSON."""
        inputs = _JSON.encode(dict(self.inputs)) if self.inputs else "{}"
        text = f'{{"inputs":{inputs},"spec":{self.spec_json},{self.task.json}'
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def spec_json(self) -> str:
        """The spec in canonical JSON."""
        return _JSON.encode(dict(self.spec))

    def __getstate__(self) -> dict[str, Any]:
        """Without the JSON, which is made again where it is wanted."""
        return {name: value for name, value in self.__dict__.items() if name != "spec_json"}

    @property
    def spec_seed(self) -> int:
        """Seed of what must stay the same when an input changes, such as which rows of it are looked at."""
        return int.from_bytes(hashlib.sha256(self.spec_json.encode()).digest()[:8], "big") >> 1

    @property
    def seed(self) -> int:
        """Seed of everything random in this job: the first 63 bits of its key."""
        return int(self.key[:16], 16) >> 1


@dataclass(frozen=True)
class Result:
    """What an entry answers: rows for the task's table, and at most one dump (tables of one schema, a row group each).

    A job without rows would never be found done, so there is at least one; the dump's path, rows, bytes and
    fingerprint are added to the first row by the engine.
    """

    rows: Sequence[Mapping[str, Any]]
    dump: Iterable[pa.Table] | None = None
    tokens: int | None = None  # tokens that were worked on, for the timing's tokens_per_s


@dataclass(frozen=True)
class Place:
    """Where an entry or loader runs; no part of any key but by the fingerprint of a model with an environment.

    So no result may depend on it beyond rounding, but for how a training that is shared weighs missing steps.
    """

    device: str = "cpu"  # for torch: "cpu" or "cuda:0"
    divisor: int = 1  # doubled each time the job has run out of memory
    environment: str = ""  # digest of the packages that the process runs with; "": the driver's. See Environment
    processes: int = 1  # that a job may share its work among: one a GPU of the actor, or on its CPUs

    def batch(self, size: int) -> int:
        """The batch size to use where `size` is the usual one."""
        return max(1, size // self.divisor)


PLACE: ContextVar[Place] = ContextVar("PLACE")


def place() -> Place:
    """Device and batch limit of the running job; `Place()` outside a sweep."""
    return PLACE.get(Place())


WATCHER: ContextVar[Callable[[Mapping[str, Any]], None]] = ContextVar("WATCHER")


def report(row: Mapping[str, Any]) -> None:
    """Say how far the running job is, after its state was saved; whoever watches may end it here. Else nothing.

    A job that goes on from a saved state first says all again, in order: a search that was killed may not have heard.
    """
    if watcher := WATCHER.get(None):
        watcher(row)


class Port(NamedTuple):
    """The store's side of a sweep: plain callables, the last three picklable because workers call them."""

    missing: Callable[[Sequence[str]], Sequence[str]]  # keys -> those not stored, in the same order
    append: Callable[[Sequence[Mapping[str, Any]]], None]  # records (see records.record) -> an atomic part
    check: Callable[[Mapping[str, str]], None]  # inputs -> None, or raises when a fingerprint differs
    read: Callable[[Job], Any]  # job -> the data its entry wants
    write_dump: Callable[[Job, Iterable[pa.Table]], Mapping[str, Any]]  # -> path, rows, bytes, fingerprint
