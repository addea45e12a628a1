"""Stage datasets: real series and other modalities, bundled with dependencies, from files or from the hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stages import DATA
from stages.config.params import Params
from stages.planning.series_files import dataset_row, write_series, write_tables
from tsfmscope.errors import DataError
from tsfmscope.series.catalog import modality
from tsfmscope.series.data_sets import load_data_set
from tsfmscope.series.files.sources import series_note

OUT = Path(DATA, "datasets")
# Unusable series of a data set that the table `skipped` names, for each reason; one row counts the others.
NAMED = 20


def main(params: Params) -> None:
    """Write one Parquet file per data set under data/datasets/series; tables `datasets` and `skipped`.

    `skipped` contains what cannot be used, with the reason.
    """
    rows, skipped = [], []
    for name, dataset in params.datasets.sets.items():
        if dataset.source == "kernelsynth":
            continue
        try:
            loaded = load_data_set(
                name,
                dataset,
                root=params.data_root,
                max_series=params.datasets.max_series,
                seed=params.seed,
                min_length=params.datasets.min_length,
            )
        except DataError as error:
            skipped.append(_skip(name, str(error), 1))
            print(f"datasets: {name}: skipped: {error}")
            continue
        reasons: dict[str, list[str]] = {}
        for skip in loaded.skipped:
            reasons.setdefault(skip.reason, []).append(skip.series)
        for reason, series in reasons.items():
            skipped += [_skip(name, reason, 1) | {"series": one} for one in series[:NAMED]]
            if more := len(series[NAMED:]):
                skipped.append(_skip(name, reason, more))
        unusable = f", {len(loaded.skipped)} unusable" if loaded.skipped else ""
        print(f"datasets: {name}: {len(loaded.series)} of {loaded.available} series{unusable}")
        if loaded.series:
            if modality(dataset.source) == "series":
                print(f"datasets: {series_note(name, loaded)}")
            write_series(OUT, name, loaded.series)
            rows.append(dataset_row(name, dataset, loaded.series, loaded.available + len(loaded.skipped)))
    write_tables(OUT, rows, skipped, keep={row["dataset"] for row in rows})


def _skip(dataset: str, reason: str, n: int) -> dict[str, Any]:
    return {"stage": "datasets", "dataset": dataset, "reason": reason, "n": n}
