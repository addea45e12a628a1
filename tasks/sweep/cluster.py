"""Reaching Ray: a local one of our own, or a running cluster by its address."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tasks.errors import SweepError
from tasks.sweep.environments import Environment
from tasks.sweep.jobs import Job
from tasks.sweep.placement import Needs

ROOT = Path(__file__).resolve().parents[2]  # the folder that holds the package `tasks`
NAMESPACE = "tsfm-lens-local-{}"  # marks a Ray of our own, whose workers have our environment for so many threads
OBJECT_STORE_MB = 256  # rows only pass through it; bulk data goes from worker to store
PROBE_S = 5.0
PYTHON_VARIABLE = "TSFM_LENS_PYTHON"  # set by `make submit`: the python of workers, where nodes run Ray from another
START_TRIES = 3  # ray gives a node 30 s to start, which is short where training has all cores
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # ray's coming default; the present one warns
}
# glibc's, in bytes: a worker keeps what a job frees for its next one. Given back and taken again, that memory cost the
# smallest embedding jobs some thousands of page faults each, a tenth of their time (bench/embedding.py).
MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**28)}


@dataclass(frozen=True)
class Resources:
    """Where and with what a sweep runs; no part of any key."""

    address: str | None = None  # None: a Ray of our own on this machine; else "auto" or "host:port"
    actors: int | None = None  # at most so many, of all kinds together; None: what the cluster holds
    cpus: float = 1  # this and the next four: what an actor takes, see Needs
    gpus: float = 0
    custom: Mapping[str, float] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    memory_mb: int | None = None
    tasks: Mapping[str, Needs] = field(default_factory=dict)  # of actors for the jobs of these tasks, in its place
    environments: Mapping[str, Environment] = field(default_factory=dict)  # of jobs of these groups
    local_cpus: int | None = None  # of a Ray of our own; None: all
    local_gpus: int | None = None
    object_store_mb: int = OBJECT_STORE_MB  # of a Ray of our own
    node_ip: str | None = None  # of a Ray of our own, where ray guesses wrong
    max_attempts: int = 3
    job_timeout_s: float | None = None
    load_timeout_s: float | None = None
    start_timeout_s: float = 300  # without any actor coming up
    flush_seconds: float = 5
    drain_seconds: float = 20  # after SIGINT or SIGTERM; spot machines give 30 s
    notice_seconds: float = 20  # after SIGTERM to an actor: then it hands back what it does
    max_in_flight: int = 8  # an actor, where jobs are short; one where they are not
    chunk: int = 10_000  # jobs planned at once

    def __post_init__(self) -> None:
        """Raises ValueError on a value that cannot be."""
        for name in ("max_attempts", "max_in_flight", "chunk"):
            if getattr(self, name) < 1:
                raise ValueError(f"resources.{name}: got {getattr(self, name)}, expected at least 1")
        if self.actors is not None and self.actors < 1:
            raise ValueError(f"resources.actors: got {self.actors}, expected at least 1, or none for all that fit")
        _ = self.needs  # which checks itself

    @cached_property
    def needs(self) -> Needs:
        """What an actor takes where its task has no needs of its own."""
        return Needs(self.cpus, self.gpus, self.memory_mb, self.custom, self.labels)

    def of(self, task: str) -> Needs:
        """What an actor takes that does jobs of a task."""
        return self.tasks.get(task, self.needs)

    def of_job(self, job: Job) -> Needs:
        """The same, in the environment of the job's group where that has one of its own."""
        needs, own = self.of(job.task.name), self.environments.get(job.group)
        return needs if own is None else replace(needs, environment=own)


def worker_environment(threads: int, code: Path = ROOT) -> dict[str, str]:
    """Environment of the workers: our code as the driver finds it, as many threads as the actor has CPUs, MEMORY."""
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    path = dict.fromkeys([str(code), *(str(Path(p).resolve()) for p in inherited if p)])
    return {
        "PYTHONPATH": os.pathsep.join(path),
        "OMP_NUM_THREADS": str(threads),
        **MEMORY,
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": QUIET["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"],
    }


def runtime_environment(threads: int, own: Environment | None = None) -> dict[str, Any]:
    """What Ray is told of workers that it starts on a cluster's nodes, or in an environment of their own."""
    if own is not None:
        return {"env_vars": worker_environment(threads, own.code), "py_executable": str(own.python)}
    told: dict[str, Any] = {"env_vars": worker_environment(threads)}
    if python := os.environ.get(PYTHON_VARIABLE):
        told["py_executable"] = python
    return told


@contextmanager
def connect(resources: Resources) -> Iterator[None]:
    """Ray, initialised. One that was already is used and left as it was; otherwise it is shut down at the end.

    Raises SweepError when the address does not answer.
    """
    import ray

    if ray.is_initialized():
        yield
        return
    try:
        _start(resources)
        yield
    finally:
        ray.shutdown()


def actor_options(needs: Needs) -> dict[str, Any]:
    """Options of an actor: what it takes, and its environment where it would not have it anyway."""
    import ray

    options: dict[str, Any] = {"num_cpus": needs.cpus, "num_gpus": needs.gpus}
    if needs.custom:
        options["resources"] = dict(needs.custom)
    if needs.labels:
        options["label_selector"] = dict(needs.labels)
    if needs.memory_mb:
        options["memory"] = needs.memory_mb * 2**20
    own = needs.environment
    if own is not None or ray.get_runtime_context().namespace != NAMESPACE.format(needs.threads):
        options["runtime_env"] = runtime_environment(needs.threads, own)
    return options


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """The variables set in this process, and in those that it starts; after it, as it was."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            if name in before:
                os.environ[name] = before[name]
            else:
                os.environ.pop(name, None)


def _probe(address: str) -> None:
    """Raise OSError at once where nothing listens; ray.init was still trying after 280 s."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "://" not in address:
        socket.create_connection((host, int(port)), timeout=PROBE_S).close()


def _start(resources: Resources) -> None:
    import psutil
    import ray

    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    if resources.address is not None:
        try:
            _probe(resources.address)
            with environment({"RAY_OVERRIDE_JOB_RUNTIME_ENV": "1"}):  # of a submitted job, whose variables we inherit
                ray.init(resources.address, runtime_env=runtime_environment(resources.needs.threads), **quiet)
        except (OSError, RuntimeError, ValueError) as error:
            raise SweepError(
                f"resources.address: got {resources.address!r}, where no Ray cluster answers that this one can join "
                f"({error}); start one with `ray start --head`, or leave the address out to use this machine"
            ) from error
        return
    with environment({**QUIET, **worker_environment(resources.needs.threads)}):
        for left in reversed(range(START_TRIES)):
            others = set(psutil.Process().children())
            try:
                _start_local(resources, quiet)
                break
            except Exception as error:  # ray raises no subclass here
                if left == 0 or "timed out during startup" not in str(error):
                    raise
            ray.shutdown()
            for child in set(psutil.Process().children()) - others:
                child.kill()  # ray leaves the half-started node behind
                child.wait()


def _start_local(resources: Resources, quiet: Mapping[str, Any]) -> None:
    """A Ray of our own. Workers inherit the raylet's environment, which is the present one.

    A runtime_env would say the same, but its workers are not prestarted: the first actor took 5.4 s against 1.9 s.
    """
    import ray

    ray.init(
        "local",  # without it ray joins what `ray start` left on this machine, and refuses what is said below
        namespace=NAMESPACE.format(resources.needs.threads),
        num_cpus=resources.local_cpus,
        num_gpus=resources.local_gpus,
        include_dashboard=False,
        object_store_memory=resources.object_store_mb * 2**20,
        _node_ip_address=resources.node_ip,
        **quiet,
    )
