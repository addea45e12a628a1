"""Angles between vectors and scores against seasonal naive: the answers against the same numbers from numpy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pytest

from tests.store.conftest import open_results

HEADS = np.array([0, 0, 0, 1, 1, 1])  # of six rows of a W_Q
MODELS = ("seasonal-naive", "model", "model@half")
STUDY = "s"


def _symmetric(seed: int, size: int) -> np.ndarray:
    """Angles in [0, π/2] between `size` vectors, float32 as the table holds them."""
    half = np.triu(np.random.default_rng(seed).uniform(0, np.pi / 2, (size, size)), 1)
    return (half + half.T).astype(np.float32)


ROWS, TOKENS = _symmetric(0, len(HEADS)), _symmetric(1, 5)


def _angles(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    place = {"job_key": "angles", "stack": "encoder"}
    for n, head in enumerate(HEADS):
        own = {"what": "rows", "matrix": "q", "layer": 1, "row": n, "head": int(head)}
        yield row | place | own | {"angles": ROWS[n].tolist()}
    for n in range(len(TOKENS)):
        cell = {"dataset": "d", "condition": "c", "context": 64, "noise": 0.0}
        yield row | place | cell | {"what": "tokens", "layer": 0, "row": n, "angles": TOKENS[n].tolist()}


def _forecasts(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Three windows of two data sets for each model; one window lacks a MASE of a model, another a forecast."""
    rng, found = np.random.default_rng(2), []
    for model in MODELS:
        for dataset in ("d", "e"):
            for n in range(3):
                loss, mase = rng.uniform(0.5, 2, 2)
                own = {"model": model, "dataset": dataset, "series": f"s{n}", "job_key": f"{model} {dataset}"}
                own |= {"wql_window": loss / 10, "quantile_loss": loss, "mase": mase, "target_abs": 5.0}
                if (model, dataset, n) == ("model", "e", 0):
                    own |= {"mase": None, "reason": "seasonal error is 0"}
                if (model, dataset, n) == ("model@half", "d", 2):
                    own |= {"wql_window": None, "reason": "not forecast: made so"}
                if (dataset, n) == ("e", 1):  # a window of zeros has no ratio of its own; its losses count all the same
                    own |= {"wql_window": None, "target_abs": 0.0, "reason": "wql_window: the future is zero"}
                found.append(row | own)
    return found


@pytest.fixture(scope="module")
def forecasts(rows) -> list[dict[str, Any]]:
    return _forecasts(rows["forecasts"])


@pytest.fixture(scope="module")
def connection(
    tmp_path_factory: pytest.TempPathFactory, rows, forecasts: list[dict[str, Any]]
) -> Iterator[duckdb.DuckDBPyConnection]:
    folder = tmp_path_factory.mktemp("answers")
    tables = {"angles": list(_angles(rows["angles"])), "forecasts": forecasts}
    asked = [("spectra", "angles"), *dict.fromkeys(("forecasts", one["job_key"]) for one in forecasts)]
    tables["study_jobs"] = [{"study": STUDY, "stage": stage, "job_key": key} for stage, key in asked]
    half = {"model": "model@half", "base_model": "model", "attention_ratio": 0.5}
    tables["compression"] = [rows["compression"] | half]
    tables["checkpoints"] = [rows["checkpoints"] | {"model": model} for model in MODELS[1:]]
    with open_results(folder, tables) as opened:
        yield opened


def test_angles_are_of_each_pair_once_and_of_no_vector_with_itself(connection: duckdb.DuckDBPyConnection) -> None:
    asked = "select what, pairs, n_pairs, mean_angle, low_angle, high_angle from vector_angles"
    found = {(what, pairs): numbers for what, pairs, *numbers in connection.sql(asked).fetchall()}
    i, j = np.triu_indices(len(HEADS), 1)
    one = HEADS[i] == HEADS[j]
    expected = {
        ("rows", "of one head"): ROWS[i, j][one],
        ("rows", "of two heads"): ROWS[i, j][~one],
        ("tokens", "all"): TOKENS[np.triu_indices(len(TOKENS), 1)],
    }
    assert set(found) == set(expected)
    for key, angles in expected.items():
        degrees = np.degrees(angles.astype(np.float64))
        numbers = (len(degrees), degrees.mean(), *np.quantile(degrees, (0.05, 0.95)))
        assert found[key] == pytest.approx(numbers, rel=1e-5), key


def test_scores_are_ratios_to_seasonal_naive_over_windows_that_all_have(
    connection: duckdb.DuckDBPyConnection, forecasts: list[dict[str, Any]]
) -> None:
    asked = """select model, is_baseline, base_model, attention_ratio, n_cells, n_windows, wql_ratio, mase_ratio
        from forecast_scores"""
    found = {model: rest for model, *rest in connection.sql(asked).fetchall()}
    lacking = {
        (one["dataset"], one["series"])
        for one in forecasts
        if (one.get("reason") or "").startswith("not forecast") or one["mase"] is None
    }
    assert lacking == {("e", "s0"), ("d", "s2")}

    def score(model: str, name: str, dataset: str) -> float:
        kept = [one[name] for one in forecasts if (one["model"], one["dataset"]) == (model, dataset)
                and (dataset, one["series"]) not in lacking]  # fmt: skip
        return float(np.sum(kept) if name == "quantile_loss" else np.mean(kept))

    for model in MODELS:
        ratios = [
            np.prod([score(model, name, d) / score(MODELS[0], name, d) for d in "de"]) ** 0.5
            for name in ("quantile_loss", "mase")
        ]
        half = model == MODELS[2]
        told = [model == MODELS[0], "model" if half else None, 0.5 if half else None, 2, 4]
        assert found[model][:5] == told
        assert found[model][5:] == pytest.approx(ratios, rel=1e-12)
