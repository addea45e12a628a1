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

from tsfmscope.tasks.errors import EnvironmentFailed
from tsfmscope.tasks.sweep.policy import Failure

# Folder that contains our package: a checkout, or all of site-packages.
ROOT = Path(__file__).absolute().parents[3]
OURS = ("tsfmscope",)
# Folder of the environments, inside the driver's folder, which all nodes share.
FOLDER = ".environments"
# Packages that every worker imports before it runs a job: for Ray, the sweep, and the store's
# readers and writers.
NEEDED = ("blake3", "numpy", "pyarrow", "pydantic", "pyyaml", "threadpoolctl")
# File that is written last into an environment.
READY = ".ready"
WHEELS_ONLY = ("--only-binary", ":all:")
# Seconds to wait until half-built environments are removed.
CLOSE_S = 5
# Number of last lines of uv's output that an error repeats.
SAID = 12
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
        """Return the SHA-256 of all that determines the packages; part of the keys of jobs that run in it."""
        builds = ["allow_builds"] if self.allow_builds else []
        return hashlib.sha256(json.dumps([sorted(self.packages), list(self.options), *builds]).encode()).hexdigest()

    @cached_property
    def folder(self) -> Path:
        """Return the environment's folder; it depends on packages, Ray, Python and our code's folder."""
        beside = (self.digest, _ray(), sys.version, sys.base_prefix, NEEDED, str(ROOT))
        return Path(FOLDER, f"{self.name}-{hashlib.sha256(repr(beside).encode()).hexdigest()[:12]}").absolute()

    @property
    def described(self) -> str:
        """Return name and packages in one line."""
        return f"{self.name}: {', '.join([*self.packages, *self.options])}"

    @property
    def python(self) -> Path:
        """Return the path of the environment's interpreter."""
        return self.folder / "bin" / "python"

    @property
    def code(self) -> Path:
        """Return the folder that links to our package alone, also where it is installed next to others."""
        return self.folder / "code"


def _ray() -> str:
    return importlib.metadata.version("ray")


class EnvironmentBuilder:
    """Builder of environments in the background, one thread each, so that other jobs go on."""

    def __init__(self) -> None:
        self._threads: dict[Environment, threading.Thread] = {}
        self._failures: dict[Environment, Failure] = {}
        self._children: set[subprocess.Popen[str]] = set()
        self._closed = False

    def ready(self, environment: Environment) -> bool:
        """Return whether the environment is built; if not, start to build it."""
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
        """Return why the environment could not be built, or None."""
        return self._failures.get(environment)

    def close(self) -> None:
        """Stop all builds."""
        self._closed = True
        for child in list(self._children):
            child.kill()
        for thread in self._threads.values():
            thread.join(timeout=CLOSE_S)

    def _make(self, environment: Environment) -> None:
        try:
            self.make(environment)
        # Any error is reported as the failure of the jobs.
        except Exception as error:
            if not self._closed:
                self._failures[environment] = Failure.of(error)

    def make(self, environment: Environment) -> None:
        """Build the environment, unless another process has done so in the meantime.

        Raises:
            EnvironmentFailed: the build failed or took longer than the environment's `timeout_s`.
        """
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
        """Install versions as close to ours as the packages allow; `pins.txt` in the folder lists them."""
        uv, folder = find_uv(), environment.folder
        options = environment.options if environment.allow_builds else (*environment.options, *WHEELS_ONLY)
        shutil.rmtree(folder, ignore_errors=True)
        self._call(environment, end, uv, "venv", "--python", sys.executable, str(folder))
        asked, pins = folder / "asked.txt", folder / "pins.txt"
        asked.write_text("\n".join([*environment.packages, *NEEDED, f"ray=={_ray()}"]) + "\n")
        ours = {one.name: one.version for one in importlib.metadata.distributions() if one.name}
        # uv prefers the versions of an existing output file.
        pins.write_text("".join(f"{name}=={version}\n" for name, version in sorted(ours.items())))
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
        """Run a command outside the checkout, because uv would apply the checkout's own overrides."""
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
    """Return the path of uv: next to our Python, in the Makefile's folder, or on PATH.

    Raises:
        EnvironmentFailed: there is no uv.
    """
    for beside in (Path(sys.executable).parent, Path(".uv", "bin").absolute()):
        if (beside / "uv").is_file():
            return str(beside / "uv")
    found = shutil.which("uv")
    if found is None:
        raise EnvironmentFailed("environments are made by uv, which is not here; install the extra environments, or uv")
    return found


@contextmanager
def _locked(environment: Environment, end: float) -> Iterator[None]:
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
                        f"environment {environment.name}: another process has been making it for "
                        f"{environment.timeout_s:g} s; end that one, or raise environments.{environment.name}.timeout_s"
                    ) from None
                time.sleep(0.2)
        yield
