"""Scores against gluonts' own evaluation, a loop twin, hand-worked cases and hard inputs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tsfmscope.forecasting.gluonts_scores import LEVELS, gluonts_scores
from tsfmscope.forecasting.scores import Scores, count_covered, quantile_losses, score, seasonal_error


def _case(seed: int, *, missing: float = 0.0, length: int = 80, horizon: int = 12) -> dict:
    rng = np.random.default_rng(seed)
    series = 50 + 10 * rng.standard_normal((6, length + horizon)).cumsum(axis=1)
    series[rng.random(series.shape) < missing] = np.nan
    center = 50 + 10 * rng.standard_normal((6, 1, horizon))
    quantiles = np.sort(center + 8 * rng.standard_normal((6, 9, horizon)), axis=1)
    return {
        "target": series[:, length:],
        "quantiles": quantiles,
        "past": list(series[:, :length]),
        "context": series[:, length - 40 : length],
    }


def _score(case: dict, season: int = 7) -> Scores:
    return score(case["target"], case["quantiles"], LEVELS, context=case["context"], past=case["past"], season=season)


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("season", [1, 7, 200])
def test_wql_and_mase_are_those_of_gluonts(missing: float, season: int, capfd: pytest.CaptureFixture[str]) -> None:
    case = _case(3, missing=missing)
    ours, theirs = _score(case, season), gluonts_scores(case, season)
    np.testing.assert_allclose(ours.mase, theirs["mase"], rtol=1e-10)
    np.testing.assert_allclose(ours.wql_window, theirs["wql_window"], rtol=1e-10)
    pooled = ours.quantile_loss.sum() / (len(LEVELS) * ours.target_abs.sum())
    np.testing.assert_allclose(pooled, theirs["wql"], rtol=1e-10)
    if not missing:
        np.testing.assert_allclose(ours.mase.mean(), theirs["pooled_mase"], rtol=1e-10)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_every_sum_is_that_of_a_loop(missing: float) -> None:
    case = _case(5, missing=missing)
    ours = _score(case)
    for window, (target, quantiles) in enumerate(zip(case["target"], case["quantiles"], strict=True)):
        seen = [v for v in case["context"][window] if not np.isnan(v)]
        mean = sum(seen) / len(seen)
        steps = [h for h in range(len(target)) if not np.isnan(target[h])]
        error = sum((target[h] - quantiles[4, h]) ** 2 for h in steps)
        denominator = sum((target[h] - mean) ** 2 for h in steps)
        pinball = sum(
            2 * max(level * (target[h] - quantiles[i, h]), (level - 1) * (target[h] - quantiles[i, h]))
            for i, level in enumerate(LEVELS)
            for h in steps
        )
        row = ours.row(window)
        assert row["nmse"] == pytest.approx(error / denominator, rel=1e-10)
        assert row["nmse_power"] == pytest.approx(error / sum(target[h] ** 2 for h in steps), rel=1e-10)
        assert row["squared_error"] == pytest.approx(error, rel=1e-10)
        assert row["nmse_denominator"] == pytest.approx(denominator, rel=1e-10)
        assert row["quantile_loss"] == pytest.approx(pinball, rel=1e-10)
        assert row["target_abs"] == pytest.approx(sum(abs(target[h]) for h in steps), rel=1e-10)
        assert (row["n_future"], row["n_context"], row["reason"]) == (len(steps), len(seen), None)


def test_a_case_worked_by_hand() -> None:
    # context 1 3 1 3: mean 2, seasonal error at season 2 is 0 and at season 1 is 2; future 4 0; median 3 1
    quantiles = np.array([[[2.0, 0.0], [3.0, 1.0], [4.0, 2.0]]])
    context = np.array([[1.0, 3.0, 1.0, 3.0]])
    arguments = {"context": context, "past": list(context)}
    row = score(np.array([[4.0, 0.0]]), quantiles, (0.25, 0.5, 0.75), season=1, **arguments).row(0)
    assert row["nmse"] == pytest.approx((1 + 1) / (4 + 4))
    assert row["nmse_power"] == pytest.approx(2 / 16)
    assert row["mase"] == pytest.approx(1 / 2)
    # pinball: 0.25*2 + 0.25*0 | 0.5*1 + 0.5*1 | 0 + 0.25*2 = 0.5 + 1 + 0.5, doubled
    assert row["quantile_loss"] == pytest.approx(4.0)
    assert row["wql_window"] == pytest.approx(4.0 / (3 * 4.0))
    seasonal = score(np.array([[4.0, 0.0]]), quantiles, (0.25, 0.5, 0.75), season=2, **arguments).row(0)
    assert seasonal["mase"] is None
    assert seasonal["reason"] == "mase: the seasonal error of the past is zero or undefined (season 2)"


@pytest.mark.parametrize(("target", "context", "nulls", "reason"), [
    ([np.nan, np.nan], [1.0, 2.0], {"nmse", "nmse_power", "wql_window", "mase"}, "no observed target"),
    ([1.5, 1.5], [1.0, 2.0], {"nmse"}, "does not leave the context's mean"),
    ([1.5, np.nan], [1.0, 2.0], {"nmse"}, "does not leave the context's mean"),
    ([1.5e6 + 1e-9, 1.5e6], [1e6, 2e6], {"nmse"}, "does not leave the context's mean"),
    ([0.0, 0.0], [1.0, 2.0], {"nmse_power", "wql_window"}, "the future is zero"),
    ([3.0, 4.0], [2.0, 2.0], {"mase"}, "seasonal error"),
    ([3.0, 4.0], [np.nan, 2.0], {"mase"}, "seasonal error"),
    ([3.0, 4.0], [np.nan, np.nan], {"mase", "nmse"}, "seasonal error"),
])  # fmt: skip
def test_a_score_without_a_value_is_null_with_its_reason(
    target: list[float], context: list[float], nulls: set[str], reason: str
) -> None:
    quantiles = np.ones((1, 1, 2))
    row = score(
        np.array([target]), quantiles, (0.5,), context=np.array([context]), past=[np.array(context)], season=1
    ).row(0)
    assert {name for name in ("nmse", "nmse_power", "wql_window", "mase") if row[name] is None} == nulls
    assert reason in row["reason"]


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10_000), scale=st.sampled_from([1e-6, 1e-3, 10.0, 1e8]), flip=st.booleans())
def test_scores_are_free_of_scale(seed: int, scale: float, flip: bool) -> None:
    case = _case(seed, missing=0.1)
    factor = -scale if flip else scale
    scaled = {
        "target": case["target"] * factor,
        "context": case["context"] * factor,
        "past": [past * factor for past in case["past"]],
        "quantiles": case["quantiles"] * factor,
    }
    if flip:  # a mirrored forecast has its levels the other way round
        scaled["quantiles"] = scaled["quantiles"][:, ::-1]
    one, other = _score(case), _score(scaled)
    for name in ("nmse", "nmse_power", "wql_window", "mase"):
        np.testing.assert_allclose(getattr(other, name), getattr(one, name), rtol=1e-9)


def test_a_perfect_forecast_scores_zero_and_the_mean_of_the_context_scores_one() -> None:
    case = _case(1)
    perfect = _score({**case, "quantiles": np.repeat(case["target"][:, None], 9, axis=1)})
    assert (perfect.nmse == 0).all()
    assert (perfect.wql_window == 0).all()
    assert (perfect.mase == 0).all()
    mean = np.broadcast_to(case["context"].mean(axis=1)[:, None, None], case["quantiles"].shape)
    np.testing.assert_allclose(_score({**case, "quantiles": mean}).nmse, 1.0, rtol=1e-12)


def test_float32_and_float16_inputs_are_summed_in_float64() -> None:
    case = _case(2)
    for dtype, tolerance in ((np.float32, 1e-6), (np.float16, 1e-2)):
        narrow = {
            name: [v.astype(dtype) for v in value] if name == "past" else value.astype(dtype)
            for name, value in case.items()
        }
        np.testing.assert_allclose(_score(narrow).wql_window, _score(case).wql_window, rtol=tolerance * 10)
        assert _score(narrow).squared_error.dtype == np.float64
    huge = np.full((1, 2), 3e38, dtype=np.float32)
    assert np.isfinite(quantile_losses(huge, -huge[:, None], (0.5,))).all()


@pytest.mark.parametrize(("change", "message"), [
    ({"quantiles": np.zeros((6, 3, 12))}, r"quantiles: got shape \(6, 3, 12\), expected"),
    ({"quantiles": np.full((6, 9, 12), np.nan)}, "quantiles: got NaN"),
    ({"past": []}, "got 6 contexts and 0 pasts, expected one per window, 6"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _score({**_case(0), **change})


def test_levels_without_the_median_are_refused() -> None:
    case = _case(0)
    with pytest.raises(ValueError, match=r"expected levels with 0\.5"):
        score(case["target"], case["quantiles"][:, :1], (0.1,), context=case["context"], past=case["past"], season=1)


@pytest.mark.parametrize(("past", "season", "expected"), [
    ([1.0, 2.0, 4.0], 1, 1.5),
    ([1.0, 2.0, 4.0], 2, 3.0),
    ([1.0, 2.0, 4.0], 3, np.nan),
    ([1.0, 2.0, 4.0], 9, 1.5),
    ([1.0, np.nan, 4.0], 1, np.nan),
    ([1.0, np.nan, 4.0, 6.0], 1, 2.0),
    ([], 1, np.nan),
    ([5.0] * 5, 1, 0.0),
])  # fmt: skip
def test_seasonal_error_of_short_and_broken_pasts(past: list[float], season: int, expected: float) -> None:
    np.testing.assert_equal(seasonal_error(np.array(past), season), expected)


NAN = np.nan


@pytest.mark.parametrize(("target", "expected"), [
    ([0.0, 1.0, 2.0, 3.0], (2, 4)),
    ([0.9, 1.0, 2.0, 2.1], (2, 4)),
    ([NAN, 1.5, NAN, 9.0], (1, 2)),
    ([NAN] * 4, (0, 0)),
])  # fmt: skip
def test_targets_inside_are_counted_among_the_observed_ones(target: list[float], expected: tuple[int, int]) -> None:
    assert count_covered(np.array(target), np.full(4, 1.0), np.full(4, 2.0)) == expected


def test_the_true_quantiles_cover_80_percent() -> None:
    covered, observed = count_covered(
        np.random.default_rng(0).random(20_000), np.full(20_000, 0.1), np.full(20_000, 0.9)
    )
    assert covered / observed == pytest.approx(0.8, abs=0.01)
