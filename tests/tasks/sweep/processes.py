"""Processes that tests look at and end."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[3]


def alive(pid: int) -> bool:
    """Whether a process runs; one that ended and that nobody has waited for does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def kill_with_its_workers(process: subprocess.Popen[str], title: str = "ray::Worker") -> None:
    """SIGKILL; then wait for Ray's workers, which end with their raylet, after some 3 s. Its agents linger for 65 s."""
    children = psutil.Process(process.pid).children(recursive=True)
    workers = [child.pid for child in children if child.cmdline()[:1] and title in child.cmdline()[0]]
    assert workers
    process.kill()
    deadline = time.monotonic() + 60
    while any(alive(pid) for pid in workers):
        assert time.monotonic() < deadline, "workers outlive their driver by a minute"
        time.sleep(0.1)
