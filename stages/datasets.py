"""Real series and other modalities: what ships with dependencies, a folder of files, the hub when asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from stages import DATA
from stages.blocks import DATA_VARIABLE, DataSet
from stages.params import Params
from stages.series_files import dataset_row, write_series, write_tables
from tasks.errors import DataError
from tasks.series.bundled import load_bundled
from tasks.series.contrast import SOURCES
from tasks.series.hub import load_hub
from tasks.series.loading import Loaded, load_parquet, select
from tasks.series.signals import draw_signal
from tasks.series.types import Skip

OUT = Path(DATA, "datasets")
NAMED = 20  # unusable series of a data set that `skipped` names, a reason


def main(params: Params) -> None:
    """Write one Parquet file a data set under data/datasets/series; what cannot be used stands with its reason."""
    rows, skipped = [], []
    for name, dataset in params.datasets.sets.items():
        if dataset.source == "kernelsynth":
            continue
        try:
            found = loaded(name, dataset, params)
        except DataError as error:
            skipped.append(_skip(name, str(error), 1))
            print(f"datasets: {name}: skipped: {error}")
            continue
        skipped += _unusable(name, found.skipped)
        unusable = f", {len(found.skipped)} unusable" if found.skipped else ""
        print(f"datasets: {name}: {len(found.series)} of {found.available} series{unusable}")
        if found.series:
            write_series(OUT, name, found.series)
            rows.append(dataset_row(name, dataset, found.series, found.available + len(found.skipped)))
    write_tables(OUT, rows, skipped, keep={row["dataset"] for row in rows})


def loaded(name: str, dataset: DataSet, params: Params) -> Loaded:
    """The usable series of a data set that is not drawn by kernelsynth. Raises DataError where they are not at hand."""
    how: dict[str, Any] = {
        "min_length": params.datasets.min_length,
        "sample": (params.datasets.max_series, params.seed),
    }
    if dataset.source == "bundled":
        return select(load_bundled(name), **how)
    if dataset.source == "signals":  # all of them: the constant is no mistake here
        drawn = draw_signal(name, str(dataset.signal), params.seed)
        return Loaded(drawn, [], len(drawn))
    if dataset.source == "hub":
        return load_hub(name, allowed=True, domain=dataset.domain, **how)
    path = None if dataset.file is None else _under_root(dataset.file, params)
    if dataset.source in SOURCES:
        return select(SOURCES[dataset.source](name, path, domain=dataset.domain, seed=params.seed), **how)
    return load_parquet(Path(str(path)), dataset=name, domain=dataset.domain, items=dataset.items, **how)


def _under_root(file: str, params: Params) -> Path:
    root = params.data_root
    if root is None:
        raise DataError(f"no data root; set {DATA_VARIABLE} or datasets.root to a folder that holds {file}")
    return root / file


def _unusable(dataset: str, skipped: Iterable[Skip]) -> Iterator[dict[str, Any]]:
    """A row a series, in their order; behind the first NAMED of a reason one row that counts the others."""
    reasons: dict[str, list[str]] = {}
    for one in skipped:
        reasons.setdefault(one.reason, []).append(one.series)
    for reason, series in reasons.items():
        for name in series[:NAMED]:
            yield _skip(dataset, reason, 1) | {"series": name}
        if more := len(series[NAMED:]):
            yield _skip(dataset, reason, more)


def _skip(dataset: str, reason: str, n: int) -> dict[str, Any]:
    return {"stage": "datasets", "dataset": dataset, "reason": reason, "n": n}
