"""Reader of hub data sets in the layout of `autogluon/chronos_datasets`; downloads only if allowed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tsfmscope.errors import DataError
from tsfmscope.hub import download
from tsfmscope.series.files.parquet import DAMAGED, MIN_LENGTH, LoadedSeries, select
from tsfmscope.series.tables import is_number_list, list_values
from tsfmscope.series.types import Series

# Number of times from which the frequency of a row is inferred.
FIRST_TIMES = 16
REPOSITORY = "autogluon/chronos_datasets"


def load_hub(
    name: str,
    *,
    allowed: bool,
    repository: str = REPOSITORY,
    domain: str = "",
    min_length: int | None = MIN_LENGTH,
    sample: tuple[int, int] | None = None,
    cache: Path | None = None,
) -> LoadedSeries:
    """Read one data set of a hub repository (a folder of Parquet shards), such as "m4_hourly".

    A row has an id, a list of times (timestamp) and one list of numbers per variate. Each variate is one
    series, named id, or id:column where there are several. The frequency is inferred from the first times. If
    `allowed` is false, only the hub's local cache is used.

    Raises:
        HubError: the hub is not allowed, does not answer, or has no such data set; the message gives a fix.
        DataError: a shard is damaged or of another layout.
        ValueError: `name` is not a folder's name.
    """
    if not re.fullmatch(r"[\w.-]+", name):
        raise ValueError(f"hub data set: expected a folder's name in {repository}, got {name!r}")
    folder, revision = download(repository, [f"{name}/*.parquet"], allowed=allowed, kind="dataset", cache=cache)
    shards = sorted((folder / name).glob("*.parquet"))
    provenance = f"hub {repository}@{revision} {name}"
    series = [item for shard in shards for item in _series(shard, name, domain, provenance)]
    return select(series, min_length=min_length, sample=sample)


def infer_freq(times: Sequence[datetime]) -> str:
    """Return the pandas alias of a regular grid of times; "" for others and for fewer than 3 times."""
    import pandas as pd

    return (pd.infer_freq(pd.DatetimeIndex(list(times))) or "") if len(times) >= 3 else ""


def _series(shard: Path, name: str, domain: str, provenance: str) -> list[Series]:
    try:
        table = pq.read_table(shard)
    except DAMAGED as error:
        raise DataError(f"{name}/{shard.name}: expected a Parquet file, got {' '.join(str(error).split())}") from error
    variates = [field.name for field in table.schema if is_number_list(field.type)]
    if "id" not in table.schema.names or "timestamp" not in table.schema.names or not variates:
        columns = ", ".join(f"{field.name} {field.type}" for field in table.schema)
        raise DataError(f"{name}/{shard.name}: expected columns id, timestamp and lists of numbers, got {columns}")
    values = {variate: list_values(table[variate]) for variate in variates}
    # All times of a row would be large as Python objects.
    heads = pc.list_slice(table["timestamp"], 0, FIRST_TIMES).cast(pa.list_(pa.timestamp("ms")), safe=False)
    series = []
    for row, (item, times) in enumerate(zip(table["id"].to_pylist(), heads.to_pylist(), strict=True)):
        freq, start = infer_freq(times or []), times[0] if times else None
        for variate in variates:
            label = str(item) if len(variates) == 1 else f"{item}:{variate}"
            series.append(Series(name, label, values[variate][row], domain, freq, start, provenance=provenance))
    return series
