"""Scores of a case by gluonts' own evaluation, which the Chronos evaluation uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def gluonts_scores(case: Mapping[str, Sequence[np.ndarray]], season: int) -> dict[str, np.ndarray]:
    """WQL and MASE of each window, and over all windows together.

    case: `target` [W, H], `quantiles` [W, Q, H] at LEVELS and `past`, one history per window.
    """
    from gluonts.dataset.split import split
    from gluonts.ev.metrics import MASE, MeanWeightedSumQuantileLoss
    from gluonts.model.evaluation import evaluate_forecasts
    from gluonts.model.forecast import QuantileForecast

    horizon = len(case["target"][0])
    start = pd.Period("2020-01-01", freq="D")
    entries = [
        {"start": start, "target": np.concatenate([past, target]), "item_id": str(i)}
        for i, (past, target) in enumerate(zip(case["past"], case["target"], strict=True))
    ]
    _, template = split(entries, offset=-horizon)
    test = template.generate_instances(horizon)
    forecasts = [
        QuantileForecast(q, start + len(past), forecast_keys=[str(level) for level in LEVELS], item_id=str(i))
        for i, (q, past) in enumerate(zip(case["quantiles"], case["past"], strict=True))
    ]
    metrics = [MASE(), MeanWeightedSumQuantileLoss(quantile_levels=LEVELS)]
    asked = {"test_data": test, "metrics": metrics, "seasonality": season}
    each = evaluate_forecasts(forecasts, axis=1, **asked)
    pooled = evaluate_forecasts(forecasts, axis=None, **asked)
    return {
        "mase": each["MASE[0.5]"].to_numpy(dtype=float),
        "wql_window": each["mean_weighted_sum_quantile_loss"].to_numpy(dtype=float),
        "wql": pooled["mean_weighted_sum_quantile_loss"].to_numpy(dtype=float),
        "pooled_mase": pooled["MASE[0.5]"].to_numpy(dtype=float),
    }
