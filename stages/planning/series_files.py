"""Writers of series for the stages kernelsynth and datasets.

They write one file per data set, the table of data sets, and the table of what was left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from store.files import remove_temporary, write_parquet, write_rows
from tsfmscope.series.calendar import season_of
from tsfmscope.series.data_sets import DataSet
from tsfmscope.series.tables import series_table
from tsfmscope.series.types import Series


def write_series(out: Path, name: str, series: Sequence[Series]) -> None:
    """Write one data set's series with their season: completely or not at all, the same bytes for the same series."""
    season = season_of(series)
    rows = [replace(item, season=season) for item in series]
    write_parquet(out / "series" / f"{name}.parquet", series_table(rows))


def dataset_row(name: str, dataset: DataSet, series: Sequence[Series], available: int) -> dict[str, Any]:
    """Return a data set's row of the table `datasets`.

    available: number of series before sampling, unusable ones included.
    """
    first = series[0]
    return {
        "dataset": name,
        **{name: getattr(dataset, name) for name in ("source", "horizon", "paper", "stands_in_for", "confirms")},
        "domain": dataset.domain or first.domain,
        "freq": first.freq,
        "provenance": first.provenance,
        "season": season_of(series),
        "n_series": len(series),
        "n_available": available,
        "n_steps": sum(len(item.values) for item in series),
    }


def write_tables(
    out: Path, rows: Iterable[Mapping[str, Any]], skipped: Iterable[Mapping[str, Any]], keep: Collection[str]
) -> None:
    """Write the tables `datasets` and `skipped`, and delete the series files of data sets not in `keep`."""
    write_rows(out / "datasets.parquet", "datasets", rows)
    write_rows(out / "skipped.parquet", "skipped", skipped)
    remove_temporary(out)
    for path in (out / "series").glob("*.parquet"):
        if path.stem not in keep:
            path.unlink()
