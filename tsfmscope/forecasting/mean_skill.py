"""Geometric means over data sets of a forecaster's errors relative to point seasonal naive's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from tsfmscope.forecasting.skill import COVERAGE
from tsfmscope.statistics.bootstrap import FEWEST_ROWS

# Ratios of the table `dataset_skill` and the names of their means in `mean_skill`.
RATIOS = {"wql": "wql_ratio", "mae": "mae_ratio"}


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
