"""Identity of series by their values, whatever they and their data sets are called."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np

from tsfmscope.series.types import Series

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
