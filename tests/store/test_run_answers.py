"""Timeline and idle share, compared with plain Python on made-up jobs."""

from __future__ import annotations

import itertools
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from importlib.resources import files as resources
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

START = datetime(2026, 1, 1, tzinfo=UTC)
SQL = resources("store") / "sql"
VIEWS = ("answers/timeline", "answers/idle_share")
TABLES = """
create table timings (stage varchar, key varchar, subject varchar, seconds double, load_seconds double, actor varchar,
    node varchar, device varchar, started timestamptz);
create table runs (stage varchar, started timestamptz, seconds double);
create table failures (key varchar, error varchar);
"""


class Timed(NamedTuple):
    """A job; start, load and took in seconds, start that of the load before it."""

    actor: int
    start: float
    load: float
    took: float
    subject: str = "m"
    node: str = "n"

    @property
    def end(self) -> float:
        return self.start + self.load + self.took


@pytest.fixture(scope="module")
def run():
    """`run(jobs)`: both views of one run of these jobs, which lasted an hour; rows as dicts, by view."""
    with duckdb.connect(config={"threads": "1"}) as connection:
        connection.execute(TABLES)
        for view in VIEWS:
            text = (SQL / f"{view}.sql").read_text(encoding="utf-8")
            connection.execute(f"create view {Path(view).name} as {text}")

        def ask(jobs: list[Timed], runs: tuple[tuple[float, float], ...] = ((0.0, 3600.0),)) -> dict[str, list[dict]]:
            for table in ("timings", "runs", "failures"):
                connection.execute(f"delete from {table}")
            insert(connection, "runs", [("s", at(start), seconds) for start, seconds in runs])
            lines = [
                ("s", str(n), job.subject, job.took, job.load, f"actor-{job.actor}", job.node, "cpu", at(start))
                for n, job in enumerate(jobs)
                for start in [job.start + job.load]
            ]
            insert(connection, "timings", lines)
            names = (Path(view).name for view in VIEWS)
            return {name: connection.sql(f"from {name}").to_arrow_table().to_pylist() for name in names}

        yield ask


def insert(connection: duckdb.DuckDBPyConnection, table: str, rows: list[tuple]) -> None:
    if rows:
        held = pa.table({f"c{n}": list(column) for n, column in enumerate(zip(*rows, strict=True))})
        connection.register("held", held)
        connection.execute(f"insert into {table} select * from held")


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def covered(spans: list[tuple[float, float]]) -> float:
    """Length of the union, by sweeping over every point where something begins or ends."""
    points = sorted({point for span in spans for point in span})
    return sum(b - a for a, b in itertools.pairwise(points) if any(low <= a and b <= high for low, high in spans))


def naive(jobs: list[Timed]) -> tuple[float, dict[int, float]]:
    """Idle share of all actors together, and of each."""
    by_actor: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for job in jobs:
        by_actor[job.actor].append((job.start, job.end))
    lives = {actor: (min(s for s, _ in own), max(e for _, e in own)) for actor, own in by_actor.items()}
    at_once = max(sum(low <= moment < high for low, high in lives.values()) for moment, _ in lives.values())
    span = max(job.end for job in jobs) - min(job.start for job in jobs)
    busy = {actor: covered(own) for actor, own in by_actor.items()}
    each = {actor: 1 - busy[actor] / (high - low) for actor, (low, high) in lives.items()}
    return 1 - sum(busy.values()) / (max(1, at_once) * span), each


quarters = st.integers(0, 40).map(lambda n: n / 4)  # exact in binary and in microseconds: jobs may touch each other
lengths = st.integers(1, 12).map(lambda n: n / 4)
timed = st.builds(
    Timed, st.integers(0, 3), quarters, st.sampled_from([0.0, 0.5, 2.0]), lengths, st.just("m"), st.just("n")
)


@settings(max_examples=25, deadline=None)
@given(st.lists(timed, min_size=1, max_size=12))
def test_idle_shares_are_those_of_a_sweep_over_all_moments_whether_jobs_overlap_touch_or_part(run, jobs) -> None:
    found = run(jobs)
    together, each = naive(jobs)
    (whole,) = [row for row in found["idle_share"] if row["actor"] is None]
    assert whole["idle_share"] == pytest.approx(together, abs=1e-9)
    own = {row["actor"]: row["idle_share"] for row in found["idle_share"] if row["actor"]}
    assert own == {f"actor-{actor}": pytest.approx(share, abs=1e-9) for actor, share in each.items()}
    assert all(-1e-9 <= share < 1 for share in own.values())
    assert (whole["jobs"], whole["failed"]) == (len(jobs), 0)
    first = min(job.start for job in jobs)
    rows = sorted(found["timeline"], key=lambda row: int(row["key"]))
    assert [(row["began"], row["ended"]) for row in rows] == [
        (pytest.approx(job.start - first), pytest.approx(job.end - first)) for job in jobs
    ]


def test_an_actor_in_a_dead_ones_place_is_none_more(run) -> None:
    jobs = [Timed(0, 0.0, 0.0, 10.0), Timed(1, 0.0, 0.0, 4.0), Timed(2, 5.0, 1.0, 4.0)]
    (whole,) = [row for row in run(jobs)["idle_share"] if row["actor"] is None]
    assert (whole["actors"], whole["span_seconds"], whole["busy_seconds"]) == (2, 10.0, 19.0)
    assert whole["idle_share"] == pytest.approx(0.05)
    assert whole["loading_share"] == pytest.approx(1 / 19)
    assert whole["outside_seconds"] == pytest.approx(3590.0)


def test_a_job_belongs_to_the_run_that_it_started_in_and_to_none_where_that_run_was_killed(run) -> None:
    jobs = [Timed(0, start, 0.0, 1.0) for start in (5.0, 20.0, 45.0, 60.0, 99.0)]
    found = run(jobs, runs=((0.0, 10.0), (40.0, 30.0)))  # 20 and 99: between and after the runs that have a row
    places = {int(row["key"]): row["run"] for row in found["timeline"]}
    assert places == {0: at(0), 1: None, 2: at(40), 3: at(40), 4: None}
    spans = [(row["run"], row["jobs"], row["span_seconds"]) for row in found["idle_share"] if row["actor"] is None]
    assert spans == [(at(0), 1, 1.0), (at(40), 2, 16.0)]


def test_jobs_without_length_and_no_jobs_at_all_have_no_idle_share(run) -> None:
    found = run([Timed(0, 1.0, 0.0, 0.0)])
    assert {row["idle_share"] for row in found["idle_share"]} == {None}
    assert run([]) == {"timeline": [], "idle_share": []}
