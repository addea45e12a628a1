"""SIGKILL a driver at random moments, over and over: what it stored stays, nothing stands twice or half."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, Popen
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tsfmscope.store import files
from tsfmscope.store.stage_store import StageStore

JOBS = 16
NURSERY = """
import os, sys, traceback
from pathlib import Path
import pyarrow as pa
import pyarrow.dataset  # what a driver imports late, each child would import again
from types import SimpleNamespace
from tsfmscope.store.stage_store import StageStore

def drive(root, jobs, log):
    keys = [f"{n:04d}" for n in range(jobs)]
    timing = dict(seconds=1.0, load_seconds=0.0, actor="a", node="n", device="cpu", started=0.0)
    with StageStore(root / "tokens", tables=["dumps"], companion=root / "timings", stage="tokens") as out:
        print(os.getpid(), flush=True)
        for n, key in enumerate(out.missing(keys)):
            job = SimpleNamespace(spec={"model": "m", "dataset": "d", "condition": key}, inputs={})
            facts = out.write_dump(job, [pa.table({"x": [int(key)] * 50, "part": [p] * 50}) for p in range(3)])
            row = dict(model="m", dataset="d", condition=key, kind="tokens", n_windows=1, **facts)
            out.append([dict(key=key, task="t", spec="{}", table="dumps", rows=[row], error=None, timing=timing)])
            with log.open("a") as file:
                file.write(key + "\\n")
            if n % 5 == 4:
                out.finish(keys)
        out.finish(keys, {"s": keys}, {"seed": 1})

for line in sys.stdin:
    root, log = line.split()
    child = os.fork()
    if not child:
        try:
            drive(Path(root), int(sys.argv[1]), Path(log))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    print(os.waitpid(child, 0)[1], flush=True)
"""


@pytest.fixture
def nursery() -> Iterator[Popen[str]]:
    """A process that has imported the store and forks a driver a line, for starting Python takes seconds."""
    command = [sys.executable, "-c", NURSERY, str(JOBS)]
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def drive(nursery: Popen[str], root: Path, log: Path, *, kill_after: float | None) -> bool:
    """Run a driver, kill it `kill_after` seconds after it opened the store; whether it came to its end."""
    assert nursery.stdin is not None
    assert nursery.stdout is not None
    nursery.stdin.write(f"{root} {log}\n")
    nursery.stdin.flush()
    pid = int(nursery.stdout.readline())
    if kill_after is not None:
        time.sleep(kill_after)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return int(nursery.stdout.readline()) == 0


def rows_now(folder: Path) -> list[str]:
    """What a reader without any care sees: every visible file opens, and all pages of it can be read."""
    found = [files.read_parquet(path) for path in sorted((folder / "dumps").glob("[!.]*.parquet"))]
    for path in (folder / "dumps").rglob("m/d/[!.]*.parquet"):
        assert pq.read_table(path).num_rows == 150
    return [key for table in found for key in table["job_key"].to_pylist()]


@pytest.mark.parametrize("rounds", [6, pytest.param(40, marks=pytest.mark.slow)])
def test_a_driver_killed_again_and_again_loses_nothing_stored_and_doubles_nothing(
    tmp_path: Path, nursery: Popen[str], rounds: int
) -> None:
    chance = random.Random(rounds)
    root, log = tmp_path / "data", tmp_path / "log"
    kills = 0
    for _ in range(rounds):
        if drive(nursery, root, log, kill_after=chance.uniform(0.0, 2 / rounds)):
            break
        kills += 1
        keys = rows_now(root / "tokens")
        assert len(keys) == len(set(keys)), "no row twice, whatever the moment"
    assert kills
    assert drive(nursery, root, log, kill_after=None)
    assert rows_now(root / "tokens") == [f"{n:04d}" for n in range(JOBS)]
    executed = log.read_text().split()
    assert len(executed) == len(set(executed)), "no stored job ran again"
    assert not list(root.rglob(".tmp-*"))

    whole = tmp_path / "undisturbed"
    assert drive(nursery, whole, tmp_path / "log2", kill_after=None)
    assert files.fingerprint(root / "tokens") == files.fingerprint(whole / "tokens")


def test_a_writer_killed_inside_a_dump_leaves_no_file_of_that_name(tmp_path: Path) -> None:
    code = """
import os, signal, sys
import pyarrow as pa
from tsfmscope.store.dumps import write_dump
def tables():
    yield pa.table({"x": [1]})
    os.kill(os.getpid(), signal.SIGKILL)
write_dump(sys.argv[1], "dumps/m/d/c.parquet", tables())
"""
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path / "o")], check=False).returncode == -9
    left = [p.name for p in (tmp_path / "o").rglob("*.parquet")]
    assert len(left) == 1
    assert left[0].startswith(".tmp-")
    with StageStore(tmp_path / "o", tables=["dumps"], companion=tmp_path / "c", stage="s") as out:
        assert not [p for p in out.root.rglob("*") if p.is_file()]
        out.write_dump(SimpleNamespace(spec={"dataset": "d", "shard": 0, "format": "parquet"}), [pa.table({"x": [1]})])
