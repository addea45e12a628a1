"""Stage datasets: real series and other modalities, bundled with dependencies, from files or from the hub."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from stages import DATA
from stages.config.params import Params
from stages.planning.series_files import dataset_row, write_series, write_tables
from tsfmscope.errors import DataError
from tsfmscope.series.catalog import modality
from tsfmscope.series.data_sets import load_data_set
from tsfmscope.series.files.parquet import series_note
from tsfmscope.series.types import Skip

OUT = Path(DATA, "datasets")
# Unusable series of a data set that the table `skipped` names, for each reason.
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
        skipped += _unusable(name, loaded.skipped)
        unusable = f", {len(loaded.skipped)} unusable" if loaded.skipped else ""
        print(f"datasets: {name}: {len(loaded.series)} of {loaded.available} series{unusable}")
        if loaded.series:
            if modality(dataset.source) == "series":
                print(f"datasets: {series_note(name, loaded)}")
            write_series(OUT, name, loaded.series)
            rows.append(dataset_row(name, dataset, loaded.series, loaded.available + len(loaded.skipped)))
    write_tables(OUT, rows, skipped, keep={row["dataset"] for row in rows})


def _unusable(dataset: str, skipped: Iterable[Skip]) -> Iterator[dict[str, Any]]:
    """Yield one row per unusable series, by reason.

    After the first NAMED series of a reason, one row counts the others.
    """
    reasons: dict[str, list[str]] = {}
    for skip in skipped:
        reasons.setdefault(skip.reason, []).append(skip.series)
    for reason, series in reasons.items():
        for name in series[:NAMED]:
            yield _skip(dataset, reason, 1) | {"series": name}
        if more := len(series[NAMED:]):
            yield _skip(dataset, reason, more)


def _skip(dataset: str, reason: str, n: int) -> dict[str, Any]:
    return {"stage": "datasets", "dataset": dataset, "reason": reason, "n": n}
