"""Skill of a model against the baselines, with a bootstrap interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Shaped

from tasks.forecasting.baselines import context_median, seasonal_naive
from tasks.forecasting.scores import quantile_losses
from tasks.series.types import Windows

if TYPE_CHECKING:
    from tasks.models.base import Forecaster

BOOTSTRAP = 2_000
COVERAGE = 0.95


@dataclass(frozen=True)
class Skill:
    """Geometric mean over data sets of WQL(model) / WQL(reference), below 1 where the model is better."""

    ratio: float
    low: float
    high: float
    n_windows: int
    n_datasets: int
    left_out: tuple[str, ...]  # data sets whose reference has no loss at all: their ratio is undefined


def skill(
    model: Float[np.ndarray, " window"],
    reference: Float[np.ndarray, " window"],
    datasets: Shaped[np.ndarray, " window"],
    *,
    seed: int,
    bootstrap: int = BOOTSTRAP,
) -> Skill:
    """Geometric-mean WQL ratio with a percentile interval, windows resampled inside their data set.

    model, reference: quantile loss of each window (`scores.quantile_losses`); datasets: its data set's name. WQL pools
    a data set's losses over its sum of |y| before the ratio is taken (Ansari et al. 2024, section 5.4), and that sum is
    the same above and below. Windows are the unit, so the interval speaks of these data sets, not of others.
    """
    names, index = np.unique(datasets, return_inverse=True)
    pools = [np.flatnonzero(index == place) for place in range(len(names))]
    kept = [pool for pool in pools if reference[pool].sum() > 0]
    left_out = tuple(str(name) for name, pool in zip(names, pools, strict=True) if not reference[pool].sum() > 0)
    if not kept:
        raise ValueError("skill: no data set on which the reference has any loss; nothing to compare with")
    rng = np.random.default_rng(seed)
    logs = np.array([_resampled(model[pool], reference[pool], rng, bootstrap) for pool in kept])  # [D, B]
    with np.errstate(divide="ignore"):
        whole = np.log([model[pool].sum() / reference[pool].sum() for pool in kept])
    tail = (1 - COVERAGE) / 2
    low, high = np.nanquantile(np.exp(logs.mean(axis=0)), (tail, 1 - tail), method="inverted_cdf")
    n_windows = sum(len(pool) for pool in kept)
    return Skill(float(np.exp(whole.mean())), float(low), float(high), n_windows, len(kept), left_out)


def skill_row(
    model: Forecaster,
    batches: Sequence[Windows],
    *,
    levels: Sequence[float],
    samples: int,
    seed: int,
    bootstrap: int = BOOTSTRAP,
) -> dict[str, Any]:
    """The measured columns of the `skill` table: `model` forecasts `batches` of unseen windows and is compared.

    Window i of all is sampled from seed [seed, i], whatever the batches are.
    """
    references: dict[str, Callable[[Windows, int], np.ndarray]]
    references = {"median": context_median, "seasonal": seasonal_naive}
    losses: dict[str, list[np.ndarray]] = {name: [] for name in ("model", *references)}
    names: list[str] = []
    for windows in batches:
        seeds = [_window_seed(seed, len(names) + place) for place in range(len(windows))]
        names += [windows.dataset] * len(windows)
        forecast = model.forecast(windows, levels=levels, samples=samples, seeds=seeds)
        losses["model"].append(quantile_losses(windows.future, forecast.values, levels))
        for name, baseline in references.items():
            losses[name].append(quantile_losses(windows.future, baseline(windows, len(levels)), levels))
    joined = {name: np.concatenate(parts) for name, parts in losses.items()}
    median, seasonal = (
        skill(joined["model"], joined[name], np.array(names), seed=seed, bootstrap=bootstrap) for name in references
    )
    return {
        "n_windows": median.n_windows,
        "n_datasets": median.n_datasets,
        "wql_vs_median": median.ratio,
        "low": median.low,
        "high": median.high,
        "wql_vs_seasonal": seasonal.ratio,
        "seasonal_low": seasonal.low,
        "seasonal_high": seasonal.high,
        "bootstrap": bootstrap,
        "seed": seed,
    }


def _resampled(model: np.ndarray, reference: np.ndarray, rng: np.random.Generator, bootstrap: int) -> np.ndarray:
    """Log ratios of resampled windows, [B]; NaN where a draw's reference has no loss."""
    drawn = rng.integers(len(model), size=(bootstrap, len(model)))
    over, under = model[drawn].sum(axis=1), reference[drawn].sum(axis=1)
    with np.errstate(divide="ignore"):
        return np.where(under > 0, np.log(over / np.where(under > 0, under, 1.0)), np.nan)


def _window_seed(seed: int, window: int) -> int:
    return int(np.random.SeedSequence([seed, window]).generate_state(1, np.uint32)[0])
