"""Both sides of a bound at one instance, and the choice of the tightest index of a statement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

Form = Literal["printed", "repaired"]
FORMS: tuple[Form, Form] = ("printed", "repaired")
# Relative tolerance: a smaller difference is rounding of the two sides.
SLACK = 1e-9


@dataclass(frozen=True)
class BoundCheck:
    """Check of one statement at one instance: `bound` limits `y` at the index or parameter `x`.

    - form: printed (the paper's words or construction) or repaired (with the condition that its proof needs).
    - side: upper or lower bound.
    - floor: absolute rounding uncertainty.
    - setting: other values that the instance was drawn with.
    """

    form: Form
    side: Literal["upper", "lower"]
    x: float
    y: float
    bound: float
    floor: float = 0.0
    setting: Mapping[str, Any] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Return whether the bound holds, up to rounding."""
        if self.side == "upper":
            return self.y <= self.bound * (1 + SLACK) + self.floor
        return self.y >= self.bound * (1 - SLACK) - self.floor

    @property
    def ratio(self) -> float:
        """Return the used share of the bound; above 1, the bound fails."""
        return ratio(self.side, self.y, self.bound)


def ratio(side: str, y: float, bound: float) -> float:
    """Return y / bound for an upper bound, bound / y for a lower one; 0 for 0/0."""
    numerator, denominator = (y, bound) if side == "upper" else (bound, y)
    return numerator / denominator if denominator else (0.0 if not numerator else float("inf"))


def tightest_case(
    form: Form,
    side: Literal["upper", "lower"],
    x: Float[np.ndarray, " index"],
    y: Float[np.ndarray, " index"],
    bound: Float[np.ndarray, " index"],
    *,
    floor: float = 0.0,
    setting: Mapping[str, Any] | None = None,
) -> BoundCheck:
    """Return the check at the index that uses the largest share of the bound.

    An index counts only where the larger of y and bound is above 10 floors; elsewhere, both may be rounding.
    If no index counts, the first one is taken. `setting["places"]` is the number of indices that count.
    """
    is_significant = np.maximum(y, bound) > 10 * floor
    shares = np.array([ratio(side, a, b) if ok else -1.0 for a, b, ok in zip(y, bound, is_significant, strict=True)])
    at = int(shares.argmax())
    full_setting = {**(setting or {}), "places": int(is_significant.sum())}
    return BoundCheck(form, side, float(x[at]), float(y[at]), float(bound[at]), floor, full_setting)
