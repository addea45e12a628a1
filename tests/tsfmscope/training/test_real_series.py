"""Real series as a source of training windows: which files, which series, and where a window may lie."""

from __future__ import annotations

import hashlib
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.pretraining import pretrain
from tests.tsfmscope.training.test_pretraining import job, weights
from tsfmscope.errors import DataError
from tsfmscope.training import real_series
from tsfmscope.training.options import RealSeries, Recipe
from tsfmscope.training.real_series import RealWindows


def write(folder: Path, **series: np.ndarray) -> RealSeries:
    """Write one file with the series, and return what a recipe states about it."""
    folder.mkdir(exist_ok=True)
    table = pa.table(
        {
            "item_id": list(series),
            "start": [datetime(2020, 1, 1)] * len(series),
            "freq": ["D"] * len(series),
            "target": [values.astype(np.float32) for values in series.values()],
        }
    )
    pq.write_table(table, folder / "one.parquet")
    sums = hashlib.sha256((folder / "one.parquet").read_bytes()).hexdigest()
    return RealSeries(folder=str(folder), files={"one": sums}, without="^left")


def test_windows_are_stretches_of_the_series_with_nothing_after_their_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LONGER_STEPS", "MIXED", "NEGATED"):
        monkeypatch.setattr(real_series, name, 0.0)
    windows = RealWindows(write(tmp_path, a=np.arange(100.0), left_out=np.full(100, -5.0)))
    drawn = windows.draw(np.random.default_rng(0), 200, 40, context=30, min_past=8)
    assert drawn.shape == (200, 40)
    assert np.nanmin(drawn) == 0 and np.nanmax(drawn) == 99  # and never -5
    for row in drawn:
        known = np.flatnonzero(~np.isnan(row))
        assert np.array_equal(np.diff(row[known]), np.ones(len(known) - 1))
        assert np.array_equal(known, np.arange(known[0], known[-1] + 1))
        assert 30 - known[0] >= 8 and known[-1] >= 30  # enough of the past, and at least one step of the future


def test_longer_steps_are_means_of_whole_stretches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_series, "LONGER_STEPS", 1.0)
    monkeypatch.setattr(real_series, "FACTORS", (4,))
    monkeypatch.setattr(real_series, "MIXED", 0.0)
    monkeypatch.setattr(real_series, "NEGATED", 0.0)
    windows = RealWindows(write(tmp_path, a=np.arange(400.0)))
    for row in windows.draw(np.random.default_rng(1), 50, 30, context=20, min_past=8):
        known = row[~np.isnan(row)]
        # The mean of 4k, …, 4k + 3 is 4k + 1.5.
        assert np.array_equal(known % 4, np.full(len(known), 1.5)) and np.all(np.diff(known) == 4)


@pytest.mark.parametrize("values", [np.full(64, np.nan), np.zeros(64), np.r_[np.full(40, np.nan), np.arange(24.0)]])
def test_hard_series_give_windows_without_a_warning(values: np.ndarray, tmp_path: Path) -> None:
    windows = RealWindows(write(tmp_path, a=values, b=1e30 * np.arange(64.0)))
    assert windows.draw(np.random.default_rng(2), 300, 48, context=32, min_past=8).shape == (300, 48)


def test_a_file_of_another_version_and_a_missing_one_are_named(tmp_path: Path) -> None:
    real = write(tmp_path / "a", a=np.arange(64.0))
    write(tmp_path / "a", a=np.arange(65.0))
    with pytest.raises(DataError, match=r"one\.parquet: SHA-256 is .* the recipe states"):
        RealWindows(real)
    (tmp_path / "a" / "one.parquet").unlink()
    with pytest.raises(DataError, match=r"one\.parquet: cannot be read .* put the recipe's real series there"):
        RealWindows(real)


def test_a_second_part_starts_from_the_saved_weights_and_survives_a_kill(tmp_path: Path, dies_at: object) -> None:
    real = write(tmp_path / "series", a=np.sin(np.arange(300) / 3), b=np.arange(200.0))
    first = {"mixture": {"priors": 1.0}, "averaging": 0.9, "schedule": "cosine"}
    then = {"until": 10, "learning_rate": 0.005, "mixture": {"real": 0.5, "priors": 0.5}}
    alone = pretrain(job("chronos-bolt", **first), tmp_path / "first", None)
    asked = job("chronos-bolt", **first, then=then, real=real.to_dict())
    whole = pretrain(asked, tmp_path / "whole", None)
    assert whole.rows[:3] == alone.rows and [row["step"] for row in whole.rows] == [2, 4, 6, 8, 10]
    # The learning rate starts again at the second part's own.
    assert whole.rows[3]["learning_rate"] > whole.rows[2]["learning_rate"] == 0.0
    for at in (7, 9):
        with dies_at(at):  # type: ignore[operator]
            pretrain(asked, tmp_path / f"broken-{at}", None)
        assert pretrain(asked, tmp_path / f"broken-{at}", None).rows == whole.rows
        for name, weight in weights(tmp_path / f"broken-{at}", "chronos-bolt").items():
            assert weight.equal(weights(tmp_path / "whole", "chronos-bolt")[name])


def test_a_second_part_of_no_learning_keeps_the_weights_that_the_first_would_save(tmp_path: Path) -> None:
    first = {"mixture": {"priors": 1.0}, "averaging": 0.9}
    then = {"until": 8, "learning_rate": 1e-30, "mixture": {"priors": 1.0}}
    pretrain(job("chronos-bolt", **first), tmp_path / "first", None)
    pretrain(job("chronos-bolt", **first, then=then), tmp_path / "both", None)
    for name, weight in weights(tmp_path / "both", "chronos-bolt").items():
        assert weight.allclose(weights(tmp_path / "first", "chronos-bolt")[name], rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mixture": {"real": 1.0}}, "one without the other"),
        ({"mixture": {"kernelsynth": 0.5, "real": 0.5}}, "mix only with each other"),
        ({"then": {"until": 7, "learning_rate": 0.1, "mixture": {"priors": 1.0}}}, "phases, then: got mixture"),
        (
            {"mixture": {"priors": 1.0}, "then": {"until": 7, "learning_rate": 0.1, "mixture": {"priors": 0.5}}},
            "mixture sums to 0.5",
        ),
    ],
)
def test_a_recipe_that_cannot_be_trained_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recipe.model_validate(job("chronos-bolt", **changes).spec["recipe"])
