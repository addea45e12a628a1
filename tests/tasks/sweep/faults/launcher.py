"""Drivers in processes of their own, forked from one that has imported what they need, since importing takes seconds.

They join a cluster in our own namespace, so that its idle workers, which have our environment, serve them.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any, NamedTuple

from processes import ROOT, alive

START = 120.0  # seconds that a phase of a driver may take to come


class Driver(NamedTuple):
    """A driver process and the files that it writes."""

    pid: int
    events: Path
    errors: Path

    def wait_for(self, phase: str) -> bool:
        """Wait until a phase has begun; False if the driver ended before."""
        deadline = time.monotonic() + START
        while not self.events.exists() or phase not in self.events.read_text().splitlines():
            if not alive(self.pid):
                return False
            assert time.monotonic() < deadline, (phase, self.errors.read_text())
            time.sleep(0.002)
        return True


class Launcher:
    """A process that forks drivers."""

    def __init__(self, address: str, folder: Path) -> None:
        """`folder` is where drivers keep their event files."""
        self._folder = folder
        self._made = 0
        path = os.pathsep.join([str(ROOT), os.environ["PYTHONPATH"]])
        command = [sys.executable, __file__, address]
        self._process = Popen(command, env={**os.environ, "PYTHONPATH": path}, stdin=PIPE, stdout=PIPE, text=True)

    def start(
        self,
        root: Path,
        calls: Sequence[Mapping[str, Any]],
        *,
        own: bool = False,
        clock: bool = False,
        **resources: Any,
    ) -> Driver:
        """Start a driver of the jobs of `calls` (arguments of `faulty.make`) over the store at `root`.

        own: with a Ray of its own, in a process group with it, as from a terminal. clock: one that runs backwards.
        """
        self._made += 1
        events, errors = (self._folder / f"{self._made}.{name}" for name in ("events", "errors"))
        resources = {"flush_seconds": 0.3, "start_timeout_s": 120} | resources
        files = {"root": str(root), "events": str(events), "errors": str(errors)}
        pid = self._send({**files, "calls": calls, "own": own, "clock": clock, "resources": resources})
        return Driver(pid, events, errors)

    def wait(self, driver: Driver) -> int:
        """Return the exit code of a driver, or minus the signal that killed it."""
        return self._send({"wait": driver.pid})

    def run(self, root: Path, calls: Sequence[Mapping[str, Any]], **options: Any) -> Driver:
        """Run a driver, which must end with success."""
        driver = self.start(root, calls, **options)
        assert self.wait(driver) == 0, driver.errors.read_text()
        return driver

    def close(self) -> None:
        """End the process."""
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()

    def _send(self, order: Mapping[str, Any]) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


def _drive(address: str, order: dict[str, Any]) -> int:
    """Run a driver and return its exit code."""
    import faulty
    import ray

    from store.errors import StoreError
    from tasks.sweep.cluster import NAMESPACE, Resources
    from tsfmscope.errors import SweepError

    errors = os.open(order["errors"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):  # standard output of this process is for the numbers that it returns
        os.dup2(errors, stream)
    try:
        jobs, resources = faulty.make_jobs(order["calls"]), Resources(**order["resources"])
        if order["own"]:
            os.setpgid(0, 0)
        else:
            ours = NAMESPACE.format(resources.needs.threads)
            ray.init(address, namespace=ours, log_to_driver=False, logging_level="ERROR")
        if order["clock"]:
            faulty.turn_back()
        faulty.drive(Path(order["root"]), jobs, resources, Path(order["events"]))
    except SystemExit as error:
        return int(error.code or 0)
    except KeyboardInterrupt:
        return 130
    except (SweepError, StoreError) as error:  # as the command line does
        print(error, file=sys.stderr, flush=True)
        return 1
    except BaseException:
        traceback.print_exc()
        return 3
    return 0


def _serve(address: str) -> None:
    import faulty  # noqa: F401  # what a driver imports, once
    import pyarrow.dataset  # noqa: F401
    import ray  # noqa: F401

    for line in sys.stdin:
        order = json.loads(line)
        if pid := order.get("wait"):
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
            continue
        child = os.fork()
        if not child:
            code = _drive(address, order)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        print(child, flush=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
