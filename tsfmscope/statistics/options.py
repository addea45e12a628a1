"""Options of intervals and tests."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from pydantic import Field

from tsfmscope.strict import Strict


class StatisticsOptions(Strict):
    """Options of intervals and tests, as defined in docs/science.md."""

    permutations: int = Field(9999, ge=99, description="largest number of orders; random orders if more exist")
    bootstrap: int = Field(2000, ge=2, description="resamples per interval")
    alpha: float = Field(0.05, gt=0, lt=0.5, description="significance level; intervals cover 1 - alpha")


class SeededOptions(StatisticsOptions):
    """Options of the statistics of a run, with its seed."""

    seed: int = 0

    def generator(self, *names: str) -> np.random.Generator:
        """Return the random generator of one statistic, independent of which other statistics are computed."""
        text = "\0".join((str(self.seed), *names))
        return np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]))

    def orders(self, *names: str) -> dict[str, Any]:
        """Return the arguments of a permutation test."""
        return {"permutations": self.permutations, "alpha": self.alpha, "generator": self.generator(*names)}

    def draws(self, *names: str) -> dict[str, Any]:
        """Return the arguments of a bootstrap."""
        return {"resamples": self.bootstrap, "alpha": self.alpha, "generator": self.generator(*names)}
