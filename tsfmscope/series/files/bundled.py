"""Real series that are included in statsmodels and are read without a network."""

from __future__ import annotations

from datetime import datetime
from importlib import import_module

import numpy as np

from tsfmscope.series.types import Series

# Data set -> (domain, frequency, time of the first value); from statsmodels.datasets, public
# domain.
BUNDLED: dict[str, tuple[str, str, datetime]] = {
    "sunspots": ("nature", "YS", datetime(1700, 1, 1)),
    "co2": ("nature", "W", datetime(1958, 3, 29)),
    "elnino": ("nature", "MS", datetime(1950, 1, 1)),
    "nile": ("nature", "YS", datetime(1871, 1, 1)),
    "macrodata": ("economics", "QS", datetime(1959, 1, 1)),
}


def load_bundled(name: str) -> list[Series]:
    """Read one of sunspots, co2, elnino, nile (one series each) or macrodata (one series per numeric column).

    Raises:
        ValueError: `name` is none of these.
    """
    if name not in BUNDLED:
        raise ValueError(f"bundled data set: expected one of {sorted(BUNDLED)}, got {name!r}")
    domain, freq, start = BUNDLED[name]
    frame = import_module(f"statsmodels.datasets.{name}").load_pandas().data
    if name == "elnino":
        # The table has one row per year and one column per month.
        columns = {name: frame.drop(columns="YEAR").to_numpy(dtype=np.float64).reshape(-1)}
    else:
        frame = frame.drop(columns=["YEAR", "year", "quarter"], errors="ignore")
        columns = {str(column): frame[column].to_numpy(dtype=np.float64) for column in frame}
        columns = columns if len(columns) > 1 else {name: next(iter(columns.values()))}
    return [
        Series(name, column, values.astype(np.float32), domain, freq, start, provenance=f"statsmodels.datasets.{name}")
        for column, values in columns.items()
    ]
