"""Both sides of a bound at one instance, and which of several places of a statement is the tightest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

Form = Literal["printed", "repaired"]
FORMS: tuple[Form, Form] = ("printed", "repaired")
SLACK = 1e-9  # relative; less is rounding of the two sides


@dataclass(frozen=True)
class Side:
    """One statement at one instance: `y` is bounded by `bound` from the side named, at the index or parameter `x`.

    form: printed, the paper's words or construction; repaired, with what its proof lacks. floor: what rounding leaves
    unsure, absolute. setting: what else the instance was drawn with.
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
        """Whether the bound holds, rounding granted."""
        if self.side == "upper":
            return self.y <= self.bound * (1 + SLACK) + self.floor
        return self.y >= self.bound * (1 - SLACK) - self.floor

    @property
    def ratio(self) -> float:
        """How much of the bound is used up; above 1 it fails."""
        return ratio(self.side, self.y, self.bound)


def ratio(side: str, y: float, bound: float) -> float:
    """y / bound of an upper bound, bound / y of a lower one; 0 of 0 / 0."""
    over, under = (y, bound) if side == "upper" else (bound, y)
    return over / under if under else (0.0 if not over else float("inf"))


def tightest(
    form: Form,
    side: Literal["upper", "lower"],
    x: Float[np.ndarray, " place"],
    y: Float[np.ndarray, " place"],
    bound: Float[np.ndarray, " place"],
    *,
    floor: float = 0.0,
    setting: Mapping[str, Any] | None = None,
) -> Side:
    """The place where most of the bound is used up, of those whose sides are not lost in rounding.

    A place counts where the larger side is above 10 floors; where there is none, the first stands for all.
    """
    sure = np.maximum(y, bound) > 10 * floor
    used = np.array([ratio(side, a, b) if ok else -1.0 for a, b, ok in zip(y, bound, sure, strict=True)])
    at = int(used.argmax())
    about = {**(setting or {}), "places": int(sure.sum())}
    return Side(form, side, float(x[at]), float(y[at]), float(bound[at]), floor, about)
