"""The catalogue at ten million geometry rows: every view, ranks of a million spectra, and a comparison with pandas.

    python -m bench.store [--quick] [--folder DIR] [--only VIEW ...]

The benchmark makes tables of the store's schema (bench/store_rows.py), writes them as the store writes
Parquet, and builds a results.duckdb with tsfmscope.store.catalogue. Then it measures, each in a process of its own:
- every view, on a read-only connection of its own with two threads and MEMORY;
- ranks by layer over 100,000 and a million spectra of 768 singular values, at all six tolerances of
  flow_of_ranks;
- the same questions in pandas, which reads the columns that it needs from the same Parquet files. Its results
  are compared with those of DuckDB.

A view's seconds are the best of RUNS: `all` counts every column of every row, so that all values are computed
and none is fetched; `page` fetches the first thousand rows. `cpu` is the CPU seconds of the last run of
`all`, both threads together; half of it estimates the time on an idle machine. Peaks are of the process that
runs the query, its libraries included. With --folder the tables are made in that folder, kept, and reused by
the next run.

The last line is JSON: slowest_view_s (of `all` and `page`), speedup_vs_pandas (geometric mean), peak_mb (of
the views and ranks), cpu_s (the most of a view), build_s, build_mb, ranks_100k_s and ranks_1m_s (with
--quick, of two and ten thousand spectra).
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
from tsfmscope.store import catalogue
from tsfmscope.store.query import LOCKED

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
    """Connect as store.open does, within MEMORY; unlocked, so that the progress bar can be turned off."""
    spilled = {"memory_limit": MEMORY, "temp_directory": str(path.parent / "spilled")}
    config = LOCKED | spilled | {"threads": str(THREADS), "lock_configuration": "false"}
    connection = duckdb.connect(str(path), read_only=True, config=config)
    connection.execute("set enable_progress_bar = false")
    return connection


class Timed(NamedTuple):
    """Elapsed seconds of each run on a connection of its own, CPU seconds of the last run, and the result."""

    seconds: list[float]
    cpu: float
    found: pa.Table

    def line(self) -> dict[str, float]:
        """Return the numbers for a row of the printed table."""
        return {"all": min(self.seconds), "median": statistics.median(self.seconds), "cpu": self.cpu}


def timed(path: Path, asked: str) -> Timed:
    """Run a query RUNS times and return its times and result."""
    seconds = []
    for _ in range(RUNS):
        with connect(path) as connection:
            start, cpu = time.perf_counter(), time.process_time()
            found = connection.sql(asked).to_arrow_table()
            seconds.append(time.perf_counter() - start)
            cpu = time.process_time() - cpu
    return Timed(seconds, cpu, found)


def views() -> list[str]:
    """Return the name of every view."""
    sql = resources("tsfmscope.store") / "sql"
    return [name for folder in ("answers", "views") for name, _ in catalogue.queries(sql / folder)]


def view(path: Path, name: str) -> dict[str, float]:
    """Return a view's number of rows, and the seconds of both queries, `all` and `page`."""
    held()
    whole = timed(path, f"select count(columns(*)) from {name}")
    page = timed(path, f"select * from {name} limit {PAGE}")
    with connect(path) as connection:
        ((rows,),) = connection.sql(f"select count(*) from {name}").fetchall()
    return {"rows": rows, **whole.line(), "page": min(page.seconds), "mb": peak() / MIB}


def each_view(path: Path, names: list[str]) -> dict[str, dict[str, float]]:
    """Measure each view, print the table, and return its rows by name."""
    print(
        f"{'view':28s} {'rows':>10s} {'all s':>8s} {'median':>8s} {'cpu s':>8s} {'page s':>8s} {'MB':>6s}", flush=True
    )
    found = {}
    for name in names or views():
        found[name] = view(path, name)
        print(_line(name, found[name]), flush=True)
    return found


def ranks(path: Path) -> dict[str, float]:
    """Measure the query for ranks by layer."""
    held()
    asked = timed(path, RANKS)
    return {"rows": len(asked.found), **asked.line(), "page": min(asked.seconds), "mb": peak() / MIB}


def make(folder: Path, scale: Scale) -> dict[str, float]:
    """Write the tables of a scale; return the seconds and the peak memory in MiB."""
    start = time.perf_counter()
    Rows(scale).write(folder)
    return {"seconds": time.perf_counter() - start, "mb": peak() / MIB}


def build(folder: Path) -> dict[str, float]:
    """Build the catalogue, then fill `inference` by SQL, since the stage that fills it runs permutations."""
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
    """Return the files of every table, by name of the table."""
    folders = [one for one in folder.iterdir() if any(one.glob("*.parquet"))]
    return {one.name: sorted(one.glob("*.parquet")) for one in folders}


def asked_of_pandas(folder: Path, name: str) -> dict[str, float]:
    """Return the seconds of pandas and DuckDB; exit if their results differ by more than 1e-9."""
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
    """Run a step in a process of its own; print its output, and return the JSON of its last line."""
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
    """Make the catalogue of a scale unless it exists; return the costs of its build."""
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
    """Yield the folder for tables and catalogues: the given one, or a temporary one."""
    if asked:
        yield Path(asked)
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def run(folder: Path, scales: dict[str, Scale], only: list[str]) -> dict[str, Any]:
    """Print the tables; return the values of the last line."""
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
