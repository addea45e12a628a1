"""SIGKILL of a driver before each single call that changes the disk: rows, activation files, compaction."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from store import files

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

# Forks a driver a line, which ends itself before its n-th step: a call that changes what the next driver finds. (The
# page cache outlives a process, so that an fsync is no such call.)
STEPS = """
import os, signal, sys, traceback
from pathlib import Path
from types import SimpleNamespace
import pyarrow as pa, pyarrow.dataset, pyarrow.parquet as pq
from store import provenance
from store.stage_store import StageStore

for slow in ("commit", "versions", "hardware"):  # of no interest here
    answer = getattr(provenance, slow)(*[Path.cwd()] * (slow == "commit"))
    setattr(provenance, slow, lambda *_, answer=answer: answer)
CHANGES = [(os, name) for name in ("replace", "unlink", "rmdir", "mkdir")]
CHANGES += [(Path, "write_text"), (pq.ParquetWriter, "write_table"), (pq.ParquetWriter, "close")]
TIMING = dict(seconds=1.0, load_seconds=0.0, actor="a", node="n", device="cpu", started=0.0)
ERROR = dict(type="E", message="m", traceback="t", attempts=1, transient=True)
KEYS = [f"{n:04d}" for n in range(6)]
taken = 0

def count(owner, name, at):
    plain = getattr(owner, name)
    def step(*args, **options):
        global taken
        taken += 1
        if taken == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(*args, **options)
    setattr(owner, name, step)

def record(out, n, key):
    rows, error, name = [dict(model="m", step=s, loss=1.0, learning_rate=0.1) for s in range(3)], None, "training"
    if n % 4 == 1:
        job = SimpleNamespace(spec={"model": "m", "dataset": "d", "condition": key}, inputs={})
        facts = out.write_dump(job, [pa.table({"x": [n] * 50}) for _ in range(2)])
        rows, name = [dict(model="m", dataset="d", condition=key, kind="tokens", n_windows=1, **facts)], "dumps"
    if n == 4:
        rows, error = [], ERROR
    return dict(key=key, task="t", spec="{}", table=name, rows=rows, error=error, timing=TIMING)

def drive(root, events):
    with StageStore(root / "data", tables=["training", "dumps"], companion=root / "timings", stage="s") as out:
        missing = out.missing(KEYS)
        events.write("opened " + " ".join(missing) + "\\n")
        for start in range(0, len(missing), 3):
            batch = missing[start:start + 3]
            out.append([record(out, KEYS.index(key), key) for key in batch])
            events.write("stored " + " ".join(batch) + "\\n")
        out.finish(KEYS)
        events.write("finished\\n")

for line in sys.stdin:
    root, at = line.split()
    child = os.fork()
    if not child:
        try:
            with open(root + "/events", "a", buffering=1) as events:
                for owner, name in CHANGES:
                    count(owner, name, int(at))
                drive(Path(root), events)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
FAILED = "0004"


@pytest.fixture
def driver() -> Iterator[Callable[[Path, int], int]]:
    """Runs a driver over a store, to be killed before a step; its exit code."""
    with Popen([sys.executable, "-c", STEPS], stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        said, heard = process.stdin, process.stdout

        def drive(root: Path, at: int) -> int:
            root.mkdir(exist_ok=True)
            said.write(f"{root} {at}\n")
            said.flush()
            return int(heard.readline())

        yield drive
        said.close()


def rows_of(root: Path) -> Counter[str]:
    """Rows a job, as a reader without any care finds them."""
    found: Counter[str] = Counter()
    for path in [p for name in ("training", "dumps") for p in (root / "data" / name).glob("[!.]*.parquet")]:
        found.update(files.read_parquet(path)["job_key"].to_pylist())
    return found


def test_a_driver_killed_before_each_step_of_its_writes_loses_and_doubles_nothing(
    tmp_path: Path, driver: Callable[[Path, int], int]
) -> None:
    assert driver(tmp_path / "undisturbed", 0) == 0
    expected, fingerprint = rows_of(tmp_path / "undisturbed"), files.fingerprint(tmp_path / "undisturbed/data")
    assert len(expected) == 5
    kills = 0
    while driver(root := tmp_path / f"killed{kills}", kills + 1) == -9:
        kills += 1
        rows, acknowledged = rows_of(root), {key for word, *keys in events(root) if word == "stored" for key in keys}
        assert all(count <= expected[key] for key, count in rows.items()), "a reader saw a row twice"
        (root / "events").unlink()
        assert driver(root, 0) == 0
        ((_, *missing),) = [words for words in events(root) if words[0] == "opened"]
        assert not (acknowledged - {FAILED}) & set(missing), f"step {kills}: a stored job ran again"
        assert (rows_of(root), files.fingerprint(root / "data")) == (expected, fingerprint), f"step {kills}"
        shutil.rmtree(root)
    assert kills > 100


def events(root: Path) -> list[list[str]]:
    """The words of each line of what a driver wrote of itself."""
    path = root / "events"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []
