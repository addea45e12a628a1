"""Series that break things, through the pipeline: every stage ends well and every gap in the results has its reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from store.generated_checks import generate
from store.schema import TABLES
from tests.e2e.checkout import ROOT, Checkout, checkout

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1800)]

# Model -> its layers, with both states of the last one, and its stacks.
MODELS = {"chronos-t5-mini": (10, 2), "lag-llama-mini": (6, 1)}
LARGEST = float(np.finfo(np.float32).max)
STEP = np.arange(160)
WALK = np.random.default_rng(0).standard_normal(160).cumsum()
NEVER = {  # item -> why no stage uses it
    "constant": (np.full(160, 3.0), "constant"),
    "zero": (np.zeros(160), "constant"),
    "all-nan": (np.full(160, np.nan), "all NaN"),
    "infinite": (np.where(STEP == 120, np.inf, WALK), "infinite"),
    "beyond-float32": (np.where(STEP == 120, 1e300, WALK), "infinite"),
    "empty": (WALK[:0], "empty"),
    "one-step": (WALK[:1], "too short: under 32 steps"),
    "short": (WALK[:20], "too short: under 32 steps"),
    "one-observed": (np.where(STEP == 80, 1.0, np.nan), "constant"),
}
HARD = {
    "huge": 1e30 * WALK,
    "largest": np.linspace(-LARGEST, LARGEST, 160),
    "jump": np.where(STEP < 100, -LARGEST, LARGEST),
    "tiny": 1e-30 * WALK,
    "denormal": 1e-42 * WALK,
    "huge-and-tiny": np.where(STEP % 2, 1e30, 1e-30) * WALK,
    "level": 1e8 + WALK,
    "one-step-differs": np.where(STEP == 130, 1.0, 0.0),
    "nan-at-the-start": np.where(STEP < 100, np.nan, WALK),
    "nan-at-the-end": np.where(STEP >= 100, np.nan, WALK),
    "nan-in-turn": np.where(STEP % 2, np.nan, WALK),
    "sparse": np.where(STEP % 10, np.nan, WALK),
}


def write(folder: Path, name: str, series: dict[str, np.ndarray]) -> None:
    table = pa.table(
        {
            "item_id": list(series),
            "start": pa.array([0] * len(series), pa.timestamp("ms")),
            "freq": ["D"] * len(series),
            "target": pa.array([values.tolist() for values in series.values()], pa.list_(pa.float64())),
        }
    )
    pq.write_table(table, folder / f"{name}.parquet")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """The results of two models on four files of such series."""
    data = tmp_path_factory.mktemp("data")
    write(data, "mixed", {name: values for name, (values, _) in NEVER.items()} | HARD)
    write(data, "one-step-ahead", {"walk": WALK, "steps": np.round(WALK)})
    write(data, "without-windows", {"sparse": HARD["sparse"], "first-only": np.where(STEP < 3, WALK, np.nan)})
    write(data, "never", {name: values for name, (values, _) in NEVER.items()})
    made = checkout(tmp_path_factory.mktemp("hostile") / "repository", data)

    def change(block: dict[str, Any]) -> None:
        block["models"] = {name: {} for name in sorted(MODELS)}
        block["checkpoints"] = {"skill": {"windows": 100, "samples": 2, "bootstrap": 200}}
        horizons = {"mixed": 12, "one-step-ahead": 1, "without-windows": 12, "never": 12}
        folders = {n: {"source": "folder", "file": f"{n}.parquet", "horizon": h} for n, h in horizons.items()}
        block["datasets"] |= {"max_series": 16, "sets": folders}
        block["conditions"] = {"noisy": {"context": 64, "noise": 0.5}}
        block["studies"] = {"isotropy": block["studies"]["isotropy"]}
        for unused in ("compression", "theory", "spectra", "kernelsynth"):
            del block[unused]
        block["geometry"] = {"rows": 64, "k_max": 3, "restarts": 1, "permutations": 3, "cai": "all"}
        block["embeddings"]["store_dtype"] = "float16"

    made.params(change)
    made.repro()
    return made


def test_no_job_failed_and_no_check_found_anything(hostile: Checkout) -> None:
    assert hostile.sql("select * from failures") == []
    written = [(path.stem, path.read_text()) for path in sorted((ROOT / "store" / "sql" / "checks").glob("*.sql"))]
    for name, text in [*generate(TABLES.values()), *written]:
        query = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
        assert hostile.sql(query) == [], name


def test_every_series_that_no_stage_uses_is_counted_with_its_reason(hostile: Checkout) -> None:
    rows = hostile.sql("select series, reason, n from skipped where stage = 'datasets' and dataset = 'mixed'")
    assert {row["series"]: (row["reason"], row["n"]) for row in rows} == {k: (why, 1) for k, (_, why) in NEVER.items()}
    assert hostile.sql("select count(*) as n from forecasts where dataset = 'never'") == [{"n": 0}]


def test_a_data_set_without_windows_is_skipped_by_every_model_and_fails_no_stage(hostile: Checkout) -> None:
    rows = hostile.sql(
        "select model, condition, reason, n from skipped where stage = 'tokens' and dataset = 'without-windows'"
    )
    assert {row["model"] for row in rows} == set(MODELS)
    assert {row["reason"] for row in rows} == {
        "fewer than 16 observed steps in the context",
        "nothing is observed in the future",
    }
    assert hostile.sql("select * from geometry where dataset = 'without-windows'") == []


def test_every_layer_of_every_model_is_measured_on_them(hostile: Checkout) -> None:
    rows = hostile.sql(
        "select dataset, model, count(*) as n, count(distinct stack) as stacks from geometry group by all"
    )
    found = {(row["dataset"], row["model"]): (row["n"], row["stacks"]) for row in rows}
    expected = {(dataset, model): MODELS[model] for dataset in ("mixed", "one-step-ahead") for model in MODELS}
    expected["one-step-ahead", "chronos-t5-mini"] = (6, 1)  # no decoder row reads the only future step
    assert found == expected
    rows = hostile.sql("select reason from skipped where dataset = 'one-step-ahead'")
    assert {row["reason"] for row in rows} == {"no token of stack decoder stands for a value"}


def test_every_series_has_a_forecast_row_with_finite_scores_or_a_reason(hostile: Checkout) -> None:
    rows = hostile.sql("select * from forecasts where dataset = 'mixed'")
    assert {(row["model"], row["series"]) for row in rows} == {(m, name) for m in MODELS for name in HARD}
    for row in rows:
        scores = [row[name] for name in ("nmse", "nmse_power", "wql_window", "mase", "seasonal_error")]
        assert all(score is None or np.isfinite(score) for score in scores), row
        assert None not in scores or row["reason"], row
    unscored = {row["series"] for row in rows if (row["reason"] or "").startswith("not forecast")}
    assert unscored == {"nan-at-the-end", "sparse"}
