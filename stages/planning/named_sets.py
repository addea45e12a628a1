"""Data sets that a user names on the command line or in Python, without a run of the pipeline."""

from __future__ import annotations

from typing import NamedTuple

from stages.config import DataSet, DataSets
from stages.config.params import Params
from stages.planning.kernel_sets import draw_kernel_set
from stages.planning.load_series import load_data_set
from tsfmscope.series.catalog import CATALOG
from tsfmscope.series.files.parquet import LoadedSeries


class NamedSeries(NamedTuple):
    """Usable series, the name of their data set, and its block of params.yaml, of catalog.yaml, or of a user's file."""

    name: str
    dataset: DataSet
    loaded: LoadedSeries


def find_data_set(name: str, params: Params) -> DataSet | None:
    """Return the data set of this name, from params.yaml or else from catalog.yaml; None if neither has it."""
    if name not in params.datasets.sets and name not in CATALOG:
        return None
    return params.datasets.sets.get(name) or DataSets.model_validate({"sets": {name: {}}}).sets[name]


def load_named_set(
    name: str, dataset: DataSet, params: Params, *, max_series: int | None, seed: int, takes_any: bool = False
) -> LoadedSeries:
    """Return the usable series of a data set; synthetic ones are drawn, in the number that params.yaml states.

    max_series, seed, takes_any, errors: as in `load_data_set`.
    """
    if dataset.source == "kernelsynth":
        series = draw_kernel_set(name, dataset, params, seed)
        return LoadedSeries(series, [], series)
    return load_data_set(name, dataset, params, max_series=max_series, seed=seed, takes_any=takes_any)
