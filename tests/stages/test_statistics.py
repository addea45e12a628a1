"""The stage's estimates against pandas and scipy, on made-up studies; what cannot be had says why."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from stages.config.params import load
from stages.planning.inference import infer
from stages.planning.sources import writers
from stages.statistics import main
from store import files
from store.schema import to_arrow
from tests.stages.estimates import differences
from tests.store.conftest import open_results, valid_row
from tsfmscope.statistics.options import SeededOptions

ROOT = Path(__file__).parents[2]
QUICK = SeededOptions(permutations=999, bootstrap=200, seed=3)
CONDITIONS = {"c500": (500, 0.0), "c100": (100, 0.0), "noisy": (500, 0.05)}
STUDIES: dict[str, dict[str, Any]] = {
    "whole": {"models": 5, "datasets": 8, "conditions": 3},
    "one-condition": {"models": 5, "datasets": 7, "conditions": 1},
    "holes-and-ties": {"models": 4, "datasets": 7, "conditions": 3, "missing": 0.15, "ties": True},
    "few-holes": {"models": 5, "datasets": 12, "conditions": 1, "missing": 0.03},
    "two-models": {"models": 2, "datasets": 6, "conditions": 2, "missing": 0.1},
    "two-of-each": {"models": 2, "datasets": 2, "conditions": 1},
    "one-model": {"models": 1, "datasets": 9, "conditions": 3, "ties": True},
    "one-dataset": {"models": 3, "datasets": 1, "conditions": 1},
    "one-unit": {"models": 1, "datasets": 1, "conditions": 1},
    "few-units": {"models": 5, "datasets": 3, "conditions": 2, "missing": 0.8},
    "no-units": {"models": 3, "datasets": 4, "conditions": 2, "missing": 1.0},
    "twelve-models": {"models": 12, "datasets": 3, "conditions": 2, "missing": 0.02},
}
STATISTICS = {"spearman", "kendall", "double_centred", "agreement", "more_isotropic", "more_error"}
STATISTICS |= {"changes_spearman"}
RULES = ("advised", "validation", "largest_context", "chance")
STATISTICS |= {f"regret_{rule}" for rule in RULES} | {f"advised_less_{rule}" for rule in (*RULES[1:], "chance_models")}
Tables = dict[str, list[dict[str, Any]]]


def tables(names: list[str]) -> Tables:
    """Tables of these studies. Data sets `a-1` and `a-2` share domain `a`; one measure is rounded, two are constant."""
    made: Tables = {name: [] for name in ("geometry", "forecasts", "validation", "partition", "study_jobs")}
    for study in names:
        past = np.random.default_rng(len(study))
        for n, (identity, zeta, nmse) in enumerate(units(seed=len(study), **STUDIES[study])):
            keys = {stage: f"{study}-{stage}-{n}" for stage in ("geometry", "forecasts")}
            if study in ("whole", "few-holes") and past.uniform() < 0.97:
                earlier = {"nmse": float(past.integers(1, 9)), "job_key": keys["forecasts"]}
                made["validation"].append(valid_row("forecasts") | identity | earlier)
            if study == "few-holes":
                made["partition"].append(
                    valid_row("partition") | identity | {"log_z_sd": past.uniform(), "job_key": "k"}
                )
            why = {"reason": None if zeta is not None and nmse is not None else "made so"}
            measures = {"zeta": zeta, "zeta_adjusted": None if zeta is None else round(zeta, 1)}
            measures |= {"zeta_adjusted_corrected": 0.5, "log_isotropy_scaled": -1.0}
            made["geometry"].append(valid_row("geometry") | identity | measures | why | {"job_key": keys["geometry"]})
            made["forecasts"].append(
                valid_row("forecasts") | identity | why | {"nmse": nmse, "job_key": keys["forecasts"]}
            )
            made["study_jobs"] += [{"study": study, "stage": stage, "job_key": key} for stage, key in keys.items()]
    made["checkpoints"] = [valid_row("checkpoints") | {"model": f"m{n}"} for n in range(22)]
    facts = {"source": "bundled", "freq": "D", "horizon": 4, "season": 7, "n_series": 1, "n_available": 1}
    facts |= {"n_steps": 99, "provenance": "made up"}
    made["datasets"] = [{"dataset": dataset(n), "domain": dataset(n)[0], **facts} for n in range(22)]
    return made


def dataset(n: int) -> str:
    return f"{chr(97 + n // 2)}-{n % 2 + 1}"


def units(
    seed: int, models: int, datasets: int, conditions: int, missing: float = 0.0, ties: bool = False
) -> Iterator[tuple[dict[str, Any], float | None, float | None]]:
    """Identity, zeta and NMSE of every unit; a share of either is missing."""
    generator = np.random.default_rng(seed)
    for m, d, condition in np.ndindex(models, datasets, conditions):
        name, (context, noise) = list(CONDITIONS.items())[condition]
        zeta, nmse = float(generator.uniform(-1, 1)), math.exp(generator.normal() + d / 4)
        if ties:
            zeta, nmse = round(zeta, 1), float(round(nmse) + 1)
        lost = generator.uniform(size=2) < missing
        identity = {"model": f"m{m}", "dataset": dataset(d), "condition": name, "context": context, "noise": noise}
        yield identity, None if lost[0] else zeta, None if lost[1] else nmse


@pytest.fixture(scope="module")
def inferred(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Every study's tables, `inference` among them."""
    made = tables(list(STUDIES))
    with open_results(tmp_path_factory.mktemp("units"), made) as connection:
        return made | {"inference": infer(connection, QUICK)}


@pytest.fixture(scope="module")
def connection(inferred: Tables, tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    """The catalogue with `inference`."""
    with open_results(tmp_path_factory.mktemp("whole"), inferred) as connection:
        yield connection


def shown(connection: duckdb.DuckDBPyConnection, sql: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = connection.sql(sql).to_arrow_table().to_pylist()
    return rows


def test_every_estimate_is_that_of_pandas_and_scipy_to_1e_9(connection: duckdb.DuckDBPyConnection) -> None:
    rows = shown(connection, "select * from inference where answer != 'mixed_model'")
    assert differences(connection, rows) == []
    defined = [row for row in rows if row["estimate"] is not None]
    assert {row["statistic"] for row in defined} == STATISTICS
    # no-units has isotropy, whose signs and changes are counted.
    assert {row["study"] for row in defined} == set(STUDIES) - {"one-unit"}


def test_a_changed_estimate_and_a_missing_row_are_differences(connection: duckdb.DuckDBPyConnection) -> None:
    rows = shown(connection, "select * from inference where answer != 'mixed_model' order by estimate nulls last")
    changed = rows[0] | {"estimate": rows[0]["estimate"] + 2e-9}
    assert len(differences(connection, [changed, *rows[2:]])) == 2


def test_correlation_has_interval_p_and_sizes_where_there_is_enough(connection: duckdb.DuckDBPyConnection) -> None:
    (row,) = shown(
        connection,
        """select * from correlation where study = 'whole' and measure = 'zeta' and "grouping" = 'within_dataset'""",
    )
    assert (row["n"], row["n_blocks"], row["n_tests"]) == (120, 8, 8)
    assert row["low"] < row["spearman"] < row["high"]
    assert row["p"] * 120 == pytest.approx(round(row["p"] * 120))
    assert row["p_smallest"] == pytest.approx(1 / 120)
    assert row["p"] <= row["p_bh"] <= row["p_by"] <= 1
    assert row["double_centred_p"] * 1000 == pytest.approx(round(row["double_centred_p"] * 1000))
    assert 0 < row["critical"] < row["detectable"] < 1
    assert "all 120 orders" in row["method"] and "resampled: 8 data sets and 5 models" in row["interval_method"]


def test_the_pooled_rho_has_no_p_and_says_that_it_is_no_evidence(connection: duckdb.DuckDBPyConnection) -> None:
    rows = shown(connection, """select * from correlation where "grouping" = 'pooled' and study = 'whole'""")
    assert all(row["p"] is None and row["low"] is None and "no evidence" in row["reason"] for row in rows)


@pytest.mark.parametrize(
    ("study", "answer", "reason"),
    [
        ("two-models", "correlation", "2 models on 6 data sets, needs 3 on 2"),
        ("one-dataset", "correlation_by_model", "1 units with isotropy and NMSE, needs 3"),
        ("one-condition", "correlation_by_dataset", "5 models, needs 6"),
        ("no-units", "correlation", "0 units with isotropy and NMSE, needs 3"),
        ("no-units", "sign_test", "no pair has both values"),
        ("whole", "correlation", "isotropy constant"),
        ("whole", "sign_test", "all units are equal, or lie on a line"),
        ("one-dataset", "mixed_model", "1 data sets with units, needs 5"),
        ("holes-and-ties", "correlation", "data sets left out, a column is missing"),
    ],
)
def test_what_cannot_be_had_says_why(
    connection: duckdb.DuckDBPyConnection, study: str, answer: str, reason: str
) -> None:
    rows = shown(connection, f"select reason, method from inference where study = '{study}' and answer = '{answer}'")
    assert any(reason in (row["reason"] or "") + (row["method"] or "") for row in rows), rows


def test_two_models_say_that_p_cannot_be_below_one_half(connection: duckdb.DuckDBPyConnection) -> None:
    rows = shown(
        connection,
        """select p, p_smallest, critical, detectable from correlation
        where study = 'two-models' and measure = 'zeta' and "grouping" = 'within_dataset'""",
    )
    assert rows[0]["p"] in (0.5, 1.0)
    assert rows[0]["p_smallest"] >= 0.5
    assert rows[0]["critical"] is rows[0]["detectable"] is None


def test_pairs_are_the_data_sets_of_a_domain_contexts_and_noise_levels(connection: duckdb.DuckDBPyConnection) -> None:
    signs = shown(connection, "select * from sign_test where study = 'whole' and measure = 'zeta'")
    assert [(row["n"], row["n_clusters"], row["p_smallest"]) for row in signs] == [(60, 4, 0.125)]
    for view, pair in (("context_effect", "c500 > c100"), ("noise_effect", "c500 > noisy")):
        rows = shown(connection, f"select * from {view} where study = 'whole' and measure in ('zeta', 'log_nmse')")
        assert [row["statistic"] for row in rows] == ["more_error", "agreement", "changes_spearman", "more_isotropic"]
        assert {(row["pair"], row["n"], row["n_clusters"]) for row in rows} == {(pair, 40, 8)}
        assert all(0 <= row["p"] <= 1 for row in rows)
        assert {row["p_smallest"] for row in rows if row["statistic"] != "changes_spearman"} == {2**-7}


def test_p_is_adjusted_over_each_printed_table(inferred: Tables) -> None:
    rows = [row for row in inferred["inference"] if (row["study"], row["answer"]) == ("whole", "correlation_by_model")]
    p = sorted(row["p"] for row in rows if row.get("p") is not None)
    assert {row["n_tests"] for row in rows} == {len(p)} == {10}
    smallest = min(len(p) * value / (n + 1) for n, value in enumerate(p))
    assert min(row["p_bh"] for row in rows if row.get("p") is not None) == pytest.approx(min(1, smallest))


def test_the_stage_writes_the_same_bytes_again_and_the_same_numbers_whatever_else_is_studied(
    inferred: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, lines in tables(["few-holes"]).items():
        stage = writers(name)[0] if name != "study_jobs" else "geometry"
        files.write_rows(tmp_path / "data" / stage / f"{name}.parquet", name, lines)
    params = load(ROOT / "params" / "full.yaml")
    quick = params.statistics.model_copy(update={"permutations": QUICK.permutations, "bootstrap": QUICK.bootstrap})
    written = []
    for _ in range(2):
        main(params.model_copy(update={"statistics": quick, "seed": QUICK.seed}))
        written.append((tmp_path / "data/statistics/inference.parquet").read_bytes())
    assert written[0] == written[1]
    before = to_arrow("inference", [row for row in inferred["inference"] if row["study"] == "few-holes"])
    assert files.read_parquet(tmp_path / "data/statistics/inference.parquet").equals(before)
