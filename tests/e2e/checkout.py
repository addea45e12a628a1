"""A checkout of this repository's files in a folder of its own, run there through real DVC, Ray and DuckDB."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

import store

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class Checkout:
    """A repository with the smoke profile as its params.yaml."""

    folder: Path
    data: Path | None = None  # what TSFMSCOPE_DATA names

    def environment(self, **more: str) -> dict[str, str]:
        environment = {k: v for k, v in os.environ.items() if k not in ("TSFMSCOPE_DATA", "PYTHONPATH", "RAY_ADDRESS")}
        environment |= {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "RAY_USAGE_STATS_ENABLED": "0"}
        # Ray's workers have low priority by default, and would wait for the tests of the other process.
        environment["RAY_worker_niceness"] = "0"
        return environment | ({"TSFMSCOPE_DATA": str(self.data)} if self.data else {}) | more

    def run(self, *command: str, ok: bool = True, **more: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment(**more), capture_output=True, text=True, timeout=900
        )
        if ok and done.returncode:
            pytest.fail(f"{' '.join(command)} exited {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}")
        return done

    def repro(self, *arguments: str, **more: str) -> list[str]:
        """Run `dvc repro` and return the stages that ran."""
        output = self.run("dvc", "repro", *arguments, **more).stdout
        return [line.split("'")[1] for line in output.splitlines() if line.startswith("Running stage ")]

    def sql(self, query: str) -> list[dict[str, Any]]:
        """Return the rows of a query; in this process, since a start of Python takes seconds."""
        with store.open(self.folder / "data/results.duckdb") as connection:
            return connection.sql(query).to_arrow_table().to_pylist()

    def jobs(self, stage: str) -> dict[str, int]:
        """Return the numbers of jobs of a stage's last run: all, done, reused, failed."""
        runs = pq.read_table(self.folder / f"data/timings/{stage}/runs").sort_by("started").to_pylist()
        return {name: runs[-1][name] for name in ("jobs", "done", "reused", "failed")}

    def params(self, change: Callable[[dict[str, Any]], None]) -> None:
        file = self.folder / "params.yaml"
        block = yaml.safe_load(file.read_text())
        change(block)
        file.write_text(yaml.safe_dump(block, sort_keys=False))

    def copy(self, folder: Path) -> Checkout:
        """Copy the checkout, with its outputs and DVC's cache."""
        shutil.copytree(self.folder, folder, symlinks=True)
        return Checkout(folder, self.data)


def checkout(folder: Path, data: Path | None = None) -> Checkout:
    """Commit the tracked and the new files of this repository in a fresh one."""
    ask = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(ask, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.splitlines():
        left_out = name.startswith(("tests/", "docs/", "bench/")) and not name.startswith("tests/checkpoints/")
        if ((ROOT / name).is_file() or (ROOT / name).is_symlink()) and not left_out:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    shutil.copy2(ROOT / "params" / "smoke.yaml", folder / "params.yaml")
    (folder / "dvc.lock").unlink(missing_ok=True)
    made = Checkout(folder, data)
    commit(made, "start")
    return made


def commit(made: Checkout, message: str) -> None:
    if not (made.folder / ".git").exists():
        made.run("git", "init", "--quiet", "--initial-branch", "main")
    made.run("git", "add", "--all")
    who = ("-c", "user.name=test", "-c", "user.email=test@example.invalid")
    made.run("git", *who, "commit", "--quiet", "--allow-empty", "--message", message)
