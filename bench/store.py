"""The catalogue at ten million geometry rows: every view, ranks of a million spectra, and the same asked of pandas.

    python -m bench.store [--quick] [--folder DIR] [--only VIEW ...]

Tables of the store's schema are made (bench/store_rows.py), written as the store writes Parquet, and built into a
results.duckdb by store.catalogue. Then, each in a process of its own: every view, by a read-only connection of its own
with two threads and MEMORY; ranks by layer over 100,000 and a million spectra of 768 singular values, at all six
tolerances of flow_of_ranks; and questions to pandas, which reads of the same Parquet the columns that it needs.
A view's seconds are the best of RUNS: `all` counts every column of every row, so that all are computed and none is
fetched; `page` fetches the first thousand rows. Peaks are of the process that asked, its libraries included. What
pandas answers is compared with what DuckDB does. With --folder the tables are made there and kept, and found again.
`cpu` is the CPU seconds of the last run of `all`, both threads together: on a busy machine, half of it is what a quiet
one would take. The last line is JSON: slowest_view_s (of `all` and `page`), speedup_vs_pandas (geometric mean), peak_mb
(of the views and ranks), cpu_s (the most of a view), build_s, build_mb, ranks_100k_s and ranks_1m_s (with --quick, of
two and ten thousand spectra).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files as resources
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from bench.memory import MIB, held, peak
from bench.store_rows import Rows, Scale
from store import catalogue
from store.query import LOCKED

THREADS, MEMORY, RUNS, PAGE = 2, "2GB", 3, 1000
FULL = {"views": Scale(), "million": Scale(measured=False, spectra=1_000_000)}
QUICK = {
    "views": Scale(studies=2, models=20, datasets=20, spectra=2_000),
    "million": Scale(studies=2, models=20, datasets=20, measured=False, spectra=10_000),
}
RANKS = """
    select model, stack, layer, epsilon, avg(numerical_rank) as numerical_rank, avg(share) as share
    from flow_of_ranks
    group by all
"""


def connect(path: Path) -> duckdb.DuckDBPyConnection:
    """As store.open does, in so much memory; unlocked, to draw no progress into the table."""
    spilled = {"memory_limit": MEMORY, "temp_directory": str(path.parent / "spilled")}
    config = LOCKED | spilled | {"threads": str(THREADS), "lock_configuration": "false"}
    connection = duckdb.connect(str(path), read_only=True, config=config)
    connection.execute("set enable_progress_bar = false")
    return connection


class Timed(NamedTuple):
    """Wall seconds of each run on a connection of its own, CPU seconds of the last, and what was answered."""

    seconds: list[float]
    cpu: float
    found: pa.Table

    def line(self) -> dict[str, float]:
        """Its part of a row of the printed table."""
        return {"all": min(self.seconds), "median": statistics.median(self.seconds), "cpu": self.cpu}


def timed(path: Path, asked: str) -> Timed:
    """Of a question."""
    seconds = []
    for _ in range(RUNS):
        with connect(path) as connection:
            start, cpu = time.perf_counter(), time.process_time()
            found = connection.sql(asked).to_arrow_table()
            seconds.append(time.perf_counter() - start)
            cpu = time.process_time() - cpu
    return Timed(seconds, cpu, found)


def views() -> list[str]:
    """Every view's name."""
    sql = resources("store") / "sql"
    return [name for folder in ("answers", "views") for name, _ in catalogue.queries(sql / folder)]


def view(path: Path, name: str) -> dict[str, float]:
    """Rows, and seconds of both ways of asking."""
    held()
    whole = timed(path, f"select count(columns(*)) from {name}")
    page = timed(path, f"select * from {name} limit {PAGE}")
    with connect(path) as connection:
        ((rows,),) = connection.sql(f"select count(*) from {name}").fetchall()
    return {"rows": rows, **whole.line(), "page": min(page.seconds), "mb": peak() / MIB}


def each_view(path: Path, names: list[str]) -> dict[str, dict[str, float]]:
    """The same of each; the table is printed."""
    print(
        f"{'view':28s} {'rows':>10s} {'all s':>8s} {'median':>8s} {'cpu s':>8s} {'page s':>8s} {'MB':>6s}", flush=True
    )
    found = {}
    for name in names or views():
        found[name] = view(path, name)
        print(_line(name, found[name]), flush=True)
    return found


def ranks(path: Path) -> dict[str, float]:
    """The same of the ranks by layer."""
    held()
    asked = timed(path, RANKS)
    return {"rows": len(asked.found), **asked.line(), "page": min(asked.seconds), "mb": peak() / MIB}


def make(folder: Path, scale: Scale) -> dict[str, float]:
    """Write the tables of a scale, where they are not there yet."""
    start = time.perf_counter()
    Rows(scale).write(folder)
    return {"seconds": time.perf_counter() - start, "mb": peak() / MIB}


def build(folder: Path) -> dict[str, float]:
    """Build the catalogue; then `inference`, as SQL makes it from the rows: the stage's own takes permutations."""
    start = time.perf_counter()
    catalogue.build(folder / "results.duckdb", sources(folder))
    seconds, mb = time.perf_counter() - start, peak() / MIB
    with duckdb.connect(str(folder / "results.duckdb")) as connection:
        connection.execute("""
            insert into inference by name
            select *, n as n_clusters, 0.05 as alpha, 0 as seed, 0.01 as p, 1 as n_tests, -1.0 as low, 1.0 as high
            from inference_estimates
        """)
    return {"seconds": seconds, "mb": mb, "gb": (folder / "results.duckdb").stat().st_size / 1e9}


def sources(folder: Path) -> dict[str, list[Path]]:
    """Table -> its files."""
    folders = [one for one in folder.iterdir() if any(one.glob("*.parquet"))]
    return {one.name: sorted(one.glob("*.parquet")) for one in folders}


def asked_of_pandas(folder: Path, name: str) -> dict[str, float]:
    """Seconds of both, and whether they agree to 1e-9."""
    from bench.store_pandas import QUESTIONS

    question = QUESTIONS[name]
    start = time.perf_counter()
    theirs = question.pandas(sources(folder))
    seconds, mb = time.perf_counter() - start, peak() / MIB
    asked = timed(folder / "results.duckdb", question.sql)
    ours = asked.found.to_pandas()
    order = list(theirs.columns[:-1])
    theirs, ours = (one.sort_values(order).reset_index(drop=True) for one in (theirs, ours[list(theirs.columns)]))
    same = len(ours) == len(theirs) and (ours[order].astype(str) == theirs[order].astype(str)).all(axis=None)
    apart = float((ours.iloc[:, -1] - theirs.iloc[:, -1]).abs().max()) if same else math.inf
    if not apart <= 1e-9:
        raise SystemExit(f"{name}: pandas and DuckDB differ: {len(theirs)} and {len(ours)} rows, by {apart}")
    return {"rows": len(ours), "pandas": seconds, "duckdb": min(asked.seconds), "mb": mb}


STEPS: dict[str, Callable[..., dict[str, Any]]] = {
    "make": lambda folder, scale: make(folder, Scale(**json.loads(scale))),
    "build": build,
    "views": lambda folder, *names: each_view(folder / "results.duckdb", list(names)),
    "ranks": lambda folder: ranks(folder / "results.duckdb"),
    "pandas": asked_of_pandas,
}


def step(name: str, folder: Path, *rest: str) -> dict[str, Any]:
    """What a process of its own answers as its last line; the lines before it are printed."""
    command, last = [sys.executable, "-m", "bench.store", "--step", name, str(folder), *rest], "{}"
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if line.startswith("{"):
                last = line
            else:
                print(line, end="", flush=True)
    if running.returncode:
        raise SystemExit(f"{name} {' '.join(rest)} failed")
    return dict(json.loads(last))


def prepared(folder: Path, scale: Scale) -> dict[str, float]:
    """The catalogue of a scale, made unless it is there; what its build took."""
    note = folder / "built.json"
    if not note.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        if not sources(folder):
            made = step("make", folder, json.dumps(vars(scale)))
            rows = f"{scale.geometry} geometry rows and {scale.spectra} spectra"
            print(f"made {rows} in {made['seconds']:.0f} s", flush=True)
        note.write_text(json.dumps(step("build", folder)))
    built = dict(json.loads(note.read_text()))
    print(f"built {built['gb']:.2f} GB in {built['seconds']:.1f} s, {built['mb']:.0f} MB", flush=True)
    return built


@contextmanager
def place(asked: str | None) -> Iterator[Path]:
    """A folder for what is made: the one asked for, or one that goes away."""
    if asked:
        yield Path(asked)
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def run(folder: Path, scales: dict[str, Scale], only: list[str]) -> dict[str, Any]:
    """Print the tables, and answer with the last line."""
    print(f"load {os.getloadavg()[0]:.1f}, {THREADS} threads, memory {MEMORY}", flush=True)
    built = prepared(folder / "views", scales["views"])
    found: dict[str, dict[str, float]] = step("views", folder / "views", *only)
    slowest = max(max(one["all"], one["page"]) for one in found.values())
    answer: dict[str, Any] = {"slowest_view_s": round(slowest, 2)}
    answer["cpu_s"] = round(max(one["cpu"] for one in found.values()), 2)
    if only:
        return answer
    million = prepared(folder / "million", scales["million"])
    by_layer = {}
    for name, where in (("100k", "views"), ("1m", "million")):
        by_layer[name] = step("ranks", folder / where)
        print(_line(f"ranks by layer, {scales[where].spectra}", by_layer[name]), flush=True)
    print(f"{'question':28s} {'rows':>10s} {'pandas s':>8s} {'duckdb s':>8s} {'ratio':>8s} {'pandas MB':>9s}")
    from bench.store_pandas import QUESTIONS

    ratios = []
    for name in QUESTIONS:
        one = step("pandas", folder / "views", name)
        ratios.append(one["pandas"] / one["duckdb"])
        seconds = f"{one['pandas']:8.2f} {one['duckdb']:8.3f} {ratios[-1]:8.1f}"
        print(f"{name:28s} {one['rows']:10.0f} {seconds} {one['mb']:9.0f}", flush=True)
    return answer | {
        "speedup_vs_pandas": round(statistics.geometric_mean(ratios), 1),
        "peak_mb": round(max(one["mb"] for one in (*found.values(), *by_layer.values()))),
        "build_s": round(built["seconds"], 1),
        "build_mb": round(max(built["mb"], million["mb"])),
        **{f"ranks_{name}_s": round(one["all"], 2) for name, one in by_layer.items()},
    }


def _line(name: str, one: dict[str, float]) -> str:
    seconds = f"{one['all']:8.3f} {one['median']:8.3f} {one['cpu']:8.3f} {one['page']:8.3f}"
    return f"{name:28s} {one['rows']:10.0f} {seconds} {one['mb']:6.0f}"


def main() -> None:
    """Run the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a hundred-and-twenty-fifth of the rows; under a minute")
    parser.add_argument("--folder", help="where tables and catalogues are kept; 30 GB")
    parser.add_argument("--only", nargs="*", default=[], metavar="VIEW", help="these views, and nothing else")
    parser.add_argument("--step", nargs="+", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.step:
        name, folder, *rest = asked.step
        print(json.dumps(STEPS[name](Path(folder), *rest)))
        return
    with place(asked.folder) as folder:
        print(json.dumps(run(folder, QUICK if asked.quick else FULL, asked.only)))


if __name__ == "__main__":
    main()
