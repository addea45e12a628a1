"""Baselines, which every model should beat.

`context_median` and `seasonal_naive` are point forecasts that give every quantile level the same value.

`Local` has a model's interface and fits a model of statsforecast on every series' own context alone, so the time of a
forecast includes the fit. Its point forecast is the quantile at level 0.5. The ends of central prediction intervals are
the other quantiles: levels 0.1 and 0.9 are the ends of the 80 % interval. Quantiles are sorted, which never raises the
sum of the quantile losses (Chernozhukov et al. 2010). Its `seasonal-naive` is the probabilistic seasonal naive.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from tsfmscope.models.types import Forecast
from tsfmscope.series.types import Windows

Quantiles = Float[np.ndarray, "window quantile horizon"]

# AutoETS refuses longer seasons. The state of a seasonal ARIMA has the season's length: minutes per series if long.
LONGEST_SEASON = 24
# Steps up to which AutoARIMA searches by maximum likelihood, as in R's forecast::auto.arima
EXACT = 150
# Last observed steps that a baseline is fitted on: about 4 s of one core for AutoARIMA with season 24.
LONGEST_FIT = 1000

# A model of statsforecast.
Model = Any
# (module statsforecast.models, season, steps of context) -> a model
METHODS: Mapping[str, Callable[[Any, int, int], Model]] = {
    "seasonal-naive": lambda models, season, steps: models.SeasonalNaive(season_length=season),
    "auto-ets": lambda models, season, steps: models.AutoETS(season_length=season if season <= LONGEST_SEASON else 1),
    "auto-theta": lambda models, season, steps: models.AutoTheta(season_length=season),
    "auto-arima": lambda models, season, steps: models.AutoARIMA(
        season_length=season if season <= LONGEST_SEASON else 1,
        approximation=steps > EXACT or 12 < season <= LONGEST_SEASON,
    ),
}


def context_median(windows: Windows, levels: int) -> Quantiles:
    """Return the median of the context's observed values at every step and every quantile level: [W, Q, H].

    levels: number of quantile levels, Q. A point forecast has no spread, so its WQL is its relative absolute
    error. A context without values gives a forecast of 0.
    """
    context = np.ma.masked_invalid(windows.context.astype(np.float64))
    point = np.ma.filled(np.ma.median(context, axis=1), 0.0)
    return _at_every_level(np.repeat(point[:, None], windows.horizon, axis=1), levels)


def seasonal_naive(windows: Windows, levels: int) -> Quantiles:
    """Return the last season of the context repeated, equal at every quantile level: [W, Q, H].

    levels: number of quantile levels, Q. With season 1 it repeats the last value. A phase that is missing in
    the last season is taken from the season before, and so on; a phase that was never observed takes the
    window's last observed value. A context without values gives a forecast of 0. ValueError for a season
    below 1.
    """
    season = windows.season
    if season < 1:
        raise ValueError(f"season: got {season}, expected at least 1 step")
    context = windows.context.astype(np.float64)  # [W, C]
    count, steps = context.shape
    padded = np.full((count, -(-steps // season) * season), np.nan)
    padded[:, padded.shape[1] - steps :] = context
    phases = _last_observed(padded.reshape(count, padded.shape[1] // season, season), fallback=np.nan)  # [W, season]
    last = _last_observed(context[:, :, None], fallback=0.0)  # [W, 1]
    phases = np.where(np.isnan(phases), last, phases)
    return _at_every_level(phases[:, np.arange(windows.horizon) % season], levels)


def _last_observed(values: np.ndarray, *, fallback: float) -> np.ndarray:
    """Return the last finite value along axis 1, or the fallback where there is none."""
    finite = np.isfinite(values)
    last = values.shape[1] - 1 - np.argmax(finite[:, ::-1], axis=1)
    values_at_last = np.take_along_axis(values, last[:, None], axis=1)[:, 0]
    return np.where(finite.any(axis=1), values_at_last, fallback)


def _at_every_level(point: np.ndarray, levels: int) -> Quantiles:
    return np.repeat(point[:, None, :], levels, axis=1)


@dataclass
class Local:
    """Baseline with a model's interface; `failed` maps a series without a forecast to the reason."""

    name: str
    failed: dict[str, str] = field(default_factory=dict)
    # No sample path is drawn.
    direct_quantiles: bool = True

    def with_condition(self, context: int, history: int = 0) -> tuple[Local, int]:
        """Return itself and the steps of its windows; the extra history for models with lags is not used."""
        return self, context

    def forecast(self, windows: Windows, *, levels: Sequence[float], samples: int, seeds: Sequence[int]) -> Forecast:
        """Return quantiles [W, Q, H]; zeros for series in `failed`. samples and seeds are unused."""
        values = np.zeros((len(windows), len(levels), windows.horizon))
        for index, (series, context) in enumerate(zip(windows.series, windows.context, strict=True)):
            try:
                values[index] = quantiles(self.name, context, windows.horizon, levels, windows.season)
            # Any error of a fit concerns this series only.
            except Exception as error:
                self.failed[series] = (
                    f"{self.name}: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
                )
        return Forecast(values.astype(np.float32), tuple(levels))


def quantiles(
    name: str, context: Float[np.ndarray, " step"], horizon: int, levels: Sequence[float], season: int
) -> Float[np.ndarray, "quantile horizon"]:
    """Return quantile forecasts of one series by a baseline, in ascending order along the first axis.

    context: NaN where missing; missing steps at the start are left out, those at the end hold the last value,
    and others are interpolated linearly. Only the last LONGEST_FIT steps are fitted. season: in steps;
    replaced by 1 if the context is shorter than two seasons. ValueError for an unknown name, a context without
    two different values, and a result that is not finite. Errors of the package pass through.
    """
    import statsforecast.models

    if name not in METHODS:
        raise ValueError(f"baseline: got {name!r}, expected one of {', '.join(METHODS)}")
    values = np.asarray(context, dtype=np.float64)
    observed = np.flatnonzero(np.isfinite(values))
    if len(observed):
        values = np.interp(np.arange(observed[0], len(values)), observed, values[observed])[-LONGEST_FIT:]
    if len(observed) == 0 or len(values) < 2 or np.ptp(values) == 0:
        raise ValueError("the context is constant")
    season = season if len(values) >= 2 * season else 1
    covers = sorted({_percent(level) for level in levels if level != 0.5})
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        # Candidates that a search tries and rejects cause warnings.
        warnings.simplefilter("ignore")
        forecasts = METHODS[name](statsforecast.models, season, len(values)).forecast(values, horizon, level=covers)
    names = ["mean" if level == 0.5 else f"{'lo' if level < 0.5 else 'hi'}-{_percent(level)}" for level in levels]
    out = np.array([forecasts[name] for name in names], dtype=np.float64)  # [Q, H]
    if not np.isfinite(out).all():
        raise ValueError("the forecast is not finite")
    return np.sort(out, axis=0)


def _percent(level: float) -> float:
    """Return the central interval, in per cent, with an end at this level; an int if whole."""
    percent = round(100 * abs(1 - 2 * level), 6)
    return int(percent) if percent == int(percent) else percent
