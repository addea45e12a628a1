"""The catalogue at ten million geometry rows: every view, ranks of a million spectra, and a comparison with pandas.

    python -m bench.store [--quick] [--folder DIR] [--only VIEW ...]

The benchmark makes tables of the store's schema (bench/store_rows.py), writes them as the store writes
Parquet, and builds a results.duckdb with store.catalogue. Then it measures, each in a process of its own:
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

from bench.memory import MIB, peak, resident_bytes
from bench.store_rows import Rows, Scale
from store import catalogue
from tsfmscope.functions.results import LOCKED

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


class QueryTimes(NamedTuple):
    """Elapsed seconds of each run on a connection of its own, CPU seconds of the last run, and the result."""

    seconds: list[float]
    cpu: float
    table: pa.Table

    def line(self) -> dict[str, float]:
        """Return the numbers for a row of the printed table."""
        return {"all": min(self.seconds), "median": statistics.median(self.seconds), "cpu": self.cpu}


def time_query(path: Path, sql: str) -> QueryTimes:
    """Run a query RUNS times and return its times and result."""
    seconds = []
    for _ in range(RUNS):
        with connect(path) as connection:
            start, cpu = time.perf_counter(), time.process_time()
            table = connection.sql(sql).to_arrow_table()
            seconds.append(time.perf_counter() - start)
            cpu = time.process_time() - cpu
    return QueryTimes(seconds, cpu, table)


def views() -> list[str]:
    """Return the name of every view."""
    sql = resources("store") / "sql"
    return [name for folder in ("answers", "views") for name, _ in catalogue.queries(sql / folder)]


def view(path: Path, name: str) -> dict[str, float]:
    """Return a view's number of rows, and the seconds of both queries, `all` and `page`."""
    resident_bytes()
    whole = time_query(path, f"select count(columns(*)) from {name}")
    page = time_query(path, f"select * from {name} limit {PAGE}")
    with connect(path) as connection:
        ((rows,),) = connection.sql(f"select count(*) from {name}").fetchall()
    return {"rows": rows, **whole.line(), "page": min(page.seconds), "mb": peak() / MIB}


def each_view(path: Path, names: list[str]) -> dict[str, dict[str, float]]:
    """Measure each view, print the table, and return its rows by name."""
    print(
        f"{'view':28s} {'rows':>10s} {'all s':>8s} {'median':>8s} {'cpu s':>8s} {'page s':>8s} {'MB':>6s}", flush=True
    )
    rows = {}
    for name in names or views():
        rows[name] = view(path, name)
        print(_line(name, rows[name]), flush=True)
    return rows


def ranks(path: Path) -> dict[str, float]:
    """Measure the query for ranks by layer."""
    resident_bytes()
    times = time_query(path, RANKS)
    return {"rows": len(times.table), **times.line(), "page": min(times.seconds), "mb": peak() / MIB}


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
            with tests as (
                select study, 'correlation' as answer, measure, "grouping", 'all' as block, 'spearman' as statistic
                from correlation_blocks
                union
                select study, answer, measure, "grouping", block, statistic
                from rank_units
                union
                select study, if(kind = 'dataset', 'sign_test', kind || '_effect'), measure, kind, pair, statistic
                from pair_signs
            )
            select
                *, 9 as n, 9 as n_clusters, 0.5 as estimate, 0.05 as alpha, 0 as seed, 0.01 as p, 1 as n_tests,
                -1.0 as low, 1.0 as high
            from tests
        """)
    return {"seconds": seconds, "mb": mb, "gb": (folder / "results.duckdb").stat().st_size / 1e9}


def sources(folder: Path) -> dict[str, list[Path]]:
    """Return the files of every table, by name of the table."""
    folders = [path for path in folder.iterdir() if any(path.glob("*.parquet"))]
    return {path.name: sorted(path.glob("*.parquet")) for path in folders}


def compare_with_pandas(folder: Path, name: str) -> dict[str, float]:
    """Return the seconds of pandas and DuckDB; exit if their results differ by more than 1e-9."""
    from bench.store_pandas import QUESTIONS

    question = QUESTIONS[name]
    start = time.perf_counter()
    theirs = question.pandas(sources(folder))
    seconds, mb = time.perf_counter() - start, peak() / MIB
    times = time_query(folder / "results.duckdb", question.sql)
    results = times.table.to_pandas()
    order = list(theirs.columns[:-1])
    theirs, results = (
        frame.sort_values(order).reset_index(drop=True) for frame in (theirs, results[list(theirs.columns)])
    )
    same = len(results) == len(theirs) and (results[order].astype(str) == theirs[order].astype(str)).all(axis=None)
    difference = float((results.iloc[:, -1] - theirs.iloc[:, -1]).abs().max()) if same else math.inf
    if not difference <= 1e-9:
        raise SystemExit(f"{name}: pandas and DuckDB differ: {len(theirs)} and {len(results)} rows, by {difference}")
    return {"rows": len(results), "pandas": seconds, "duckdb": min(times.seconds), "mb": mb}


STEPS: dict[str, Callable[..., dict[str, Any]]] = {
    "make": lambda folder, scale: make(folder, Scale(**json.loads(scale))),
    "build": build,
    "views": lambda folder, *names: each_view(folder / "results.duckdb", list(names)),
    "ranks": lambda folder: ranks(folder / "results.duckdb"),
    "pandas": compare_with_pandas,
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


def prepare(folder: Path, scale: Scale) -> dict[str, float]:
    """Make the catalogue of a scale unless it exists; return the costs of its build."""
    note = folder / "built.json"
    if not note.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        if not sources(folder):
            costs = step("make", folder, json.dumps(vars(scale)))
            rows = f"{scale.geometry} geometry rows and {scale.spectra} spectra"
            print(f"made {rows} in {costs['seconds']:.0f} s", flush=True)
        note.write_text(json.dumps(step("build", folder)))
    built = dict(json.loads(note.read_text()))
    print(f"built {built['gb']:.2f} GB in {built['seconds']:.1f} s, {built['mb']:.0f} MB", flush=True)
    return built


@contextmanager
def work_folder(path: str | None) -> Iterator[Path]:
    """Yield the folder for tables and catalogues: the given one, or a temporary one."""
    if path:
        yield Path(path)
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def run(folder: Path, scales: dict[str, Scale], only: list[str]) -> dict[str, Any]:
    """Print the tables; return the values of the last line."""
    print(f"load {os.getloadavg()[0]:.1f}, {THREADS} threads, memory {MEMORY}", flush=True)
    built = prepare(folder / "views", scales["views"])
    rows: dict[str, dict[str, float]] = step("views", folder / "views", *only)
    slowest = max(max(costs["all"], costs["page"]) for costs in rows.values())
    answer: dict[str, Any] = {"slowest_view_s": round(slowest, 2)}
    answer["cpu_s"] = round(max(costs["cpu"] for costs in rows.values()), 2)
    if only:
        return answer
    million = prepare(folder / "million", scales["million"])
    by_layer = {}
    for name, folder_name in (("100k", "views"), ("1m", "million")):
        by_layer[name] = step("ranks", folder / folder_name)
        print(_line(f"ranks by layer, {scales[folder_name].spectra}", by_layer[name]), flush=True)
    print(f"{'question':28s} {'rows':>10s} {'pandas s':>8s} {'duckdb s':>8s} {'ratio':>8s} {'pandas MB':>9s}")
    from bench.store_pandas import QUESTIONS

    ratios = []
    for name in QUESTIONS:
        costs = step("pandas", folder / "views", name)
        ratios.append(costs["pandas"] / costs["duckdb"])
        seconds = f"{costs['pandas']:8.2f} {costs['duckdb']:8.3f} {ratios[-1]:8.1f}"
        print(f"{name:28s} {costs['rows']:10.0f} {seconds} {costs['mb']:9.0f}", flush=True)
    return answer | {
        "speedup_vs_pandas": round(statistics.geometric_mean(ratios), 1),
        "peak_mb": round(max(costs["mb"] for costs in (*rows.values(), *by_layer.values()))),
        "build_s": round(built["seconds"], 1),
        "build_mb": round(max(built["mb"], million["mb"])),
        **{f"ranks_{name}_s": round(costs["all"], 2) for name, costs in by_layer.items()},
    }


def _line(name: str, costs: dict[str, float]) -> str:
    seconds = f"{costs['all']:8.3f} {costs['median']:8.3f} {costs['cpu']:8.3f} {costs['page']:8.3f}"
    return f"{name:28s} {costs['rows']:10.0f} {seconds} {costs['mb']:6.0f}"


def main() -> None:
    """Run the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a hundred-and-twenty-fifth of the rows; under a minute")
    parser.add_argument("--folder", help="where tables and catalogues are kept; 30 GB")
    parser.add_argument("--only", nargs="*", default=[], metavar="VIEW", help="these views, and nothing else")
    parser.add_argument("--step", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        name, folder, *arguments = options.step
        print(json.dumps(STEPS[name](Path(folder), *arguments)))
        return
    with work_folder(options.folder) as folder:
        print(json.dumps(run(folder, QUICK if options.quick else FULL, options.only)))


if __name__ == "__main__":
    main()
