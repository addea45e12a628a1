"""Demands of checks, and their outcomes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar

import numpy as np

from tsfmscope.conformance.errors import Failed, NotApplicable
from tsfmscope.conformance.subject import Subject

# Returns what it saw; raises Failed or NotApplicable.
Check = Callable[[Subject], str]
# What a check looks at: a Subject, or the files of a checkpoint.
Tested = TypeVar("Tested")
# Share of the largest state that float32 rounding may change where other kernels see the same
# numbers.
SAME = 1e-5


@dataclass(frozen=True)
class Finding:
    """Outcome of one check of one family.

    demand: what is required. detail: what was seen, or what is wrong.
    """

    check: str
    verdict: Literal["pass", "fail", "not applicable"]
    demand: str
    detail: str

    def json(self) -> dict[str, Any]:
        """Return the finding as plain data."""
        return asdict(self)


def judge(check: Callable[[Tested], str], subject: Tested) -> Finding:
    """Run a check and return its finding.

    Any other exception is a failure too, since families raise errors about their own states.
    """
    verdict: Literal["pass", "fail", "not applicable"]
    try:
        verdict, detail = "pass", check(subject)
    except NotApplicable as reason:
        verdict, detail = "not applicable", str(reason)
    except Failed as reason:
        verdict, detail = "fail", str(reason)
    # A plugin may raise anything.
    except Exception as error:
        verdict, detail = "fail", f"{type(error).__name__}: {error}"
    return Finding(name_of(check), verdict, demand_of(check), detail)


def name_of(check: Callable[..., str]) -> str:
    """Return the name of a check as the table shows it."""
    return check.__name__.replace("_", "-")


def demand_of(check: Callable[..., str]) -> str:
    """Return the first paragraph of a check's docstring, on one line."""
    return " ".join((check.__doc__ or "").split("\n\n")[0].split())


def demand(met: bool, otherwise: str) -> None:
    """Raise Failed where a demand is not met."""
    if not met:
        raise Failed(otherwise)


def distance(actual: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference over the largest expected number, or over 1 where that is larger.

    Failed for other shapes, or where a difference is NaN.
    """
    demand(actual.shape == expected.shape, f"got shape {actual.shape}, expected {expected.shape}")
    if not expected.size:
        return 0.0
    scale = max(1.0, float(np.abs(expected).max()))
    difference = float(np.abs(actual.astype(np.float64) - expected).max()) / scale
    demand(difference == difference, "not a number where one is expected, or the other way round")
    return difference
