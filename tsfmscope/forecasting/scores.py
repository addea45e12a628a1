"""Scores of quantile forecasts: NMSE, WQL of the window and MASE per window, with their parts, and coverage.

`score` takes arrays. `score_forecasts` forecasts the last window of every series and scores it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from gluonts.ev.stats import absolute_error, absolute_label, squared_error
from gluonts.ev.stats import quantile_loss as gluonts_quantile_loss
from gluonts.ev.ts_stats import seasonal_error as gluonts_seasonal_error
from jaxtyping import Bool, Float, Int32

from tsfmscope.series.calendar import gluonts_seasonality
from tsfmscope.series.synthetic.signals import with_noise
from tsfmscope.series.windows import MIN_CONTEXT, last_windows

if TYPE_CHECKING:
    from tsfmscope.forecasting.options import ScoreOptions
    from tsfmscope.models.types import ForecastModel
    from tsfmscope.series.types import Series, Skip

# Lower limit of the NMSE's denominator, in units of (1 + mean^2) times the steps: docs/science.md,
# Error.
FLOOR = 1e-12
MEDIAN = 0.5
# Ends of the interval whose coverage is reported.
LOW, HIGH = 0.1, 0.9

PerWindow = Float[np.ndarray, " window"]


@dataclass(frozen=True, eq=False)
class Scores:
    """Columns of the `forecasts` table, one entry per window.

    An undefined ratio is NaN, and `reason` gives the cause.
    """

    n_context: Int32[np.ndarray, " window"]
    n_future: Int32[np.ndarray, " window"]
    nmse: PerWindow
    nmse_power: PerWindow
    squared_error: PerWindow
    nmse_denominator: PerWindow
    wql_window: PerWindow
    quantile_loss: PerWindow
    target_abs: PerWindow
    mase: PerWindow
    season: Int32[np.ndarray, " window"]
    seasonal_error: PerWindow
    mase_gluonts: PerWindow
    reason: list[str | None]

    def row(self, window: int) -> dict[str, Any]:
        """Return the columns of one window as plain Python values, with None for NaN."""
        values = {field.name: getattr(self, field.name)[window] for field in fields(self)}
        row = {name: value.item() if isinstance(value, np.generic) else value for name, value in values.items()}
        return {name: None if isinstance(value, float) and np.isnan(value) else value for name, value in row.items()}


def score(
    target: Float[np.ndarray, "window horizon"], quantiles: Float[np.ndarray, "window quantile horizon"],
    levels: Sequence[float], *, context: Float[np.ndarray, "window step"], past: Sequence[Float[np.ndarray, " _"]],
    season: int, printed_season: int | None = None,
) -> Scores:  # fmt: skip
    """Compute every score of every window.

    target: clean future, NaN where missing (left out of every sum).
    context: clean context, padded with NaN; the NMSE's denominator uses its mean.
    past: each window's whole history up to its origin, for the scale of MASE. As in Chronos' evaluation
    (gluonts), this is everything before the forecast, not only the steps that the model saw.
    season: in steps. A window whose past is shorter has season 1, as in gluonts: column `season`.
    printed_season: of `mase_gluonts`, which is compared with printed numbers; None: `season`.
    ValueError if shapes do not fit, levels lack 0.5, or quantiles contain NaN or infinity.
    """
    expected = (target.shape[0], len(levels), target.shape[1])
    if quantiles.shape != expected:
        raise ValueError(f"quantiles: got shape {quantiles.shape}, expected [window, level, step] = {expected}")
    if len(context) != len(target) or len(past) != len(target):
        raise ValueError(f"got {len(context)} contexts and {len(past)} pasts, expected one per window, {len(target)}")
    if MEDIAN not in levels:
        raise ValueError(
            f"levels: got {list(levels)}, expected levels with 0.5, because the median is the point forecast"
        )
    check_finite(quantiles)
    y = np.asarray(target, dtype=np.float64)
    q = np.asarray(quantiles, dtype=np.float64)
    median = q[:, list(levels).index(MEDIAN)]
    mean: PerWindow = np.ma.filled(_mask_missing(np.asarray(context, dtype=np.float64)).mean(axis=1), np.nan)
    error, denominator, power = nmse_parts(y, median, mean)
    losses, size = quantile_losses(y, q, levels), _total(absolute_label({"label": _mask_missing(y)}))
    lags = np.array([season if season <= len(values) else 1 for values in past], dtype=np.int32)
    errors = absolute_error({"label": _mask_missing(y), "forecast": median}, "forecast")
    mean_error = np.ma.filled(errors.mean(axis=1), np.nan).astype(np.float64)
    scale, printed_scale = (
        np.array([seasonal_error(values, lag) for values in past], dtype=np.float64).reshape(len(y))
        for lag in (season, printed_season or season)
    )
    n_future = np.isfinite(y).sum(axis=1)
    empty = n_future == 0
    null = {
        "nmse": ~empty & ~(denominator > FLOOR * (1 + mean**2) * y.shape[1]),
        "nmse_power": ~empty & (power == 0),
        "wql_window": ~empty & (size == 0),
        "mase": ~empty & ~(scale > 0),
    }
    if printed_season not in (None, season):
        null["mase_gluonts"] = ~empty & ~(printed_scale > 0)
    return Scores(
        n_context=np.isfinite(context).sum(axis=1).astype(np.int32),
        n_future=n_future.astype(np.int32),
        nmse=_ratio(error, denominator, empty | null["nmse"]),
        nmse_power=_ratio(error, power, empty | null["nmse_power"]),
        squared_error=error,
        nmse_denominator=denominator,
        wql_window=_ratio(losses, len(levels) * size, empty | null["wql_window"]),
        quantile_loss=losses,
        target_abs=size,
        mase=_ratio(mean_error, scale, empty | null["mase"]),
        season=lags.reshape(len(y)),
        seasonal_error=scale,
        mase_gluonts=_ratio(mean_error, printed_scale, empty | ~(printed_scale > 0)),
        reason=_reasons(empty, null, season),
    )


def nmse_parts(
    target: Float[np.ndarray, "window horizon"], forecast: Float[np.ndarray, "window horizon"], mean: PerWindow
) -> tuple[PerWindow, PerWindow, PerWindow]:
    """Return the sums over the horizon in NMSE: of (y - forecast)^2, (y - mean of the context)^2, and y^2.

    NMSE = sum (y - forecast)^2 / sum (y - mean)^2; NMSE power divides by sum y^2 instead.
    Source: docs/science.md, Error, since Shelim et al. 2025 give no formula.
    Missing targets are left out of all three sums; a window without targets gives zeros.
    """
    data = {"label": _mask_missing(target), "forecast": forecast, "mean": mean[:, None], "zero": np.zeros(1)}
    error, denominator, power = (_total(squared_error(data, name)) for name in ("forecast", "mean", "zero"))
    return error, denominator, power


def quantile_losses(
    target: Float[np.ndarray, "window horizon"],
    quantiles: Float[np.ndarray, "window quantile horizon"],
    levels: Sequence[float],
) -> PerWindow:
    """Return twice the pinball loss of each window, summed over levels and observed steps.

    WQL = sum of this / (number of levels * sum |y|), with both sums over all windows of a data set.
    `wql_window` is the ratio of one window's own sums. Missing targets are left out.
    Source: Ansari et al. 2024, appendix; gluonts `mean_weighted_sum_quantile_loss`.
    """
    label = _mask_missing(np.asarray(target, dtype=np.float64))
    total = np.zeros(len(label))
    for index, level in enumerate(levels):
        prediction = np.asarray(quantiles[:, index], dtype=np.float64)
        total += _total(gluonts_quantile_loss({"label": label, str(level): prediction}, level))
    return total


def absolute_errors(
    target: Float[np.ndarray, "window horizon"], forecast: Float[np.ndarray, "window horizon"]
) -> PerWindow:
    """Return the sum of |y - forecast| over the observed steps of each window; 0 for a window without targets."""
    label = _mask_missing(np.asarray(target, dtype=np.float64))
    return _total(absolute_error({"label": label, "forecast": np.asarray(forecast, dtype=np.float64)}, "forecast"))


def check_finite(quantiles: np.ndarray) -> None:
    """Raise ValueError if a forecast contains NaN or infinity."""
    if not np.isfinite(quantiles).all():
        raise ValueError(
            "quantiles: got NaN or infinity, expected finite forecasts; check the model's weights and dtype"
        )


def count_covered(
    target: Float[np.ndarray, "*window step"],
    low: Float[np.ndarray, "*window step"],
    high: Float[np.ndarray, "*window step"],
) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of targets inside an interval, and the number of observed targets, per window.

    coverage = #{t: low_t <= y_t <= high_t} / #{t: y_t is observed}

    Source: the usual definition; 0.8 is ideal for quantiles 0.1 to 0.9. Missing targets (NaN) count in neither
    number, a target on an end of the interval is inside, and without targets both numbers are 0.
    """
    is_observed = np.isfinite(target)
    is_covered = is_observed & (target >= low) & (target <= high)
    return is_covered.sum(axis=-1), is_observed.sum(axis=-1)


def seasonal_error(past: Float[np.ndarray, " step"], season: int) -> float:
    """Return the mean absolute difference of steps one season apart: MASE's scale, gluonts `seasonal_error`.

    A season longer than the past counts as 1, as in gluonts. NaN if no two observed steps are a season apart.
    """
    values = np.asarray(past, dtype=np.float64)
    lag = season if season <= len(values) else 1
    if not (np.isfinite(values[lag:]) & np.isfinite(values[: len(values) - lag])).any():
        return float("nan")
    return float(gluonts_seasonal_error(np.ma.masked_invalid(values), season)[0])


def _mask_missing(values: np.ndarray) -> np.ma.MaskedArray[Any, Any]:
    """Mask missing values and set them to 0, since gluonts compares values before it masks them."""
    bad = ~np.isfinite(values)
    return np.ma.MaskedArray(np.where(bad, 0.0, values), mask=bad)


def _total(values: np.ma.MaskedArray[Any, Any]) -> PerWindow:
    return np.asarray(np.ma.filled(values, 0.0).sum(axis=1), dtype=np.float64)


def _ratio(numerator: PerWindow, denominator: PerWindow, null: Bool[np.ndarray, " window"]) -> PerWindow:
    return np.where(null, np.nan, numerator / np.where(null, 1.0, denominator))


def _reasons(empty: np.ndarray, null: dict[str, np.ndarray], season: int) -> list[str | None]:
    texts = {
        "nmse": "nmse: the future does not leave the context's mean",
        "nmse_power": "nmse_power: the future is zero",
        "wql_window": "wql_window: the future is zero",
        "mase": f"mase: the seasonal error of the past is zero or undefined (season {season})",
        "mase_gluonts": "mase_gluonts: the seasonal error of the past is zero or undefined with GluonTS's season",
    }
    reasons: list[str | None] = []
    for window, is_empty in enumerate(empty):
        parts = ["no observed target"] if is_empty else [texts[name] for name in null if null[name][window]]
        reasons.append("; ".join(parts) or None)
    return reasons


class ScoredWindows(NamedTuple):
    """Scores of the last window of every series.

    rows: series -> `origin`, the columns of `Scores.row`, and `quantiles` [Q][H] or None. skipped: series
    without a usable last window, with the reason.
    """

    rows: dict[str, dict[str, Any]]
    skipped: list[Skip]

    def accuracy(self, n_levels: int) -> dict[str, float]:
        """Return `wql`, pooled over the windows, and `mase`, the mean; without one that no window defines.

        n_levels: number of quantile levels of the forecasts.
        """
        target = sum(row["target_abs"] for row in self.rows.values())
        mase = [row["mase"] for row in self.rows.values() if row["mase"] is not None]
        values = {}
        if target:
            values["wql"] = sum(row["quantile_loss"] for row in self.rows.values()) / (n_levels * target)
        if mase:
            values["mase"] = sum(mase) / len(mase)
        return values


def score_forecasts(
    model: ForecastModel, series: Sequence[Series], options: ScoreOptions, *, context: int, horizon: int,
    seed_of: Callable[[str], int], seed: int, min_context: int = MIN_CONTEXT, held_out: float | None = None,
    noise: float = 0.0, history: int = 0, earlier: int = 0,
) -> ScoredWindows:  # fmt: skip
    """Forecast the last window of every series and score the forecasts.

    Noise is added to the context that the model sees. The targets, and the mean and seasonal error in the
    denominators of scores, are clean, so that a condition changes the forecast only. The season is that of
    the series (`season_of`).

    Args:
        model: the forecasting model.
        series: series of one data set, of one frequency.
        options: quantile levels, sample paths, windows per call, and whether the rows contain the forecasts.
        context: steps of context.
        horizon: steps to forecast.
        seed_of: returns the seed of a series' samples.
        seed: seed of the noise.
        min_context: smallest number of observed steps in a context.
        held_out: share at the end of a series in which the future must lie; None: the whole series.
        noise: standard deviation of Gaussian noise on the context, in standard deviations of the series.
        history: steps before the context that a lagged family reads.
        earlier: steps by which the window lies before the last one.
    """
    model, steps = model.with_condition(context, history)
    windows, skipped = last_windows(
        series, context=steps, horizon=horizon, min_context=min_context, held_out=held_out, earlier=earlier
    )
    histories = {item.series: item.values for item in series}
    rows: dict[str, dict[str, Any]] = {}
    for start in range(0, len(windows), options.batch):
        clean = windows.take(slice(start, start + options.batch))
        noisy = with_noise(clean, series, noise=noise, seed=seed)
        forecast = model.forecast(
            noisy, levels=options.levels, samples=options.samples, seeds=[seed_of(name) for name in noisy.series]
        )
        origins, quantiles = clean.origin.tolist(), forecast.values
        scores = score(
            clean.future, quantiles, options.levels, context=clean.context[:, -context:],
            past=[histories[name][:origin] for name, origin in zip(clean.series, origins, strict=True)],
            season=clean.season, printed_season=gluonts_seasonality(clean.freq) if clean.freq else None,
        )  # fmt: skip
        for index, name in enumerate(clean.series):
            kept = quantiles[index].tolist() if options.keep_quantiles else None
            rows[name] = {"origin": origins[index], **scores.row(index), "quantiles": kept}
    return ScoredWindows(rows, skipped)


def window_seed(key: str, series: str) -> int:
    """Return a 63-bit seed for the samples of one series, from a job's key and the series' id.

    It does not depend on the position of the series in a batch.
    """
    digest = hashlib.sha256(f"{key}/{series}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
