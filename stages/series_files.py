"""How the two stages that make series write them: a file a data set, the table of data sets, what was left out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stages.blocks import DataSet
from store.files import remove_temporary, write_parquet, write_rows
from tasks.series.tables import series_table
from tasks.series.types import Series
from tasks.series.windows import seasonality


def write_series(out: Path, name: str, series: Sequence[Series]) -> None:
    """One data set's series, whole or not at all, the same bytes for the same series."""
    write_parquet(out / "series" / f"{name}.parquet", series_table(series))


def dataset_row(name: str, dataset: DataSet, series: Sequence[Series], available: int) -> dict[str, Any]:
    """The row of table `datasets`."""
    first = series[0]
    return {
        "dataset": name,
        "source": dataset.source,
        "domain": dataset.domain or first.domain,
        "freq": first.freq,
        "horizon": dataset.horizon,
        "season": seasonality(first.freq),
        "n_series": len(series),
        "n_available": available,
        "n_steps": sum(len(one.values) for one in series),
        "provenance": first.provenance,
        "paper": dataset.paper,
        "stands_in_for": dataset.stands_in_for,
    }


def write_tables(
    out: Path, rows: Iterable[Mapping[str, Any]], skipped: Iterable[Mapping[str, Any]], keep: Collection[str]
) -> None:
    """The tables `datasets` and `skipped`; series files of data sets that are no longer there go."""
    write_rows(out / "datasets.parquet", "datasets", rows)
    write_rows(out / "skipped.parquet", "skipped", skipped)
    remove_temporary(out)
    for path in (out / "series").glob("*.parquet"):
        if path.stem not in keep:
            path.unlink()
