"""Environments of their own, for jobs whose packages cannot live beside ours: made by uv, once; Ray's `py_executable`.

Ray's own plugin (`runtime_env={"uv": …}`) was measured and is not used: docs/environments.md.
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

from tasks.errors import EnvironmentFailed
from tasks.sweep.policy import Failure

ROOT = Path(__file__).resolve().parents[2]  # the folder that holds our packages: a checkout, or all of site-packages
OURS = ("stages", "store", "tasks")
FOLDER = ".environments"  # in the driver's folder, which all nodes share
# What every worker imports before a job says what it needs: ray, the sweep, the store's readers and writers.
NEEDED = ("blake3", "numpy", "pyarrow", "pydantic", "pyyaml", "threadpoolctl")
READY = ".ready"  # comes last into an environment
CLOSE_S = 5  # for taking away what was half made
SAID = 12  # last lines of uv that an error repeats
CHECK = "import ray, sys; sys.exit(ray.__version__ != sys.argv[1])"


@dataclass(frozen=True)
class Environment:
    """Packages of its own, by the name that params give it."""

    name: str
    packages: tuple[str, ...]  # requirements, as pip takes them
    options: tuple[str, ...] = ()  # of `uv pip install`
    timeout_s: float = 1800

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what decides its packages: a part of the keys of jobs that run in it."""
        return hashlib.sha256(json.dumps([sorted(self.packages), list(self.options)]).encode()).hexdigest()

    @cached_property
    def folder(self) -> Path:
        """Where it is made: another one for other packages, another Ray or another Python."""
        beside = (self.digest, _ray(), sys.version, sys.base_prefix, NEEDED, str(ROOT))
        return Path(FOLDER, f"{self.name}-{hashlib.sha256(repr(beside).encode()).hexdigest()[:12]}").absolute()

    @property
    def described(self) -> str:
        """Name and packages in one line."""
        return f"{self.name}: {', '.join([*self.packages, *self.options])}"

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def code(self) -> Path:
        """Where it finds our packages and nothing else, also where they are installed among all others."""
        return self.folder / "code"


def _ray() -> str:
    return importlib.metadata.version("ray")


class Maker:
    """Makes environments beside the sweep, a thread each, so that other jobs go on."""

    def __init__(self) -> None:
        self._threads: dict[Environment, threading.Thread] = {}
        self._failures: dict[Environment, Failure] = {}
        self._children: set[subprocess.Popen[str]] = set()
        self._closed = False

    def ready(self, environment: Environment) -> bool:
        """Whether it is there; where it is not, it is made from now on."""
        if environment in self._failures:
            return False
        if (environment.folder / READY).exists():
            return True
        if environment not in self._threads:
            thread = threading.Thread(target=self._make, args=(environment,), daemon=True)
            self._threads[environment] = thread
            thread.start()
        return False

    def failure(self, environment: Environment) -> Failure | None:
        """Why it could not be made."""
        return self._failures.get(environment)

    def close(self) -> None:
        """End what is being made."""
        self._closed = True
        for child in list(self._children):
            child.kill()
        for thread in self._threads.values():
            thread.join(timeout=CLOSE_S)

    def _make(self, environment: Environment) -> None:
        try:
            self.make(environment)
        except Exception as error:  # whatever it is, it is told of as the failure of the jobs
            if not self._closed:
                self._failures[environment] = Failure.of(error)

    def make(self, environment: Environment) -> None:
        """Make it, unless another process did meanwhile. Raises EnvironmentFailed within its `timeout_s`."""
        end = time.monotonic() + environment.timeout_s
        with _locked(environment, end):
            if (environment.folder / READY).exists():
                return
            print(f"environment {environment.name}: installing into {environment.folder}", flush=True)
            try:
                self._install(environment, end)
            except BaseException:
                shutil.rmtree(environment.folder, ignore_errors=True)
                raise

    def _install(self, environment: Environment, end: float) -> None:
        """As near to our own versions as the packages allow; `pins.txt` in its folder keeps what came of it."""
        uv, folder, options = find_uv(), environment.folder, environment.options
        shutil.rmtree(folder, ignore_errors=True)
        self._call(environment, end, uv, "venv", "--python", sys.executable, str(folder))
        asked, pins = folder / "asked.txt", folder / "pins.txt"
        asked.write_text("\n".join([*environment.packages, *NEEDED, f"ray=={_ray()}"]) + "\n")
        ours = {one.name: one.version for one in importlib.metadata.distributions() if one.name}
        pins.write_text("".join(f"{name}=={version}\n" for name, version in sorted(ours.items())))  # preferred by uv
        target = ("--python", str(environment.python))
        resolve = ("pip", "compile", str(asked), "--output-file", str(pins), "--no-header", "--no-annotate")
        self._call(environment, end, uv, *resolve, *target, *options)
        self._call(environment, end, uv, "pip", "install", *target, *options, "--requirements", str(pins))
        self._call(environment, end, str(environment.python), "-c", CHECK, _ray())
        environment.code.mkdir()
        for name in OURS:
            (environment.code / name).symlink_to(ROOT / name)
        (folder / READY).touch()

    def _call(self, environment: Environment, end: float, *command: str) -> None:
        """Run it away from the checkout, whose own overrides uv would take for this environment's."""
        if self._closed:
            raise EnvironmentFailed(f"environment {environment.name}: the sweep ended while it was made")
        left = end - time.monotonic()
        with tempfile.TemporaryDirectory() as away:
            child = subprocess.Popen(
                command, cwd=away, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            self._children.add(child)
            try:
                said, _ = child.communicate(timeout=max(left, 0))
            except subprocess.TimeoutExpired:
                child.kill()
                child.communicate()
                raise EnvironmentFailed(
                    f"environment {environment.name}: not made within {environment.timeout_s:g} s; raise "
                    f"environments.{environment.name}.timeout_s: what was downloaded is kept"
                ) from None
            finally:
                self._children.discard(child)
        if child.returncode:
            last = "\n".join(said.strip().splitlines()[-SAID:])
            raise EnvironmentFailed(
                f"environment {environment.name}: `{' '.join(command[:3])} …` ended with {child.returncode}; mend "
                f"environments.{environment.name}.packages or what it says:\n{last}"
            )


def find_uv() -> str:
    """Beside our Python, on PATH, or where the Makefile puts it. Raises EnvironmentFailed where there is none."""
    for beside in (Path(sys.executable).parent, Path(".uv", "bin").absolute()):
        if (beside / "uv").is_file():
            return str(beside / "uv")
    found = shutil.which("uv")
    if found is None:
        raise EnvironmentFailed("environments are made by uv, which is not here; install the extra environments, or uv")
    return found


@contextmanager
def _locked(environment: Environment, end: float) -> Iterator[None]:
    """One process at a time makes it; the next finds it made."""
    environment.folder.parent.mkdir(exist_ok=True)
    with environment.folder.with_suffix(".lock").open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise EnvironmentFailed(
                        f"environment {environment.name}: another process has been making it for "
                        f"{environment.timeout_s:g} s; end that one, or raise environments.{environment.name}.timeout_s"
                    ) from None
                time.sleep(0.2)
        yield
