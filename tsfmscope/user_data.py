"""Series that a user passes to the public Python API."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from tsfmscope.stages.config import DataSets
from tsfmscope.stages.config.defaults import params_here
from tsfmscope.stages.pipeline.load_series import load_data_set
from tsfmscope.stages.pipeline.model_reference import slug
from tsfmscope.tasks.errors import DataError
from tsfmscope.tasks.series.catalog import CATALOG
from tsfmscope.tasks.series.files.parquet import Loaded, select
from tsfmscope.tasks.series.files.time_grid import missing_times
from tsfmscope.tasks.series.files.user_files import load_frame, load_own
from tsfmscope.tasks.series.types import Series, Windows
from tsfmscope.tasks.series.windows import season_of

logger = logging.getLogger("tsfmscope")

# What a user may pass as series.
Data = pd.DataFrame | pd.Series | np.ndarray | str | Path


def usable_series(data: Data, max_series: int | None, seed: int) -> tuple[str, Loaded]:
    """Return a name for the data and the usable series. Raises DataError if there is none."""
    sample = None if max_series is None else (max_series, seed)
    if isinstance(data, pd.Series):
        data = data.to_frame("value" if data.name is None else str(data.name))
    if isinstance(data, pd.DataFrame):
        name, found = "data", load_frame(data, name="data", sample=sample)
    elif isinstance(data, str | Path):
        name, found = _named_series(str(data), sample)
    else:
        name, found = "data", _array_series(np.asarray(data), sample)
    for line in found.notes:
        logger.info(line)
    if found.missing:
        logger.warning(missing_times(found.missing))
    if not found.series:
        raise DataError(f"data: no usable series: {counted(Counter(one.reason for one in found.skipped))}")
    return name, found


def _named_series(text: str, sample: tuple[int, int] | None) -> tuple[str, Loaded]:
    params = params_here()
    if text in params.datasets.sets or text in CATALOG:
        known = params.datasets.sets
        dataset = known.get(text) or DataSets.model_validate({"sets": {text: {}}}).sets[text]
        if dataset.source == "kernelsynth":
            raise DataError(f"data: {text!r} is drawn by the pipeline; name a file, or one of {', '.join(CATALOG)}")
        return text, load_data_set(text, dataset, params)
    path = Path(text).expanduser()
    if not path.exists():
        raise DataError(f"data: got {text!r}, expected a file, a folder, or one of {', '.join(CATALOG)}")
    name = slug(path.resolve().name.partition(".")[0]) or "data"
    return name, load_own(path, name=name, sample=sample)


def _array_series(values: np.ndarray, sample: tuple[int, int] | None) -> Loaded:
    if values.ndim not in (1, 2) or not np.issubdtype(values.dtype, np.number):
        raise DataError(
            f"data: got an array {values.shape} of {values.dtype}, expected numbers [step] or [series, step]"
        )
    rows = np.atleast_2d(values).astype(np.float32)
    return select((Series("data", f"series-{i}", row) for i, row in enumerate(rows)), sample=sample)


def last_contexts(series: Sequence[Series], context: int) -> Windows:
    """Return the last `context` steps of every series, with one unknown step after them."""
    values = np.full((len(series), context), np.nan, dtype=np.float32)
    for row, one in zip(values, series, strict=True):
        kept = one.values[-context:]
        row[context - len(kept) :] = kept
    starts = [one.start for one in series]
    known = None if all(one is None for one in starts) else np.array(starts, dtype="datetime64[ms]")
    return Windows(
        values,
        np.full((len(series), 1), np.nan, dtype=np.float32),
        [one.series for one in series],
        np.array([len(one.values) for one in series], dtype=np.int64),
        series[0].dataset,
        series[0].freq,
        season_of(series[0]),
        known,
    )


def counted(reasons: Mapping[str, int]) -> str:
    """Write reasons and their numbers of series as text."""
    return "; ".join(f"{n} {reason}" for reason, n in reasons.items()) or "there are none"
