"""Errors of a forecaster on the last windows of one data set, and those of point seasonal naive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from tsfmscope.forecasting.baselines import seasonal_naive
from tsfmscope.forecasting.scores import MEDIAN, absolute_errors, check_finite, quantile_losses
from tsfmscope.series.types import Windows


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
