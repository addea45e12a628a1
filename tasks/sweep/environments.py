"""Python environments for jobs whose packages conflict with ours.

uv builds each environment once; Ray starts its workers through `py_executable`. Ray's own plugin
(`runtime_env={"uv": …}`) was measured and is not used: docs/environments.md.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tasks.sweep.policy import Failure
from tsfmscope.errors import EnvironmentFailed

# Folder that contains our package: a checkout, or all of site-packages.
ROOT = Path(__file__).absolute().parents[3]
OURS = ("tsfmscope",)
# Folder of the environments, inside the driver's folder, which all nodes share.
FOLDER = ".environments"
# Packages that every worker imports before it runs a job: for Ray, the sweep, and the store's
# readers and writers.
WORKER_PACKAGES = ("blake3", "numpy", "pyarrow", "pydantic", "pyyaml", "threadpoolctl")
# File that is written last into an environment.
READY = ".ready"
WHEELS_ONLY = ("--only-binary", ":all:")
# Seconds to wait until half-built environments are removed.
CLOSE_S = 5
# Number of last lines of uv's output that an error repeats.
OUTPUT_LINES = 12
CHECK = "import ray, sys; sys.exit(ray.__version__ != sys.argv[1])"


@dataclass(frozen=True)
class Environment:
    """Python packages under the name that params give them."""

    name: str
    # Requirements in pip's syntax.
    packages: tuple[str, ...]
    # Options of `uv pip install`.
    options: tuple[str, ...] = ()
    timeout_s: float = 1800
    # Whether packages without a wheel are allowed; their build runs their code.
    allow_builds: bool = False

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 of packages and options; it is part of the keys of jobs that run in this environment."""
        builds = ["allow_builds"] if self.allow_builds else []
        return hashlib.sha256(json.dumps([sorted(self.packages), list(self.options), *builds]).encode()).hexdigest()

    @cached_property
    def folder(self) -> Path:
        """Return the environment's folder; it depends on packages, Ray, Python and our code's folder."""
        identity = (self.digest, _ray(), sys.version, sys.base_prefix, WORKER_PACKAGES, str(ROOT))
        return Path(FOLDER, f"{self.name}-{hashlib.sha256(repr(identity).encode()).hexdigest()[:12]}").absolute()

    @property
    def description(self) -> str:
        """Return name and packages in one line."""
        return f"{self.name}: {', '.join([*self.packages, *self.options])}"

    @property
    def python(self) -> Path:
        """Return the path of the environment's interpreter."""
        return self.folder / "bin" / "python"

    @property
    def code(self) -> Path:
        """Return the folder that links to our package alone; site-packages would contain others as well."""
        return self.folder / "code"


def _ray() -> str:
    return importlib.metadata.version("ray")


class EnvironmentBuilder:
    """Builder of environments in background threads, one per environment; other jobs continue."""

    def __init__(self) -> None:
        self._threads: dict[Environment, threading.Thread] = {}
        self._failures: dict[Environment, Failure] = {}
        self._children: set[subprocess.Popen[str]] = set()
        self._is_closed = False

    def is_ready(self, environment: Environment) -> bool:
        """Return whether the environment is built; if not, start to build it."""
        if environment in self._failures:
            return False
        if (environment.folder / READY).exists():
            return True
        if environment not in self._threads:
            thread = threading.Thread(target=self._run_build, args=(environment,), daemon=True)
            self._threads[environment] = thread
            thread.start()
        return False

    def failure(self, environment: Environment) -> Failure | None:
        """Return the failure of the environment's build, or None."""
        return self._failures.get(environment)

    def close(self) -> None:
        """Stop all builds."""
        self._is_closed = True
        for child in list(self._children):
            child.kill()
        for thread in self._threads.values():
            thread.join(timeout=CLOSE_S)

    def _run_build(self, environment: Environment) -> None:
        try:
            self.build(environment)
        # Any error is reported as the failure of the jobs.
        except Exception as error:
            if not self._is_closed:
                self._failures[environment] = Failure.of(error)

    def build(self, environment: Environment) -> None:
        """Build the environment, unless another process has built it in the meantime.

        Raises:
            EnvironmentFailed: the build failed or took longer than the environment's `timeout_s`.
        """
        end = time.monotonic() + environment.timeout_s
        with _lock(environment, end):
            if (environment.folder / READY).exists():
                return
            print(f"environment {environment.name}: installing into {environment.folder}", flush=True)
            try:
                self._install(environment, end)
            except BaseException:
                shutil.rmtree(environment.folder, ignore_errors=True)
                raise

    def _install(self, environment: Environment, end: float) -> None:
        """Install versions as close to ours as the packages allow; `pins.txt` in the folder lists them."""
        uv, folder = find_uv(), environment.folder
        options = environment.options if environment.allow_builds else (*environment.options, *WHEELS_ONLY)
        shutil.rmtree(folder, ignore_errors=True)
        self._run_command(environment, end, uv, "venv", "--python", sys.executable, str(folder))
        requirements, pins = folder / "asked.txt", folder / "pins.txt"
        requirements.write_text("\n".join([*environment.packages, *WORKER_PACKAGES, f"ray=={_ray()}"]) + "\n")
        ours = {package.name: package.version for package in importlib.metadata.distributions() if package.name}
        # uv prefers the versions of an existing output file.
        pins.write_text("".join(f"{name}=={version}\n" for name, version in sorted(ours.items())))
        target = ("--python", str(environment.python))
        resolve = ("pip", "compile", str(requirements), "--output-file", str(pins), "--no-header", "--no-annotate")
        self._run_command(environment, end, uv, *resolve, *target, *options)
        self._run_command(environment, end, uv, "pip", "install", *target, *options, "--requirements", str(pins))
        self._run_command(environment, end, str(environment.python), "-c", CHECK, _ray())
        environment.code.mkdir()
        for name in OURS:
            (environment.code / name).symlink_to(ROOT / name)
        (folder / READY).touch()

    def _run_command(self, environment: Environment, end: float, *command: str) -> None:
        """Run a command outside the checkout, because uv would apply the checkout's own overrides."""
        if self._is_closed:
            raise EnvironmentFailed(f"environment {environment.name}: the sweep ended during the build")
        seconds_left = end - time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            child = subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            self._children.add(child)
            try:
                output, _ = child.communicate(timeout=max(seconds_left, 0))
            except subprocess.TimeoutExpired:
                child.kill()
                child.communicate()
                raise EnvironmentFailed(
                    f"environment {environment.name}: the build took more than {environment.timeout_s:g} s; raise "
                    f"environments.{environment.name}.timeout_s (downloaded packages are kept)"
                ) from None
            finally:
                self._children.discard(child)
        if child.returncode:
            last = "\n".join(output.strip().splitlines()[-OUTPUT_LINES:])
            raise EnvironmentFailed(
                f"environment {environment.name}: `{' '.join(command[:3])} …` ended with {child.returncode}; fix "
                f"environments.{environment.name}.packages or the error in its output:\n{last}"
            )


def find_uv() -> str:
    """Return the path of uv: next to our Python, in the Makefile's folder, or on PATH.

    Raises:
        EnvironmentFailed: there is no uv.
    """
    for folder in (Path(sys.executable).parent, Path(".uv", "bin").absolute()):
        if (folder / "uv").is_file():
            return str(folder / "uv")
    path = shutil.which("uv")
    if path is None:
        raise EnvironmentFailed(
            "uv, which builds environments, is not installed; install the extra `environments`, or uv"
        )
    return path


@contextmanager
def _lock(environment: Environment, end: float) -> Iterator[None]:
    """Hold the environment's lock, so that one process at a time builds it.

    Raises:
        EnvironmentFailed: the lock is not free before `end`.
    """
    environment.folder.parent.mkdir(exist_ok=True)
    with environment.folder.with_suffix(".lock").open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise EnvironmentFailed(
                        f"environment {environment.name}: another process has been building it for "
                        f"{environment.timeout_s:g} s; end that process, or raise "
                        f"environments.{environment.name}.timeout_s"
                    ) from None
                time.sleep(0.2)
        yield
