"""What reading a model otherwise changes, against the same numbers from numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.store.conftest import open_results

BASE, ROUNDED, TRAINED, SAME = "t5", "t5-bfloat16", "t5-narrow", "t5-same"
OPTIONS = '{"precision": "bfloat16"}'
ASKED = "select * from options_effect"


@pytest.fixture(scope="module")
def made(rows) -> dict[str, list[dict[str, Any]]]:
    """A base on d0 to d2, the same weights otherwise on d0, d1 and one more, the same again, and other weights."""
    rng = np.random.default_rng(3)
    tables: dict[str, list[dict[str, Any]]] = {name: [] for name in ("forecasts", "geometry", "study_jobs")}
    for model, datasets in {
        BASE: ["d0", "d1", "d2"],
        ROUNDED: ["d0", "d1", "d9"],
        TRAINED: ["d0"],
        SAME: ["d0"],
    }.items():
        for dataset in datasets:
            which = {"model": model, "base_model": None if model == BASE else BASE, "dataset": dataset}
            for series in ("s0", "s1"):
                scores = {
                    "quantile_loss": rng.uniform(1, 2),
                    "target_abs": rng.uniform(9, 11),
                    "mase": rng.uniform(1, 2),
                }
                key = {"series": series, "job_key": f"f/{model}/{dataset}"}
                tables["forecasts"].append(rows["forecasts"] | which | scores | key)
            if dataset != "d1":  # isotropy of one cell alone
                state = {"zeta_adjusted_corrected": rng.uniform(-1, 1), "job_key": f"g/{model}/{dataset}"}
                tables["geometry"].append(rows["geometry"] | which | state)
                first = {"layer": 0, "normed": False, "zeta_adjusted_corrected": rng.uniform(-1, 1)}
                tables["geometry"].append(rows["geometry"] | which | first | {"job_key": f"h/{model}/{dataset}"})
                tables["study_jobs"].append({"study": "a", "stage": "geometry", "job_key": f"h/{model}/{dataset}"})
            for stage in ("forecasts", "geometry"):
                keys = f"{stage[0]}/{model}/{dataset}"
                tables["study_jobs"] += [{"study": study, "stage": stage, "job_key": keys} for study in ("s", "t")]
    plain = rows["checkpoints"] | {"fingerprint": "0" * 64}
    tables["checkpoints"] = [
        plain | {"model": BASE},
        plain | {"model": ROUNDED, "options": OPTIONS},
        plain | {"model": TRAINED, "fingerprint": "1" * 64},
        plain | {"model": SAME},
    ]
    return tables


def of(made: dict[str, list[dict[str, Any]]], table: str, model: str, dataset: str) -> list[dict[str, Any]]:
    return [row for row in made[table] if (row["model"], row["dataset"]) == (model, dataset)]


def test_ratios_and_changes_are_over_the_cells_that_both_have_of_the_same_weights(made, tmp_path: Path) -> None:
    with open_results(tmp_path, made) as connection:
        (found,) = connection.sql(ASKED).df().to_dict("records")

    def wql(model: str, dataset: str) -> float:
        lines = of(made, "forecasts", model, dataset)
        levels = len(lines[0]["levels"])
        return sum(row["quantile_loss"] for row in lines) / sum(row["target_abs"] * levels for row in lines)

    def mase(model: str, dataset: str) -> float:
        return float(np.mean([row["mase"] for row in of(made, "forecasts", model, dataset)]))

    wqls, mases = (
        np.exp(np.mean([np.log(score(ROUNDED, name) / score(BASE, name)) for name in ("d0", "d1")]))
        for score in (wql, mase)
    )
    before, after = (of(made, "geometry", model, "d0")[0] for model in (BASE, ROUNDED))
    assert found == {
        "base_model": BASE,
        "model": ROUNDED,
        "options": OPTIONS,
        "base_options": None,
        "n_cells": 2,
        "wql_ratio": pytest.approx(wqls),
        "n_mase": 2,
        "mase_ratio": pytest.approx(mases),
        "n_states": 1,
        "isotropy_change": pytest.approx(
            abs(before["zeta_adjusted_corrected"]) - abs(after["zeta_adjusted_corrected"])
        ),
    }
