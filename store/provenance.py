"""Provenance of a run: commit, versions, hardware."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = (
    *("chronos-forecasting", "duckdb", "gluonts", "numpy", "pyarrow", "ray", "scikit-learn", "scipy", "torch"),
    *("transformers", "uni2ts"),
)


def versions() -> str:
    """Return the versions of Python and of the packages that affect results, as canonical JSON."""
    versions_by_name = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions_by_name[name] = version(name)
        except PackageNotFoundError:
            continue
    return json.dumps(versions_by_name, sort_keys=True, separators=(",", ":"))


def commit(folder: Path) -> str:
    """Return the git commit of a folder, with + if tracked files differ from it.

    The result is "unknown" if git reports none, as outside a repository.
    """
    try:
        head = git(folder, "rev-parse", "HEAD")
        return head + ("+" if git(folder, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def hardware() -> str:
    """Return the processor's name and its number of cores."""
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), name)
    except OSError:
        # There is no /proc outside Linux; the short name is sufficient.
        pass
    return f"{name}, {os.cpu_count()} cores"


def git(folder: Path, *arguments: str) -> str:
    """Return the output of a git command in a folder; OSError or SubprocessError if it fails."""
    process = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=30)
    return process.stdout.strip()
