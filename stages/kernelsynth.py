"""Stage kernelsynth: the named synthetic data sets, each sampled from one kernel."""

from __future__ import annotations

from pathlib import Path

from stages import DATA
from stages.config.params import Params
from stages.planning.series_files import dataset_row, write_series, write_tables
from tsfmscope.series.data_sets import draw_kernel_set

OUT = Path(DATA, "kernelsynth")


def main(params: Params) -> None:
    """Write one Parquet file per data set under data/kernelsynth/series, and the table of data sets."""
    rows = []
    for name, dataset in params.datasets.sets.items():
        if dataset.source != "kernelsynth":
            continue
        series = draw_kernel_set(
            name, dataset, params.seed, count=params.kernelsynth.series, length=params.kernelsynth.length
        )
        write_series(OUT, name, series)
        rows.append(dataset_row(name, dataset, series, available=len(series)))
        print(f"kernelsynth: {name}: {len(series)} series of {params.kernelsynth.length} steps, {dataset.kernel}")
    write_tables(OUT, rows, [], keep={row["dataset"] for row in rows})
