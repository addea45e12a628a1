"""The log-partition of a softmax head, and why its spread matters (Theorem 1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class Spread:
    """log Z over n forecast positions, in nats; sd (of a sample) is None for a single one, all but n for none."""

    n: int
    mean: float | None
    sd: float | None
    low: float | None
    high: float | None
    range: float | None


def log_partition(logits: Float[np.ndarray, "*position id"]) -> Float[np.ndarray, "*position"]:
    """log Z(k, l) = log Σ_i exp z_i of the logits as the model emits them: all ids, after its own scaling.

    Source: isotropy paper, section 2. -inf (an id that is ruled out) adds nothing. Raises ValueError for NaN or +inf
    and for a position without any id.
    """
    values = np.asarray(logits, dtype=np.float64)
    if np.isnan(values).any() or np.isposinf(values).any():
        raise ValueError("logits: expected values below infinity and no NaN; check the weights and their dtype")
    largest = values.max(axis=-1, keepdims=True, initial=-np.inf)
    if np.isneginf(largest).any():
        raise ValueError("logits: expected at least one id above -inf at every position")
    logs: np.ndarray = largest[..., 0] + np.log(np.exp(values - largest).sum(axis=-1))
    return logs


def partition_spread(log_z: Float[np.ndarray, "*position"]) -> Spread:
    """Standard deviation and range of log Z over positions: 0 where the partition function is stable.

    Source: isotropy paper, section 3, which speaks of that stability and measures eq. 5 in its place.
    """
    values = np.asarray(log_z, dtype=np.float64).reshape(-1)
    if not len(values):
        return Spread(0, None, None, None, None, None)
    low, high = float(values.min()), float(values.max())
    sd = float(values.std(ddof=1)) if len(values) > 1 else None
    return Spread(len(values), float(values.mean()), sd, low, high, high - low)


def ineffective_shift(logits: Float[np.ndarray, "position id"], thresholds: Float[np.ndarray, " id"]) -> float:
    """τ of Theorem 1: z + τ leaves every probability as it was, and every ReLU(z_i + τ - b_i) at 0.

    τ < min_i b_i - max z over all positions and ids. Source: isotropy paper, Appendix A.
    """
    gap = float(np.min(thresholds) - np.max(logits))
    return float(gap - 1 - 1e-9 * abs(gap))  # 1e-9: the strict < holds after rounding, for logits of any size


def downstream(
    logits: Float[np.ndarray, "position id"],
    weights: Float[np.ndarray, " id"],
    thresholds: Float[np.ndarray, " id"],
) -> Float[np.ndarray, " position"]:
    """f(k, l) = Σ_i a_i ReLU(z_i(k, l) - b_i), the numerical task of the isotropy paper's section 2."""
    task: np.ndarray = np.maximum(np.asarray(logits, dtype=np.float64) - thresholds, 0.0) @ weights
    return task
