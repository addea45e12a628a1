"""Stage kernelsynth: the named synthetic data sets, each sampled from one kernel."""

from __future__ import annotations

from pathlib import Path

from tsfmscope.stages import DATA
from tsfmscope.stages.config import DataSet
from tsfmscope.stages.config.params import Params
from tsfmscope.stages.pipeline.series_files import dataset_row, write_series, write_tables
from tsfmscope.tasks.series.synthetic.kernels import parse_kernel
from tsfmscope.tasks.series.synthetic.kernelsynth import synthetic_set
from tsfmscope.tasks.series.types import Series

OUT = Path(DATA, "kernelsynth")


def main(params: Params) -> None:
    """Write one Parquet file per data set under data/kernelsynth/series, and the table of data sets."""
    rows = []
    for name, dataset in params.datasets.sets.items():
        if dataset.source != "kernelsynth":
            continue
        series = draw_data_set(name, dataset, params)
        write_series(OUT, name, series)
        rows.append(dataset_row(name, dataset, series, available=len(series)))
        print(f"kernelsynth: {name}: {len(series)} series of {params.kernelsynth.length} steps, {dataset.kernel}")
    write_tables(OUT, rows, [], keep={row["dataset"] for row in rows})


def draw_data_set(name: str, dataset: DataSet, params: Params) -> list[Series]:
    """Return the series of one named data set."""
    return synthetic_set(
        name,
        parse_kernel(str(dataset.kernel)),
        count=params.kernelsynth.series,
        seed=params.seed,
        length=params.kernelsynth.length,
        domain=dataset.domain,
    )
