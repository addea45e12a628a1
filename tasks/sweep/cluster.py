"""Connection to Ray: a local instance of our own, or a running cluster by its address."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tasks.sweep.placement import ActorResources
from tasks.sweep.signals import kill_on_signal
from tsfmscope.errors import SweepError

# Folder that contains the package `tsfmscope`.
ROOT = Path(__file__).absolute().parents[3]
# Namespace of a local Ray instance that the sweep started. Its workers already have our
# environment, for this number of threads.
NAMESPACE = "tsfmscope-local-{}"
# Small, because only rows pass through it; bulk data goes from the worker to the store.
OBJECT_STORE_MB = 256
PROBE_S = 5.0
# Variable with the Python of the workers, for nodes that run Ray from another Python; `make submit` sets it.
PYTHON_VARIABLE = "TSFMSCOPE_PYTHON"
# Number of attempts to start a local Ray. Ray gives a node 30 s to start, which is too short when a
# training uses all cores.
START_TRIES = 3
# Characters of the folder that contains a local Ray's folder. The path of a socket has at most 107
# bytes, of which Ray's names and ours take 80.
LONGEST_TEMPORARY = 27
# Ray's variable, by which a node listens on the loopback interface only.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray's future default; Ray warns while it is unset.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
# glibc's settings, in bytes: a worker keeps the memory that a job frees for its next job. Without
# them, freeing and allocating that memory caused some thousands of page faults in each of the
# smallest embedding jobs, a tenth of their time (bench/embedding.py).
MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**28)}


@dataclass(frozen=True)
class Resources:
    """Resources and limits of a sweep; no part of any job key."""

    # None: a local Ray instance on this machine; else "auto" or "host:port".
    address: str | None = None
    # Largest number of actors of all kinds together; None: as many as the cluster has resources
    # for.
    actors: int | None = None
    # Resources of one actor, here and in the next four fields; see ActorResources.
    cpus: float = 1
    gpus: float = 0
    custom: Mapping[str, float] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    memory_mb: int | None = None
    # Resources of actors for the jobs of these tasks, instead of the default above.
    tasks: Mapping[str, ActorResources] = field(default_factory=dict)
    # CPUs and GPUs of a local Ray instance; None: all.
    local_cpus: int | None = None
    local_gpus: int | None = None
    # Object store of a local Ray instance.
    object_store_mb: int = OBJECT_STORE_MB
    max_attempts: int = 3
    job_timeout_s: float | None = None
    load_timeout_s: float | None = None
    # Seconds after which the sweep fails if no actor has started.
    start_timeout_s: float = 300
    flush_seconds: float = 5
    # Seconds of draining after SIGINT or SIGTERM; spot machines give 30 s.
    drain_seconds: float = 20
    # Seconds after SIGTERM to an actor, until it hands back its job.
    notice_seconds: float = 20
    # Largest number of calls in flight per actor for short jobs; long jobs have one.
    max_in_flight: int = 8
    # Number of jobs planned at once.
    chunk: int = 10_000

    def __post_init__(self) -> None:
        """Raise ValueError for an invalid value."""
        for name in ("max_attempts", "max_in_flight", "chunk"):
            if getattr(self, name) < 1:
                raise ValueError(f"resources.{name}: got {getattr(self, name)}, expected at least 1")
        if self.actors is not None and self.actors < 1:
            raise ValueError(f"resources.actors: got {self.actors}, expected at least 1, or none for all that fit")
        # ActorResources checks its values when it is built.
        _ = self.needs

    @cached_property
    def needs(self) -> ActorResources:
        """Return the resources of an actor whose task is not in `tasks`."""
        return ActorResources(self.cpus, self.gpus, self.memory_mb, self.custom, self.labels)

    def for_task(self, task: str) -> ActorResources:
        """Return the resources of an actor that runs jobs of a task."""
        return self.tasks.get(task, self.needs)


def worker_environment(threads: int) -> dict[str, str]:
    """Return the environment variables of the workers: code path, threads, memory and Ray's settings.

    threads: number of CPUs of the actor.
    """
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    path = dict.fromkeys([str(ROOT), *(str(Path(p).resolve()) for p in inherited if p)])
    return {
        "PYTHONPATH": os.pathsep.join(path),
        "OMP_NUM_THREADS": str(threads),
        **MEMORY,
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": QUIET["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"],
    }


def runtime_environment(threads: int) -> dict[str, Any]:
    """Return Ray's runtime environment for workers on a cluster, or with another number of threads."""
    options: dict[str, Any] = {"env_vars": worker_environment(threads)}
    if python := os.environ.get(PYTHON_VARIABLE):
        options["py_executable"] = python
    return options


@contextmanager
def connect(resources: Resources) -> Iterator[None]:
    """Connect to Ray. An existing connection is used and kept open; a new one is shut down at the end.

    Raises:
        SweepError: the address does not answer, or processes of this machine cannot reach each other.
    """
    import ray

    if ray.is_initialized():
        yield
        return
    with _private_folder() as folder:
        try:
            with kill_on_signal():
                _start(resources, folder)
            yield
        finally:
            ray.shutdown()


def actor_options(needs: ActorResources) -> dict[str, Any]:
    """Return Ray's options of an actor: its resources, and a runtime environment where it needs one."""
    import ray

    options: dict[str, Any] = {"num_cpus": needs.cpus, "num_gpus": needs.gpus}
    if needs.custom:
        options["resources"] = dict(needs.custom)
    if needs.labels:
        options["label_selector"] = dict(needs.labels)
    if needs.memory_mb:
        options["memory"] = needs.memory_mb * 2**20
    if ray.get_runtime_context().namespace != NAMESPACE.format(needs.threads):
        options["runtime_env"] = runtime_environment(needs.threads)
    return options


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables in this process, and so in processes that it starts; restore them at the end."""
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


def _check_loopback() -> None:
    """Raise SweepError at once if this machine's processes cannot reach each other; Ray tries for minutes."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=PROBE_S).close()
    except OSError as error:
        raise SweepError(
            f"Ray's processes communicate over 127.0.0.1, which cannot be reached on this machine ({error.strerror}); "
            "bring the loopback interface up: `ip link set lo up`, or give the container a network"
        ) from error


def _start(resources: Resources, folder: Path) -> None:
    import psutil
    import ray

    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    if resources.address is not None:
        if resources.address.startswith("ray://"):
            raise SweepError(
                f"resources.address: got {resources.address!r}, expected HOST:PORT or auto: stages write where the "
                "driver is, so it runs on a node of the cluster (docs/cluster.md)"
            )
        try:
            # ray.init was still trying after 280 s where nothing listens.
            host, _, port = resources.address.rpartition(":")
            if host and port.isdigit():
                socket.create_connection((host, int(port)), timeout=PROBE_S).close()
            # Needed inside a submitted job, whose variables this process inherits.
            with environment({"RAY_OVERRIDE_JOB_RUNTIME_ENV": "1"}):
                ray.init(resources.address, runtime_env=runtime_environment(resources.needs.threads), **quiet)
        except (OSError, RuntimeError, ValueError) as error:
            raise SweepError(
                f"resources.address: got {resources.address!r}, where no Ray cluster answers ({error}); start "
                "one with `ray start --head`, or leave the address out to use this machine"
            ) from error
        return
    _check_loopback()
    with environment({**QUIET, **LOOPBACK, **worker_environment(resources.needs.threads)}), _on_loopback():
        for tries_left in reversed(range(START_TRIES)):
            before = set(psutil.Process().children())
            try:
                _start_local(resources, folder, quiet)
                break
            # Ray raises a plain Exception here, no subclass.
            except Exception as error:
                if tries_left == 0 or "timed out during startup" not in str(error):
                    raise
            ray.shutdown()
            for child in set(psutil.Process().children()) - before:
                # Ray leaves processes of the half-started node behind.
                child.kill()
                child.wait()


@contextmanager
def _private_folder() -> Iterator[Path]:
    """Make a folder of this user alone for the files of a local Ray, and delete it at the end."""
    parent = tempfile.gettempdir()
    parent = parent if len(os.fsencode(parent)) <= LONGEST_TEMPORARY else "/tmp"
    with tempfile.TemporaryDirectory(prefix="ray-", dir=parent, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Let the driver's part of Ray listen on the loopback interface only.

    Ray reads the variable of LOOPBACK when it is imported, which may have been long ago. It replaces an address
    127.0.0.1 that it is given by that of another interface.
    """
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def _start_local(resources: Resources, folder: Path, quiet: Mapping[str, Any]) -> None:
    """Start a local Ray instance. Its workers inherit the environment of this process through the raylet.

    folder: a folder of this user alone. Ray makes its own folders writable for everyone, so they are inside.

    A runtime_env would have the same effect, but its workers are not prestarted: the first actor took 5.4 s
    instead of 1.9 s.
    """
    import ray

    # Ray writes its token here, at first readable for everyone who can enter the folder.
    token = Path.home() / ".ray" / "auth_token"
    token.parent.mkdir(parents=True, exist_ok=True)
    token.parent.chmod(0o700)
    ray.init(
        # Without "local", Ray joins an instance that `ray start` left on this machine, and then
        # refuses the arguments below.
        "local",
        namespace=NAMESPACE.format(resources.needs.threads),
        num_cpus=resources.local_cpus,
        num_gpus=resources.local_gpus,
        include_dashboard=False,
        object_store_memory=resources.object_store_mb * 2**20,
        _temp_dir=str(folder / "ray"),
        **quiet,
    )
    if token.exists():
        token.chmod(0o600)
