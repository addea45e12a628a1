"""Log-partition function of a softmax head, and why its spread matters (Shelim et al. 2025, Theorem 1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class Spread:
    """Statistics of log Z over n forecast positions, in nats.

    sd is the sample standard deviation, None for a single position. With no position, every field but n is
    None.
    """

    n: int
    mean: float | None
    sd: float | None
    low: float | None
    high: float | None
    range: float | None


def log_partition(logits: Float[np.ndarray, "*position id"]) -> Float[np.ndarray, "*position"]:
    """Return log Z(k, l) = log Σ_i exp z_i of the logits.

    The logits are used as emitted: all ids, after the model's own scaling. Source: Shelim et al. 2025,
    section 2. A logit of -inf (an excluded id) adds nothing. Constant logits z over n ids give z + log n.
    Raises ValueError for NaN or +inf, and for a position without any id above -inf.
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
    """Compute the standard deviation and range of log Z over positions.

    Both are 0 where the partition function is stable. Source: Shelim et al. 2025, section 3. The paper
    discusses this stability and measures eq. 5 instead. A single position has no standard deviation (None).
    NaN gives NaN.
    """
    values = np.asarray(log_z, dtype=np.float64).reshape(-1)
    if not len(values):
        return Spread(0, None, None, None, None, None)
    low, high = float(values.min()), float(values.max())
    sd = float(values.std(ddof=1)) if len(values) > 1 else None
    return Spread(len(values), float(values.mean()), sd, low, high, high - low)
