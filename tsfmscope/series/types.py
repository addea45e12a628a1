"""Types of a series and of a batch of windows, and the identity of series by their values."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple, Self

import numpy as np
from jaxtyping import Float, Int64


@dataclass(frozen=True, eq=False)
class Series:
    """One time series of one data set; missing values are NaN.

    values are float64 where float32 may round what the source contains: steps that vary little around a large level.
    start is the time of the first value, without a time zone. Families that read dates use nominal dates
    where they are missing: 2000-01-01 00:00 for a series without start (a synthetic one, or a table without
    times), and days for one without freq (see `tsfmscope.series.calendar`).
    """

    dataset: str
    series: str
    values: Float[np.ndarray, " step"]
    domain: str = ""
    freq: str = ""
    start: datetime | None = None
    # scikit-learn expression of a synthetic series.
    kernel: str | None = None
    # Seed that reproduces a synthetic series without the others.
    seed: int | None = None
    provenance: str = ""
    # Time zone of the local times of `start`, such as Europe/Berlin; None: unknown.
    tz: str | None = None
    # Steps of a season; None: the season of the frequency.
    season: int | None = None


@dataclass(frozen=True, eq=False)
class Windows:
    """Windows of one data set under one condition. Contexts shorter than C are left-padded with NaN.

    context: [W, C], float64 if the values of a series are; future: [W, H], the clean targets, NaN where missing;
    series: id of each window's series;
    origin: index of the first future step in its series;
    season: lag in steps of seasonal naive and of MASE's scale (`season_of`), 1 where the data set has no
    season, so that seasonal naive repeats the last value;
    starts: time of the first value of each window's series, datetime64[ms], NaT where it is unknown; None
    where all are unknown. With origin and freq it gives the date of every step:
    `tsfmscope.series.calendar.window_dates`.
    """

    context: Float[np.ndarray, "window step"]
    future: Float[np.ndarray, "window horizon"]
    series: list[str]
    origin: Int64[np.ndarray, " window"]
    dataset: str
    freq: str
    season: int
    starts: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.series)

    def count_observed(self, context: int) -> Int64[np.ndarray, " window"]:
        """Count the observed steps among the last `context` steps before each window's origin."""
        return np.asarray(np.isfinite(self.context[:, -context:]).sum(axis=1))

    @property
    def horizon(self) -> int:
        """Return the number of steps to forecast, H."""
        return int(self.future.shape[1])

    def take(self, rows: slice | Sequence[int]) -> Self:
        """Select windows, in the order given."""
        indices = np.arange(len(self))[rows]
        arrays = {name: getattr(self, name)[indices] for name in ("context", "future", "origin")}
        starts = None if self.starts is None else self.starts[indices]
        return replace(self, **arrays, starts=starts, series=[self.series[row] for row in indices.tolist()])


class Skip(NamedTuple):
    """A series that cannot be used, and the reason.

    The same cause always has the same text, so that reasons can be counted.
    """

    series: str
    reason: str


def count_reasons(skips: Iterable[Skip]) -> dict[str, int]:
    """Return reason -> number of series."""
    return dict(Counter(skip.reason for skip in skips))


def describe_reasons(counts: Mapping[str, int]) -> str:
    """Return reasons with their numbers of series as text."""
    return "; ".join(f"{n} {reason}" for reason, n in counts.items()) or "there are none"


# Bytes of a digest; two of a million different series are equal with a probability of 1e-27.
SIZE = 16
# Key of recipe.json and onnx.json: digests of the series that calibrated or healed the model.
CALIBRATION_SERIES = "calibration_series"
# Key of names of data sets, for models that were compressed before digests were recorded.
CALIBRATION_DATASETS = "calibration_datasets"


def digests(series: Iterable[Series]) -> frozenset[str]:
    """Return one digest per series, of its values as float32; every missing value counts as the same NaN.

    A text file of a float32 column holds other float64 numbers than the column, such as 0.1. A series of which
    float32 merges most values, such as a large level with small changes, counts by its float64 values.
    """
    found = set()
    for item in series:
        values = np.array(item.values, dtype="<f4")
        if 2 * len(np.unique(values)) < len(np.unique(item.values)):
            values = np.array(item.values, dtype="<f8")
        values[np.isnan(values)] = np.nan
        # Adding 0 makes -0.0 equal to 0.0.
        found.add(hashlib.blake2b((values + 0.0).tobytes(), digest_size=SIZE).hexdigest())
    return frozenset(found)


def name_sources(contents: Mapping[str, frozenset[str]]) -> dict[str, str]:
    """Return data set -> source: the first data set that shares a series with it, directly or through others.

    contents: digests of the series by data set.
    """
    order = list(contents)
    source_of: dict[str, str] = {}
    for name, own in contents.items():
        shared = {source for other, source in source_of.items() if contents[other] & own}
        first = min({*shared, name}, key=order.index)
        source_of = {other: first if source in shared else source for other, source in source_of.items()}
        source_of[name] = first
    return source_of
