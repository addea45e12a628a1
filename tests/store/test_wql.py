"""WQL of the view `scores`, made of rows of `forecasts`, against gluonts' own evaluation of the same forecasts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.store.conftest import valid_row
from tests.tasks.forecasting.gluonts_scores import LEVELS, gluonts_scores
from tsfmscope import store
from tsfmscope.store import catalogue, files
from tsfmscope.tasks.forecasting.scores import score

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


def scored(made: dict[str, Any], folder: Path, reasons: dict[int, str] | None = None) -> dict:
    """The one row of `scores` over the windows; those of `reasons` have no forecast."""
    from tsfmscope.tasks.entries.forecasts import unscored_columns

    found = score(
        made["target"], made["quantiles"], LEVELS, context=np.array(made["past"]), past=made["past"], season=7
    )
    rows = [
        valid_row("forecasts") | found.row(n) | (unscored_columns((reasons or {})[n]) if n in (reasons or {}) else {})
        | {"series": f"s{n}", "origin": PAST, "levels": list(LEVELS), "job_key": "j"}
        for n in range(len(made["target"]))
    ]  # fmt: skip
    studies = [{"study": "s", "stage": "forecasts", "job_key": "j"}]
    tables = {"forecasts": rows, "study_jobs": studies, "checkpoints": [valid_row("checkpoints")]}
    for name, lines in tables.items():
        files.write_rows(folder / name, name, lines)
    catalogue.build(folder / "r.duckdb", {name: [folder / name] for name in tables})
    with store.open(folder / "r.duckdb") as connection:
        (line,) = connection.sql("select * from scores").to_arrow_table().to_pylist()
    return dict(line)


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(case(8), id="plain"),
        pytest.param(case(8, missing=0.3), id="missing targets"),
        pytest.param(case(8, zero=(0, 5)), id="windows of zeros"),
        pytest.param(case(1), id="one window"),
        pytest.param(case(8, scale=1e-30), id="tiny"),
        pytest.param(case(8, scale=1e30), id="huge"),
    ],
)
def test_wql_is_pooled_over_windows_as_gluonts_does_it(made: dict[str, Any], tmp_path: Path) -> None:
    found, theirs = scored(made, tmp_path), gluonts_scores(made, 7)
    assert found["wql"] == pytest.approx(float(theirs["wql"][0]), rel=1e-9)
    has_size = np.nansum(np.abs(made["target"]), axis=1) > 0  # elsewhere gluonts leaves the loss undivided
    finite = theirs["wql_window"][has_size]
    assert found["wql_window_mean"] == pytest.approx(float(finite.mean()), rel=1e-9)
    assert found["n_null_wql"] == len(made["target"]) - len(finite)
    if len(made["target"]) == 1:
        assert found["wql"] == pytest.approx(found["wql_window_mean"], rel=1e-12)
    else:  # the two are told apart: levels differ a hundredfold
        assert abs(np.log(found["wql"] / found["wql_window_mean"])) > 0.02


def test_wql_is_null_where_every_target_is_zero_and_the_windows_are_counted(tmp_path: Path) -> None:
    found = scored(case(3, zero=(0, 1, 2)), tmp_path)
    assert (found["wql"], found["wql_window_mean"], found["n"], found["n_null_wql"]) == (None, None, 3, 3)


def test_a_window_without_a_forecast_is_in_neither_sum(tmp_path: Path) -> None:
    made = case(4)
    kept = {name: values[:3] for name, values in made.items()}
    found = scored(made, tmp_path, reasons={3: "the context is constant"})
    assert found["wql"] == pytest.approx(float(gluonts_scores(kept, 7)["wql"][0]), rel=1e-9)
    assert (found["n"], found["n_null_wql"]) == (4, 1)
