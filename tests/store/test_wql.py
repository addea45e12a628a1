"""WQL of the view `scores`, made of rows of `forecasts`, against gluonts' own evaluation of the same forecasts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.store.conftest import open_results, valid_row
from tests.tsfmscope.forecasting.gluonts_scores import LEVELS, gluonts_scores
from tsfmscope.forecasting.scores import score

HORIZON, PAST = 12, 60


def case(windows: int, *, scale: float = 1.0, missing: float = 0.0, zero: tuple[int, ...] = ()) -> dict[str, Any]:
    """Random walks of levels that differ a hundredfold, with forecasts; the futures of the windows `zero` are 0."""
    rng = np.random.default_rng(windows)
    level = np.geomspace(1, 100, windows)[:, None]
    values = scale * level * (3 + rng.standard_normal((windows, PAST + HORIZON)).cumsum(axis=1) / 5)
    values[rng.random(values.shape) < missing] = np.nan
    values[list(zero), PAST:] = 0.0
    quantiles = scale * level[:, None] * np.sort(3 + rng.standard_normal((windows, 9, HORIZON)), axis=1)
    return {"target": values[:, PAST:], "quantiles": quantiles, "past": list(values[:, :PAST])}


# Data set -> its windows.
CASES = {
    "plain": case(8), "missing targets": case(8, missing=0.3), "windows of zeros": case(8, zero=(0, 5)),
    "one window": case(1), "tiny": case(8, scale=1e-30), "huge": case(8, scale=1e30),
}  # fmt: skip
ZEROS, LACKING = case(3, zero=(0, 1, 2)), case(4)


def forecasts(dataset: str, made: dict[str, Any], reasons: dict[int, str]) -> list[dict[str, Any]]:
    """Rows of `forecasts` of all windows; those of `reasons` have no forecast."""
    from tasks.forecasts import unscored_columns

    found = score(
        made["target"], made["quantiles"], LEVELS, context=np.array(made["past"]), past=made["past"], season=7
    )
    return [
        valid_row("forecasts") | found.row(n) | (unscored_columns(reasons[n]) if n in reasons else {})
        | {"dataset": dataset, "series": f"s{n}", "origin": PAST, "levels": list(LEVELS), "job_key": "j"}
        for n in range(len(made["target"]))
    ]  # fmt: skip


@pytest.fixture(scope="module")
def scores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Data set -> row of `scores`."""
    rows = [row for name, made in (CASES | {"zeros": ZEROS}).items() for row in forecasts(name, made, {})]
    rows += forecasts("lacking", LACKING, {3: "the context is constant"})
    studies = [{"study": "s", "stage": "forecasts", "job_key": "j"}]
    tables = {"forecasts": rows, "study_jobs": studies, "checkpoints": [valid_row("checkpoints")]}
    with open_results(tmp_path_factory.mktemp("wql"), tables) as connection:
        found = connection.sql("select * from scores").to_arrow_table().to_pylist()
    assert len(found) == len(CASES) + 2
    return {row["dataset"]: row for row in found}


@pytest.mark.parametrize("name", CASES)
def test_wql_is_pooled_over_windows_as_gluonts_does_it(scores, name: str) -> None:
    made, found = CASES[name], scores[name]
    theirs = gluonts_scores(made, 7)
    assert found["wql"] == pytest.approx(float(theirs["wql"][0]), rel=1e-9)
    has_size = np.nansum(np.abs(made["target"]), axis=1) > 0  # elsewhere gluonts leaves the loss undivided
    finite = theirs["wql_window"][has_size]
    assert found["wql_window_mean"] == pytest.approx(float(finite.mean()), rel=1e-9)
    assert found["n_null_wql"] == len(made["target"]) - len(finite)
    if len(made["target"]) == 1:
        assert found["wql"] == pytest.approx(found["wql_window_mean"], rel=1e-12)
    else:  # the two are told apart: levels differ a hundredfold
        assert abs(np.log(found["wql"] / found["wql_window_mean"])) > 0.02


def test_wql_is_null_where_every_target_is_zero_and_the_windows_are_counted(scores) -> None:
    found = scores["zeros"]
    assert (found["wql"], found["wql_window_mean"], found["n"], found["n_null_wql"]) == (None, None, 3, 3)


def test_a_window_without_a_forecast_is_in_neither_sum(scores) -> None:
    kept = {name: values[:3] for name, values in LACKING.items()}
    found = scores["lacking"]
    assert found["wql"] == pytest.approx(float(gluonts_scores(kept, 7)["wql"][0]), rel=1e-9)
    assert (found["n"], found["n_null_wql"]) == (4, 1)
