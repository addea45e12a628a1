"""Reader of hub data sets in the layout of `autogluon/chronos_datasets`; downloads only if allowed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tsfmscope.errors import DataError
from tsfmscope.hub import download
from tsfmscope.series.files.parquet import DAMAGED, MIN_LENGTH, LoadedSeries, select
from tsfmscope.series.tables import is_number_list, list_values
from tsfmscope.series.types import Series

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
    series = []
    for row, (item, first) in enumerate(zip(table["id"].to_pylist(), _first_times(table["timestamp"]), strict=True)):
        facts: dict[str, Any] = {"domain": domain, "freq": infer_freq(first), "provenance": provenance}
        facts["start"] = first[0] if len(first) else None
        for variate in variates:
            label = str(item) if len(variates) == 1 else f"{item}:{variate}"
            series.append(Series(name, label, values[variate][row], **facts))
    return series


def _first_times(column: pa.ChunkedArray, count: int = 16) -> list[list[datetime]]:
    """Return the first `count` times of every row; all of them would be large as Python objects."""
    import pyarrow.compute as pc

    heads = pc.list_slice(column, 0, count).cast(pa.list_(pa.timestamp("ms")), safe=False)
    return [row or [] for row in heads.to_pylist()]
