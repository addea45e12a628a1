"""Skill of a model against the baselines, with a bootstrap interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Shaped

from tsfmscope.forecasting.baselines import context_median, seasonal_naive
from tsfmscope.forecasting.scores import quantile_losses
from tsfmscope.series.types import Windows

if TYPE_CHECKING:
    from tsfmscope.models.base import Forecaster

BOOTSTRAP = 2_000
COVERAGE = 0.95


@dataclass(frozen=True)
class Skill:
    """Geometric mean over data sets of WQL(model) / WQL(reference): below 1 if the model is better."""

    ratio: float
    low: float
    high: float
    n_windows: int
    n_datasets: int
    # Data sets whose reference has no loss, so that their ratio is undefined.
    left_out: tuple[str, ...]


def skill(
    model: Float[np.ndarray, " window"],
    reference: Float[np.ndarray, " window"],
    datasets: Shaped[np.ndarray, " window"],
    *,
    seed: int,
    bootstrap: int = BOOTSTRAP,
) -> Skill:
    """Return the geometric mean of WQL ratios with a percentile bootstrap interval.

    model, reference: quantile loss of each window (`scores.quantile_losses`). datasets: data set of each
    window. WQL pools a data set's losses over its sum of |y| before the ratio is taken (Ansari et al. 2024,
    section 5.4); that sum cancels in the ratio. Windows are resampled within their data set, so the interval
    is valid for these data sets, not for others. Data sets whose reference has no loss are left out;
    ValueError if none remains.
    """
    names, dataset_index = np.unique(datasets, return_inverse=True)
    pools = [np.flatnonzero(dataset_index == index) for index in range(len(names))]
    scored_pools = [pool for pool in pools if reference[pool].sum() > 0]
    left_out = tuple(str(name) for name, pool in zip(names, pools, strict=True) if not reference[pool].sum() > 0)
    if not scored_pools:
        raise ValueError("reference: got no data set with a loss above 0, expected at least one; name other data sets")
    rng = np.random.default_rng(seed)
    logs = np.empty((len(scored_pools), bootstrap))
    with np.errstate(divide="ignore"):
        for row, pool in enumerate(scored_pools):
            draws = pool[rng.integers(len(pool), size=(bootstrap, len(pool)))]
            numerator, denominator = model[draws].sum(axis=1), reference[draws].sum(axis=1)
            # NaN if the reference has no loss in a resample.
            share = numerator / np.where(denominator > 0, denominator, 1.0)
            logs[row] = np.where(denominator > 0, np.log(share), np.nan)
        log_ratios = np.log([model[pool].sum() / reference[pool].sum() for pool in scored_pools])
    tail = (1 - COVERAGE) / 2
    low, high = np.nanquantile(np.exp(logs.mean(axis=0)), (tail, 1 - tail), method="inverted_cdf")
    n_windows = sum(len(pool) for pool in scored_pools)
    return Skill(float(np.exp(log_ratios.mean())), float(low), float(high), n_windows, len(scored_pools), left_out)


def skill_row(
    model: Forecaster,
    batches: Sequence[Windows],
    *,
    levels: Sequence[float],
    samples: int,
    seed: int,
    bootstrap: int = BOOTSTRAP,
) -> dict[str, Any]:
    """Compare `model` on batches of unseen windows with the context's median and with point seasonal naive.

    Returns columns of the `skill` table. Window i of all windows is sampled with seed [seed, i], independent
    of the batches. Seasonal naive repeats the last season; on data sets other than the `n_seasonal` ones, it
    repeats the last value.
    """
    references: dict[str, Callable[[Windows, int], np.ndarray]]
    references = {"median": context_median, "seasonal": seasonal_naive}
    losses: dict[str, list[np.ndarray]] = {name: [] for name in ("model", *references)}
    names: list[str] = []
    seasons: dict[str, int] = {}
    for windows in batches:
        seeds = [sample_seed(seed, len(names) + index) for index in range(len(windows))]
        names += [windows.dataset] * len(windows)
        seasons[windows.dataset] = windows.season
        forecast = model.forecast(windows, levels=levels, samples=samples, seeds=seeds)
        losses["model"].append(quantile_losses(windows.future, forecast.values, levels))
        for name, baseline in references.items():
            losses[name].append(quantile_losses(windows.future, baseline(windows, len(levels)), levels))
    losses_by_name = {name: np.concatenate(parts) for name, parts in losses.items()}
    median, seasonal = (
        skill(losses_by_name["model"], losses_by_name[name], np.array(names), seed=seed, bootstrap=bootstrap)
        for name in references
    )
    return {
        "n_windows": median.n_windows,
        "n_datasets": median.n_datasets,
        "n_seasonal": sum(seasons[name] > 1 for name in set(seasons) - set(median.left_out)),
        "wql_vs_median": median.ratio,
        "low": median.low,
        "high": median.high,
        "wql_vs_seasonal": seasonal.ratio,
        "seasonal_low": seasonal.low,
        "seasonal_high": seasonal.high,
        "bootstrap": bootstrap,
        "seed": seed,
    }


def sample_seed(seed: int, window: int) -> int:
    """Return the seed of the sample paths of one window."""
    return int(np.random.SeedSequence([seed, window]).generate_state(1, np.uint32)[0])
