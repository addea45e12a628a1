"""What a check demands, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from tasks.models.conformance.subject import Subject

Check = Callable[["Subject"], str]  # answers what it saw; raises Failed or NotApplicable
SAME = 1e-5  # of the largest state: what float32 rounding may change, where other kernels see the same numbers


class Failed(Exception):
    """A check's demand is not met; the message says expected, got and where."""


class NotApplicable(Exception):
    """A check asks for what the family does not claim to have; the message says what."""


@dataclass(frozen=True)
class Finding:
    """One check of one family. demand: what is asked for; detail: what was seen, or what is wrong."""

    check: str
    verdict: Literal["pass", "fail", "not applicable"]
    demand: str
    detail: str

    def json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def judge(check: Check, subject: Subject) -> Finding:
    """Run a check; whatever else it raises is a failure too, since families raise what is wrong with their states."""
    verdict: Literal["pass", "fail", "not applicable"]
    try:
        verdict, detail = "pass", check(subject)
    except NotApplicable as reason:
        verdict, detail = "not applicable", str(reason)
    except Failed as reason:
        verdict, detail = "fail", str(reason)
    except Exception as error:  # a plugin may raise anything
        verdict, detail = "fail", f"{type(error).__name__}: {error}"
    return Finding(name_of(check), verdict, demand_of(check), detail)


def name_of(check: Check) -> str:
    """As the table says it."""
    return check.__name__.replace("_", "-")


def demand_of(check: Check) -> str:
    """The first sentence of its docstring."""
    return " ".join((check.__doc__ or "").split("\n\n")[0].split())


def demand(met: bool, otherwise: str) -> None:
    """Raises Failed where a demand is not met."""
    if not met:
        raise Failed(otherwise)


def distance(found: np.ndarray, expected: np.ndarray) -> float:
    """Largest difference over the largest number that is expected, at least 1. Failed for other shapes, or NaN."""
    demand(found.shape == expected.shape, f"got shape {found.shape}, expected {expected.shape}")
    if not expected.size:
        return 0.0
    scale = max(1.0, float(np.abs(expected).max()))
    apart = float(np.abs(found.astype(np.float64) - expected).max()) / scale
    demand(apart == apart, "not a number where one is expected, or the other way round")
    return apart
