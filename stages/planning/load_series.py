"""Loading of the series of one data set of params.yaml, from whatever source it names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stages.config import DATA_VARIABLE, DataSet
from stages.config.params import Params
from tsfmscope.errors import DataError
from tsfmscope.series.files.bundled import load_bundled
from tsfmscope.series.files.columns import UNNAMED
from tsfmscope.series.files.hub_datasets import load_hub
from tsfmscope.series.files.parquet import LoadedSeries, load_parquet, select
from tsfmscope.series.files.user_files import load_own
from tsfmscope.series.other_modalities import SOURCES
from tsfmscope.series.synthetic.signals import draw_signal


def load_data_set(
    name: str,
    dataset: DataSet,
    params: Params,
    *,
    max_series: int | None,
    seed: int,
    offline: bool = False,
    takes_any: bool = False,
) -> LoadedSeries:
    """Return the usable series of a data set whose source is not kernelsynth.

    max_series: largest number of series, a sample drawn with the seed; None: all. offline: reads the hub's cache
    only, without the network. takes_any: short and constant series are usable too.
    Raises DataError if the data cannot be obtained.
    """
    sample = None if max_series is None else (max_series, seed)
    selection: dict[str, Any] = {"min_length": None if takes_any else params.datasets.min_length, "sample": sample}
    if dataset.source == "bundled":
        return select(load_bundled(name), **selection)
    # Signals are not filtered: a constant series, unusable elsewhere, is intended here.
    if dataset.source == "signals":
        series = draw_signal(name, str(dataset.signal), seed)
        return LoadedSeries(series, [], series)
    if dataset.source == "hub":
        return load_hub(name, allowed=not offline, domain=dataset.domain, **selection)
    path = None if dataset.file is None else _under_root(dataset.file, params)
    if dataset.source in SOURCES:
        return select(SOURCES[dataset.source](name, path, domain=dataset.domain, seed=seed), **selection)
    if Path(str(path)).suffix != ".parquet" or dataset.columns != UNNAMED:
        return load_own(
            Path(str(path)), name=name, columns=dataset.columns, domain=dataset.domain, items=dataset.items, **selection
        )
    return load_parquet(Path(str(path)), dataset=name, domain=dataset.domain, items=dataset.items, **selection)


def _under_root(file: str, params: Params) -> Path:
    root = params.data_root
    if root is None:
        raise DataError(f"no data root; set {DATA_VARIABLE} or datasets.root to a folder that contains {file}")
    return root / file
