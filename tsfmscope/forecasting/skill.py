"""Skill of forecasters: their errors over those of point baselines, by window, data set and group of data sets.

`skill` has a bootstrap interval over windows; `geometric_mean` has one over data sets. `sine_errors` are errors on
clean sines relative to forecasting zero; every model should continue them.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Shaped

from tsfmscope.forecasting.baselines import context_median, seasonal_naive
from tsfmscope.forecasting.scores import MEDIAN, absolute_errors, check_finite, quantile_losses
from tsfmscope.series.types import Series, Windows
from tsfmscope.series.windows import last_windows
from tsfmscope.statistics.bootstrap import FEWEST_ROWS

if TYPE_CHECKING:
    from tsfmscope.models.base import Forecaster

BOOTSTRAP, COVERAGE = 2_000, 0.95
# Ratios of the table `dataset_skill` and the names of their means in `mean_skill`.
RATIOS = {"wql": "wql_ratio", "mae": "mae_ratio"}

# Columns of the file of `read_rows`. One row per model, data set and frequency; loss, error and naive_error are sums
# over windows: of the quantile losses over the number of levels, of |y - median|, and of |y - point seasonal naive|.
TEXTS = ("model", "weights", "group", "dataset", "freq")
COUNTS = ("season", "horizon", "n_windows")
SUMS = ("loss", "error", "naive_error")
COLUMNS = (*TEXTS, *COUNTS, *SUMS)

# Steps of the sines: a day of hours, which most corpora of time series contain.
PERIOD = 24
# Periods of all sines, up to a week of hours.
PERIODS = (3, 6, 7, 12, 24, 30, 48, 60, 96, 120, 144, 168)
# Number of windows with PERIOD, with evenly spaced phases.
PHASES = 8
# Phases of the other periods, as shares of a period. A window half a period later would be the same, negated.
OTHER_PHASES = (0.0, 0.25)
# A context holds at least this number of the other periods.
FEWEST_CYCLES = 2
# Steps of a sine that are forecast.
HORIZON = 64


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
    model: Float[np.ndarray, " window"], reference: Float[np.ndarray, " window"],
    datasets: Shaped[np.ndarray, " window"], *, seed: int, bootstrap: int = BOOTSTRAP,
) -> Skill:  # fmt: skip
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
    model: Forecaster, batches: Sequence[Windows], *, levels: Sequence[float], samples: int, seed: int,
    bootstrap: int = BOOTSTRAP,
) -> dict[str, Any]:  # fmt: skip
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
        "n_windows": median.n_windows, "n_datasets": median.n_datasets,
        "n_seasonal": sum(seasons[name] > 1 for name in set(seasons) - set(median.left_out)),
        "wql_vs_median": median.ratio, "low": median.low, "high": median.high, "wql_vs_seasonal": seasonal.ratio,
        "seasonal_low": seasonal.low, "seasonal_high": seasonal.high, "bootstrap": bootstrap, "seed": seed,
    }  # fmt: skip


def sample_seed(seed: int, window: int) -> int:
    """Return the seed of the sample paths of one window."""
    return int(np.random.SeedSequence([seed, window]).generate_state(1, np.uint32)[0])


def spread_rows(windows: Windows, count: int) -> Windows:
    """Return `count` windows, evenly spaced in their order; all of them if there are not more."""
    if len(windows) <= count:
        return windows
    return windows.take([row * len(windows) // count for row in range(count)])


def dataset_errors(
    windows: Windows, quantiles: Float[np.ndarray, "window quantile horizon"], levels: Sequence[float]
) -> dict[str, Any]:
    """Return WQL and MAE of a forecast and of point seasonal naive, and their ratios: columns of `dataset_skill`.

    WQL = sum of the quantile losses over the windows / (number of levels * sum of |y|); MAE = sum of |y - median| /
    number of observed targets.

    Source: WQL: Ansari et al. 2024, section 5.4. The season is `Windows.season`, that of the frequency.
    Deviations: the sum of |y| cancels in the ratio of two WQL, which is therefore defined if all targets are 0.
    Undefined: no window, or no observed target, gives None for all columns. Targets that are all 0 give None for
    both WQL. A seasonal naive without error gives None for both ratios. `reason` states the cause.
    ValueError if the forecast contains NaN or infinity.
    """
    check_finite(quantiles)
    errors = _pool(windows, quantiles, levels)
    naive = _pool(windows, seasonal_naive(windows, len(levels)), levels)
    n_targets = int(np.isfinite(windows.future).sum())
    size = float(np.nansum(np.abs(windows.future.astype(np.float64)))) * len(levels)
    has_error = naive["mae"] > 0 and naive["wql"] > 0
    reasons = [] if size else ["wql: the targets are zero"]
    reasons += [] if has_error else ["wql_ratio, mae_ratio: seasonal naive has no error"]
    return {
        "wql": errors["wql"] / size if size else None,
        "mae": errors["mae"] / n_targets if n_targets else None,
        "wql_seasonal": naive["wql"] / size if size else None,
        "mae_seasonal": naive["mae"] / n_targets if n_targets else None,
        "wql_ratio": errors["wql"] / naive["wql"] if has_error else None,
        "mae_ratio": errors["mae"] / naive["mae"] if has_error else None,
        "reason": "; ".join(reasons) or None if n_targets else "no window with an observed target",
    }


def _pool(windows: Windows, quantiles: np.ndarray, levels: Sequence[float]) -> dict[str, float]:
    """Return the sums of the quantile losses and of the median's absolute errors over all windows."""
    median = quantiles[:, list(levels).index(MEDIAN)]
    return {
        "wql": float(quantile_losses(windows.future, quantiles, levels).sum()),
        "mae": float(absolute_errors(windows.future, median).sum()),
    }


def mean_skill(rows: Iterable[Mapping[str, Any]], *, bootstrap: int, seed: int) -> list[dict[str, Any]]:
    """Return the rows of `mean_skill`, one per model and kind of data sets, from those of `dataset_skill`.

    Real and synthetic data sets are apart. Data sets that a model was trained on, and those without a ratio, are
    left out; a model and kind without a data set has no row.
    """
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: (row["model"], row["dataset"])):
        if row["wql_ratio"] is not None and not row["trained_on"]:
            groups.setdefault((row["model"], "real" if row["is_real"] else "synthetic"), []).append(row)
    means = []
    for (model, kind), group in sorted(groups.items()):
        ratios = np.array([[row[name] for name in RATIOS.values()] for row in group], dtype=np.float64)
        columns = mean_columns(tuple(RATIOS), *geometric_mean(ratios, bootstrap=bootstrap, seed=seed))
        names = {"model": model, "kind": kind, "n_datasets": len(group)}
        means.append({**names, **columns, "bootstrap": bootstrap, "seed": seed})
    return means


def geometric_mean(
    ratios: Float[np.ndarray, "dataset ratio"], *, bootstrap: int, seed: int
) -> tuple[Float[np.ndarray, " ratio"], Float[np.ndarray, "end ratio"] | None]:
    """Return the geometric mean of each column, and the ends of its percentile bootstrap interval over the rows.

    All columns have the same resamples. The interval covers COVERAGE; it is None for fewer than FEWEST_ROWS rows.
    A ratio of 0 makes the mean 0.
    """
    with np.errstate(divide="ignore"):
        logs = np.log(ratios)
    means = np.exp(logs.mean(axis=0))
    if len(logs) < FEWEST_ROWS:
        return means, None
    draws = np.random.default_rng(seed).integers(len(logs), size=(bootstrap, len(logs)))
    tail = (1 - COVERAGE) / 2
    # Values of the sample itself, because the logarithm of 0 cannot be interpolated.
    ends = np.quantile(np.exp(logs[draws].mean(axis=1)), (tail, 1 - tail), axis=0, method="inverted_cdf")
    return means, ends


def mean_columns(names: Sequence[str], means: np.ndarray, ends: np.ndarray | None) -> dict[str, float | None]:
    """Return the columns name, name_low and name_high of each mean, from the results of `geometric_mean`."""
    columns: dict[str, float | None] = {}
    for index, name in enumerate(names):
        columns[name] = float(means[index])
        columns[f"{name}_low"], columns[f"{name}_high"] = (None, None) if ends is None else ends[:, index].tolist()
    return columns


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a CSV file of sums, with the columns COLUMNS."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            {**row, **{name: int(row[name]) for name in COUNTS}, **{name: float(row[name]) for name in SUMS}}
            for row in csv.DictReader(file)
        ]


def dataset_ratios(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the ratios wql and mae per model and data set; the windows of all frequencies are pooled.

    A data set without a window, or whose seasonal naive has no error, is left out.
    """
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["model"], row["group"], row["dataset"]), []).append(row)
    ratios = []
    for (model, group, dataset), parts in groups.items():
        loss, error, naive = (sum(part[name] for part in parts) for name in SUMS)
        if naive > 0:
            steps = {name: ", ".join(str(part[name]) for part in parts) for name in ("season", "horizon")}
            n_windows = sum(part["n_windows"] for part in parts)
            facts = {"model": model, "group": group, "dataset": dataset, "n_windows": n_windows}
            ratios.append({**facts, **steps, "wql": loss / naive, "mae": error / naive})
    return ratios


def group_skill(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return geometric means over data sets per model and group, with 95 % bootstrap intervals and the worst data set.

    The bootstrap draws data sets. Rows are in the order of the file's models.
    """
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in dataset_ratios(rows):
        groups.setdefault((row["model"], row["group"]), []).append(row)
    means = []
    for (model, group), sets in groups.items():
        ratios = np.array([[row["wql"], row["mae"]] for row in sets])
        columns = mean_columns(("wql", "mae"), *geometric_mean(ratios, bootstrap=BOOTSTRAP, seed=0))
        worst = max(sets, key=lambda row: row["wql"])
        names = {"model": model, "group": group, "n_datasets": len(sets)}
        series = max(item["n_windows"] for item in sets)
        means.append({**names, "series": series, **columns, "worst": worst["dataset"], "worst_wql": worst["wql"]})
    return means


def interval(row: Mapping[str, Any], name: str) -> str:
    """Return a mean with its interval as text."""
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return f"{row[name]:.3f}" + ("" if low is None else f" [{low:.3f}, {high:.3f}]")


def sine_windows(context: int) -> tuple[Windows, np.ndarray]:
    """Return windows of noiseless sines of amplitude 1 and mean 0, and the period of each window.

    The first windows have PERIOD, with PHASES phases. The others have those of PERIODS that a context holds
    FEWEST_CYCLES times. All windows are declared as hourly with season PERIOD, so a model must find another
    period in the context.
    """
    sines = [(PERIOD, phase / PHASES) for phase in range(PHASES)]
    others = [period for period in PERIODS if period != PERIOD and FEWEST_CYCLES * period <= context]
    sines += [(period, phase) for period in others for phase in OTHER_PHASES]
    steps = np.arange(context + HORIZON)
    series = []
    for period, phase in sines:
        values = np.sin(2 * np.pi * (steps / period + phase)).astype(np.float32)
        name = f"period-{period}-phase-{phase:g}"
        series.append(Series("sine", name, values, freq="h", start=datetime(2024, 1, 1), season=PERIOD))
    windows, _ = last_windows(series, context=context, horizon=HORIZON)
    return windows, np.array([period for period, _ in sines])


def sine_errors(model: Forecaster, *, context: int, samples: int, seed: int) -> dict[str, Any]:
    """Return `sine_error`, with PERIOD, and `sine_error_max` with `sine_period_max`, its period: columns of `skill`.

    The error of a period is the absolute error of the median over the error of forecasting 0, both summed over the
    windows of `sine_windows`. 0 is an exact forecast; 1 is no better than forecasting 0.
    """
    windows, periods = sine_windows(context)
    seeds = [sample_seed(seed, window) for window in range(len(windows))]
    median = model.forecast(windows, levels=[MEDIAN], samples=samples, seeds=seeds).values[:, 0]
    future = windows.future.astype(np.float64)
    errors, sizes = np.abs(future - median).sum(axis=1), np.abs(future).sum(axis=1)
    by_period = {
        int(period): float(errors[periods == period].sum() / sizes[periods == period].sum())
        for period in np.unique(periods)
    }
    worst = max(by_period, key=lambda period: by_period[period])
    return {"sine_error": by_period[PERIOD], "sine_error_max": by_period[worst], "sine_period_max": worst}
