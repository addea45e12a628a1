"""Local baselines by statsforecast, one model a series, on the windows that models see: the sweep's second entry.

Every series is fitted on its own context alone, so that the time of a forecast holds the fit. Its point forecast stands
at level 0.5, the ends of its central prediction intervals at the others (0.1 and 0.9: the interval of 80 %), sorted,
which never raises the sum of the quantile losses (Chernozhukov et al. 2010).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from jaxtyping import Float

from tasks.forecasting.evaluate import evaluate, unscored
from tasks.models.types import Forecast
from tasks.series.types import Windows
from tasks.sweep.jobs import Job, Result

if TYPE_CHECKING:
    import pyarrow as pa

    from tasks.models.base import Forecaster

LONGEST_SEASON = 24  # AutoETS refuses a longer one; a seasonal ARIMA's state has its length, and takes minutes a series
EXACT = 150  # steps up to which AutoARIMA searches by maximum likelihood, as in R's forecast::auto.arima

Fitted = Any  # a model of statsforecast
Build = Callable[[Any, int, int], Fitted]  # statsforecast.models, season, steps of context -> a model


def _arima(models: Any, season: int, steps: int) -> Fitted:
    season = season if season <= LONGEST_SEASON else 1
    return models.AutoARIMA(season_length=season, approximation=steps > EXACT or season > 12)


METHODS: Mapping[str, Build] = {
    "seasonal-naive": lambda models, season, steps: models.SeasonalNaive(season_length=season),
    "auto-ets": lambda models, season, steps: models.AutoETS(season_length=season if season <= LONGEST_SEASON else 1),
    "auto-theta": lambda models, season, steps: models.AutoTheta(season_length=season),
    "auto-arima": _arima,
}


@dataclass
class Local:
    """A baseline in the place of a model; `failed` says why a series of the last windows has no forecast."""

    name: str
    failed: dict[str, str] = field(default_factory=dict)
    direct: bool = True  # no sample path is drawn

    def under(self, context: int, history: int = 0) -> tuple[Local, int]:
        """Itself, and the steps of its windows: the history that models with lags read before them is not seen."""
        return self, context

    def forecast(self, windows: Windows, *, levels: Sequence[float], samples: int, seeds: Sequence[int]) -> Forecast:
        """Quantiles of the horizon, [W, Q, H]; zeros where `failed` says why. samples and seeds are unused."""
        values = np.zeros((len(windows), len(levels), windows.horizon))
        for place, (series, context) in enumerate(zip(windows.series, windows.context, strict=True)):
            try:
                values[place] = quantiles(self.name, context, windows.horizon, levels, windows.season)
            except Exception as error:  # whatever a fit raises concerns this series alone
                self.failed[series] = (
                    f"{self.name}: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
                )
        return Forecast(values.astype(np.float32), tuple(levels))


def load_for_job(job: Job) -> str:
    """The baseline's name; imports its package, so that no job's time holds that."""
    import statsforecast.models  # noqa: F401

    return str(job.spec["model"])


def evaluate_locally(job: Job, data: pa.Table, model: str) -> Result:
    """As `evaluate`, by the baseline spec["model"]; a series it fails on has a row with the reason and no score."""
    local = Local(model)
    rows = evaluate(job, data, cast("Forecaster", local)).rows  # all that it asks of a model is there
    return Result([{**row, **_without(row, local.failed.get(row["series"]))} for row in rows])


def quantiles(
    name: str, context: Float[np.ndarray, " step"], horizon: int, levels: Sequence[float], season: int
) -> Float[np.ndarray, "quantile horizon"]:
    """Quantile forecasts of one series by a baseline.

    context: NaN where missing; missing steps at its start are left out, others interpolated linearly (the last value
    is held). season: steps; 1 where the context has fewer than two seasons of it. Raises ValueError for a context
    without two different values, and where the result is not finite; what the package raises besides.
    """
    import statsforecast.models

    if name not in METHODS:
        raise ValueError(f"baseline: got {name!r}, expected one of {', '.join(METHODS)}")
    values = _filled(context)
    if len(values) < 2 or np.ptp(values) == 0:
        raise ValueError("the context is constant")
    season = season if len(values) >= 2 * season else 1
    covers = sorted({_percent(level) for level in levels if level != 0.5})
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # of candidates that a search tries and drops
        found = METHODS[name](statsforecast.models, season, len(values)).forecast(values, horizon, level=covers)
    out = np.array([_at(found, level) for level in levels], dtype=np.float64)  # [Q, H]
    if not np.isfinite(out).all():
        raise ValueError("the forecast is not finite")
    return np.sort(out, axis=0)


def _filled(context: np.ndarray) -> np.ndarray:
    values = np.asarray(context, dtype=np.float64)
    seen = np.flatnonzero(np.isfinite(values))
    if not len(seen):
        return values[:0]
    return np.interp(np.arange(seen[0], len(values)), seen, values[seen])


def _percent(level: float) -> float:
    """The central interval with an end at this level; a whole number where it is one, as the package names it."""
    percent = round(100 * abs(1 - 2 * level), 6)
    return int(percent) if percent == int(percent) else percent


def _at(found: Mapping[str, np.ndarray], level: float) -> np.ndarray:
    if level == 0.5:
        return found["mean"]
    return found[f"{'lo' if level < 0.5 else 'hi'}-{_percent(level)}"]


def _without(row: Mapping[str, Any], reason: str | None) -> dict[str, Any]:
    """What takes the scores' place where there is no forecast; the window stays."""
    if reason is None:
        return {}
    kept = ("origin", "n_context", "n_future")
    return unscored(reason) | {name: row[name] for name in kept}
