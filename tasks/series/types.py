"""What a series and a batch of windows are."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int64


@dataclass(frozen=True, eq=False)
class Series:
    """One time series of one data set; missing values are NaN."""

    dataset: str
    series: str
    values: Float32[np.ndarray, " step"]
    domain: str = ""
    freq: str = ""
    start: datetime | None = None
    kernel: str | None = None  # scikit-learn expression of a synthetic series
    seed: int | None = None  # seed that draws a synthetic series again, alone
    provenance: str = ""


@dataclass(frozen=True, eq=False)
class Windows:
    """Windows of one data set under one condition. Contexts shorter than C are left-padded with NaN.

    context: [W, C]; future: [W, H], the clean targets, NaN where missing; series: id of each window's series;
    origin: index in its series of the first future step; season: steps of the seasonal-naive lag (gluonts).
    """

    context: Float32[np.ndarray, "window step"]
    future: Float32[np.ndarray, "window horizon"]
    series: list[str]
    origin: Int64[np.ndarray, " window"]
    dataset: str
    freq: str
    season: int

    def __len__(self) -> int:
        return len(self.series)

    @property
    def horizon(self) -> int:
        """Steps to forecast, H."""
        return int(self.future.shape[1])


class Skip(NamedTuple):
    """A series that cannot be used, and why; reasons are alike for alike causes, so that they can be counted."""

    series: str
    reason: str
