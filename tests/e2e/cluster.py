"""A Ray cluster of `ray start` processes on this machine, token authentication on: ports and folder of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

HEAD, SECOND = "127.0.0.2", "127.0.0.3"  # loopback addresses: nodes that `timings` can tell apart
START_S = 120


@dataclass
class Nodes:
    """A head node, and those that were added."""

    folder: Path  # short: Ray's sockets lie in it, and their paths have 107 characters at most
    port: int
    dashboard: int
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.dashboard}"

    @property
    def token(self) -> dict[str, str]:
        """What a client needs in its environment."""
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.folder / ".ray" / "auth_token")}

    def start(self, python: Path | str, folder: Path, ip: str, *arguments: str) -> None:
        """`ray start --block` in a folder, without any PYTHONPATH or RAY_ADDRESS."""
        environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "RAY_ADDRESS")} | self.token
        ports = ("--min-worker-port=0", "--max-worker-port=0", f"--dashboard-agent-listen-port={free_port()}")
        command = [str(python), "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]
        command += ["--object-store-memory=100000000", f"--node-ip-address={ip}", *ports, *arguments]
        with (self.folder / f"{ip}.log").open("w") as log:
            process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
        self.started.append(process)
        deadline = time.monotonic() + START_S
        while "Ray runtime started" not in (said := (self.folder / f"{ip}.log").read_text()):
            assert process.poll() is None and time.monotonic() < deadline, said
            time.sleep(0.1)

    def add(self, python: Path | str, folder: Path, ip: str, *arguments: str) -> None:
        self.start(python, folder, ip, f"--address={HEAD}:{self.port}", *arguments)

    def stop(self) -> None:
        """End what was started, and nothing else of Ray on this machine."""
        below: list[psutil.Process] = []
        for process in self.started:
            with contextlib.suppress(psutil.NoSuchProcess):
                below += psutil.Process(process.pid).children(recursive=True)
            process.terminate()
        for process in self.started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()
        for child in below:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(below, timeout=20)
        shutil.rmtree(self.folder, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


@contextlib.contextmanager
def head(*arguments: str) -> Iterator[Nodes]:
    """A head node with a token made as the documentation says, in a HOME of its own."""
    nodes = Nodes(Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp")), free_port(), free_port())
    home: Mapping[str, str] = os.environ | {"HOME": str(nodes.folder)}
    subprocess.run(["ray", "get-auth-token", "--generate"], env=home, check=True, capture_output=True, timeout=60)
    ports = (f"--port={nodes.port}", f"--dashboard-port={nodes.dashboard}", f"--ray-client-server-port={free_port()}")
    try:
        nodes.start(
            sys.executable, nodes.folder, HEAD, "--head", *ports, f"--temp-dir={nodes.folder / 't'}", *arguments
        )
        yield nodes
    finally:
        nodes.stop()


def poorer_python(folder: Path) -> Path:
    """A python that has what Ray needs and lacks what the jobs need; a node that runs it has another environment."""
    venv.create(folder, with_pip=False)
    packages = next(folder.glob("lib/python*/site-packages"))
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if entry.name not in ("torch", "numpy", "pyarrow", "chronos", "duckdb"):
            (packages / entry.name).symlink_to(entry)
    return folder / "bin" / "python"
