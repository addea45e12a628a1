"""Answers that compare contexts mark those that no series fills, and the advice leaves them out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.store.conftest import open_inferred_results

CONTEXTS = {"c500": 500, "c100": 100}
LENGTHS = {"long": (100, 500, 500), "short": (16, 94, 95), "mixed": (40, 60, 500)}  # most steps of each series


@pytest.fixture(scope="module")
def connection(
    rows: dict[str, dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[duckdb.DuckDBPyConnection]:
    folder: Path = tmp_path_factory.mktemp("observed")
    made: dict[str, list[dict[str, Any]]] = {name: [] for name in ("geometry", "forecasts", "study_jobs")}
    for n, (model, name, condition) in enumerate(itertools.product("abc", LENGTHS, CONTEXTS)):
        identity = {"model": model, "dataset": name, "condition": condition, "context": CONTEXTS[condition]}
        keys = {stage: f"{stage}-{n}" for stage in ("geometry", "forecasts")}
        cosine = {"zeta": (n % 7 + 1) / 10, "zeta_adjusted_corrected": (n % 5 + 1) / 10}
        made["geometry"].append(rows["geometry"] | identity | cosine | {"job_key": keys["geometry"]})
        for series, steps in enumerate(LENGTHS[name]):
            window = {"series": f"s{series}", "origin": steps, "nmse": 1 + n % 4}
            window["n_context"] = min(steps, CONTEXTS[condition]) - series  # missing steps do not count as padding
            made["forecasts"].append(rows["forecasts"] | identity | window | {"job_key": keys["forecasts"]})
        none = {"series": "none", "origin": 10_000, "n_context": 0, "nmse": None, "reason": "not forecast: too short"}
        made["forecasts"].append(rows["forecasts"] | identity | none | {"job_key": keys["forecasts"]})
        made["study_jobs"] += [{"study": "s", "stage": stage, "job_key": key} for stage, key in keys.items()]
    made["checkpoints"] = [rows["checkpoints"] | {"model": model} for model in "abc"]
    with open_inferred_results(folder, made) as opened:
        yield opened


def test_observed_steps_of_a_condition_stand_beside_its_context(connection: duckdb.DuckDBPyConnection) -> None:
    found = connection.sql(
        """select distinct dataset, context, n_context_min, n_context_median, is_filled from nmse_against_isotropy
        order by dataset, context"""
    ).fetchall()
    assert found == [
        ("long", 100, 98, 99.0, True),
        ("long", 500, 100, 498.0, True),
        ("mixed", 100, 40, 59.0, True),
        ("mixed", 500, 40, 59.0, True),
        ("short", 100, 16, 93.0, False),
        ("short", 500, 16, 93.0, False),
    ]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("select n, n_unfilled from context_effect where measure = 'zeta' and statistic = 'agreement'", {(9, 3)}),
        (
            """select n_candidates, n_unfilled from advice_regret
            where measure = 'zeta_adjusted_corrected' and "grouping" = 'context'""",
            {(12, 6)},
        ),
        ("""select n_unfilled from correlation where measure = 'zeta' and "grouping" = 'pooled'""", {(6,)}),
    ],
)
def test_comparisons_count_what_is_not_filled(
    connection: duckdb.DuckDBPyConnection, asked: str, expected: set[tuple[int, ...]]
) -> None:
    assert set(connection.sql(asked).fetchall()) == expected


def test_claims_on_isotropy_are_tested_by_the_cosine_less_its_null_mean(connection: duckdb.DuckDBPyConnection) -> None:
    of_isotropy = """answer in ('correlation', 'sign_test', 'context_effect', 'noise_effect')"""
    found = connection.sql(f"select distinct measure from published_claims where {of_isotropy}").fetchall()
    assert set(found) == {("zeta_adjusted_corrected",), ("log_nmse",)}
