"""Data sets by name, and series that a user passes: tables, arrays, files, folders.

The description of a data set is also its block of params.yaml.
"""

from __future__ import annotations

import difflib
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from pydantic import Field, model_validator

from tsfmscope.arrays import real_array
from tsfmscope.defaults import HORIZON
from tsfmscope.errors import ArgumentError, DataError
from tsfmscope.files import slug
from tsfmscope.series.catalog import CATALOG
from tsfmscope.series.files.options import AS_FOUND, Reading
from tsfmscope.series.files.sources import (
    MIN_LENGTH,
    LoadedSeries,
    load_bundled,
    load_hub,
    load_parquet,
    select,
    series_note,
)
from tsfmscope.series.files.times import missing_times
from tsfmscope.series.files.user_files import list_tables, load_frame, load_own, row_series, with_options
from tsfmscope.series.other_modalities import SOURCES
from tsfmscope.series.synthetic.kernels import parse_kernel
from tsfmscope.series.synthetic.kernelsynth import synthetic_set
from tsfmscope.series.synthetic.signals import draw_signal
from tsfmscope.series.types import Series, count_reasons, describe_reasons

logger = logging.getLogger("tsfmscope")

# What a user may pass as series.
Data = pd.DataFrame | pd.Series | np.ndarray | Sequence[Any] | Mapping[str, Any] | str | Path
Signal = Literal["corpus", "sinusoid", "noise", "constant"]
# Environment variable with the folder of the files that data sets name.
DATA_VARIABLE = "TSFMSCOPE_DATA"
# Number of series of a synthetic data set, and their steps.
DRAWN, DRAWN_STEPS = 32, 1024


class DataSet(Reading):
    """A data set that studies may name; missing keys come from the entry of that name in catalog.yaml."""

    source: Literal["kernelsynth", "signals", "bundled", "folder", "hub", "text", "images", "tables"]
    domain: str = ""
    horizon: int = Field(gt=0, le=1024, description="steps to forecast")
    kernel: str | None = Field(None, description="source kernelsynth: a scikit-learn kernel expression")
    signal: Signal | None = Field(None, description="source signals: kind of signal; corpus is a mixture of kinds")
    file: str | None = Field(
        None, description="path under the data root, without `..`: Parquet or CSV file, UTF-8 text or .npz images"
    )
    items: str | None = Field(None, description="regular expression that item ids must match")
    only_freq: str | None = Field(
        None, description="only series of this frequency, such as W, of a Parquet file that has several"
    )
    paper: str | None = Field(None, description="name of the data set in Shelim et al. 2025, such as finance-1")
    stands_in_for: str | None = Field(None, description="data set of the paper that it replaces, and how it differs")
    confirms: bool | None = Field(
        None,
        description="whether studies of a population keep it for confirming hypotheses; null: the first bit of the "
        "SHA-256 of its name decides",
    )

    @property
    def reading(self) -> Reading:
        """Options of reading of the block."""
        return Reading(**self.part(Reading))

    @model_validator(mode="after")
    def _source_has_its_field(self) -> DataSet:
        if self.source != "folder" and (given := self.reading.to_dict()):
            raise ValueError(f"{', '.join(given)}: expected source folder, got {self.source!r}; remove them")
        if self.only_freq is not None and (not str(self.file).endswith(".parquet") or self.reading != AS_FOUND):
            raise ValueError("only_freq: expected a Parquet file without options of reading; name its items instead")
        need = {"kernelsynth": "kernel", "signals": "signal", "folder": "file"}.get(self.source)
        if need and getattr(self, need) is None:
            raise ValueError(f"source {self.source!r} needs {need!r}; add it, or use a name of catalog.yaml")
        return self


def complete_entry(name: str, entry: Any) -> Any:
    """Return the block of a data set, with missing keys from the entry of that name in catalog.yaml."""
    if entry is not None and not isinstance(entry, dict):
        return entry
    known = CATALOG.get(name)
    # The frequency of an entry is a fact about its series, not an option of reading.
    keys = [key for key in DataSet.model_fields if key not in Reading.model_fields and hasattr(known, key)]
    fields = {key: getattr(known, key) for key in keys}
    if known is None and not entry:
        near = difflib.get_close_matches(name, CATALOG, 3)
        hint = f"did you mean {', '.join(near)}?" if near else "give source, horizon and file"
        raise ValueError(f"datasets.sets.{name} is not in catalog.yaml; {hint}")
    return {**{k: v for k, v in fields.items() if v is not None}, **(entry or {})}


def find_data_set(name: str) -> DataSet | None:
    """Return the data set of this name of catalog.yaml; None if there is none."""
    return DataSet.model_validate(complete_entry(name, None)) if name in CATALOG else None


def data_root() -> Path | None:
    """Return the folder that the environment names for the files of data sets; None without."""
    folder = os.environ.get(DATA_VARIABLE)
    return Path(folder) if folder else None


def draw_kernel_set(
    name: str, dataset: DataSet, seed: int, *, count: int = DRAWN, length: int = DRAWN_STEPS
) -> list[Series]:
    """Return the series of one data set whose source is kernelsynth."""
    return synthetic_set(
        name, parse_kernel(str(dataset.kernel)), count=count, seed=seed, length=length, domain=dataset.domain
    )


def load_data_set(
    name: str,
    dataset: DataSet,
    *,
    root: Path | None,
    max_series: int | None,
    seed: int,
    min_length: int | None = MIN_LENGTH,
    offline: bool = False,
) -> LoadedSeries:
    """Return the usable series of a data set whose source is not kernelsynth.

    root: folder of the files that data sets name. max_series: largest number of series, a sample drawn with the seed;
    None: all. min_length: shorter series are skipped, and constant ones; None: neither. offline: reads the hub's cache
    only, without the network.
    Raises DataError if the data cannot be obtained.
    """
    sample = None if max_series is None else (max_series, seed)
    selection: dict[str, Any] = {"min_length": min_length, "sample": sample}
    if dataset.source == "bundled":
        return select(load_bundled(name), **selection)
    # Signals are not filtered: a constant series, unusable elsewhere, is intended here.
    if dataset.source == "signals":
        series = draw_signal(name, str(dataset.signal), seed)
        return LoadedSeries(series, [], series)
    if dataset.source == "hub":
        return select(load_hub(name, allowed=not offline, domain=dataset.domain), **selection)
    if dataset.file is not None and root is None:
        raise DataError(f"no data root; set {DATA_VARIABLE} or datasets.root to a folder that contains {dataset.file}")
    path = None if dataset.file is None or root is None else root / dataset.file
    if dataset.source in SOURCES:
        return select(SOURCES[dataset.source](name, path, domain=dataset.domain, seed=seed), **selection)
    if Path(str(path)).suffix != ".parquet" or dataset.reading != AS_FOUND:
        return load_own(
            Path(str(path)), name=name, reading=dataset.reading, domain=dataset.domain, items=dataset.items, **selection
        )
    series = load_parquet(Path(str(path)), dataset=name, domain=dataset.domain, items=dataset.items)
    kept = [one for one in series if dataset.only_freq in (None, one.freq)]
    if not kept:
        known = ", ".join(sorted({one.freq for one in series}))
        raise DataError(f"{path}: only_freq: no series of frequency {dataset.only_freq!r}; it has {known}")
    return select(kept, **selection)


# Description of a user's own series.
OWN = DataSet(source="folder", file="data", horizon=HORIZON)


class NamedSeries(NamedTuple):
    """Usable series, the name of their data set, and its description."""

    name: str
    dataset: DataSet
    loaded: LoadedSeries

    def count_left_out(self, without_window: Mapping[str, int]) -> dict[str, int]:
        """Return reason -> number of series that cannot be used at all, or that gave no window."""
        return dict(Counter(count_reasons(self.loaded.skipped)) + Counter(without_window))


def usable_series(
    data: Data, *, max_series: int | None, seed: int, reading: Reading = AS_FOUND, takes_any: bool = False
) -> NamedSeries:
    """Return the usable series with a name for the data, and log what was read.

    takes_any: short and constant series are usable too. Raises DataError, with the reasons, if there is no usable
    series; ArgumentError for a name that is none, or for names of columns of data that have none.
    """
    sample = None if max_series is None else (max_series, seed)
    selection: dict[str, Any] = {"min_length": None if takes_any else MIN_LENGTH, "sample": sample}
    if isinstance(data, str | Path):
        return _read_named(str(data), reading, max_series, seed, selection)
    data = _to_frame([*data] if isinstance(data, Iterator) else data)
    if isinstance(data, pd.DataFrame):
        loaded = load_frame(data, name="data", reading=reading, **selection)
    else:
        rows = _rows(data)
        of_tables = {*reading.to_dict()} - {"freq", "season", "fill", *(() if rows is None else ("tz", "time_format"))}
        if of_tables:
            names = ", ".join(sorted(of_tables))
            raise ArgumentError(f"{names}: expected a table, got arrays; leave it out, or pass a DataFrame")
        series = _array_series(data) if rows is None else row_series(rows, "data", "data", reading)
        loaded = select((with_options(item, reading) for item in series), **selection)
    _log_series("data", loaded, reading)
    return NamedSeries("data", OWN, loaded)


def _read_named(
    text: str, reading: Reading, max_series: int | None, seed: int, selection: Mapping[str, Any]
) -> NamedSeries:
    """Return the usable series of a data set, a file or a folder that a user names."""
    if (dataset := find_data_set(text)) is not None:
        if given := reading.to_dict():
            raise ArgumentError(f"{', '.join(given)}: expected a file, got the data set {text!r}; leave them out")
        if dataset.source == "kernelsynth":
            series = draw_kernel_set(text, dataset, seed)
            return NamedSeries(text, dataset, LoadedSeries(series, [], series))
        loaded = load_data_set(
            text, dataset, root=data_root(), max_series=max_series, seed=seed, min_length=selection["min_length"]
        )
        if not loaded.series or len(loaded.series) < loaded.available:
            _log_series(text, loaded, reading)
        return NamedSeries(text, dataset, loaded)
    path = _existing_path(text)
    name = slug(path.resolve().name.partition(".")[0]) or "data"
    loaded = load_own(path, name=name, reading=reading, **selection)
    _log_series(text, loaded, reading)
    return NamedSeries(name, OWN, loaded)


def _existing_path(text: str) -> Path:
    """Return the path of a file or folder. Raises ArgumentError, with similar names of data sets, for none."""
    path = Path(os.path.expanduser(text))
    if not os.path.exists(path):
        near = difflib.get_close_matches(text, CATALOG, 2)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(CATALOG)}"
        raise ArgumentError(f"data: got {text!r}, which is no file, no folder and no data set; {hint}")
    return path


def readers(
    data: Data | Sequence[Data], *, max_series: int | None, seed: int, reading: Reading
) -> dict[str, Callable[[], NamedSeries]]:
    """Return the reader of each data set, by its name; each table of a folder is one.

    data: one data set as in `usable_series`, or a list of them. Nothing is opened. Raises ArgumentError for an empty
    list, and for a name that is no file, no folder and no data set.
    """
    items: list[tuple[str, Data]] = []
    data_sets: list[Any] = list(data) if isinstance(data, list | tuple) else [data]
    if not data_sets:
        raise ArgumentError("data: got an empty list, expected a data set")
    for number, item in enumerate(data_sets):
        if not isinstance(item, str | Path):
            items.append((f"data[{number}]", item))
        elif find_data_set(str(item)) is None and (path := _existing_path(str(item))).is_dir():
            tables = list_tables(path, reading.one_table)
            items += [(str(file), str(file)) for name, (file, *_) in tables.items() if name]
            items += [(str(item), str(item))] if "" in tables else []
        else:
            items.append((str(item), str(item)))
    return {
        name: partial(usable_series, item, max_series=max_series, seed=seed, reading=reading) for name, item in items
    }


def _log_series(label: str, loaded: LoadedSeries, reading: Reading) -> None:
    """Log what was read. Raises DataError, with the reasons, if no series is usable."""
    for line in loaded.notes:
        logger.warning(line)
    if not loaded.series:
        raise DataError(f"{label}: no usable series: {describe_reasons(count_reasons(loaded.skipped))}")
    logger.warning(series_note(label, loaded))
    if loaded.missing:
        logger.warning(missing_times(loaded.missing, reading.fill))


def _rows(data: Any) -> Iterable[Mapping[str, Any]] | None:
    """Return data that are rows, such as the entries of a GluonTS data set; None for other data."""
    is_plain = isinstance(data, Mapping | np.ndarray) or not hasattr(data, "__iter__")
    if is_plain or not isinstance(first := next(iter(data), None), Mapping):
        return None
    return data if "target" in first else None


def _to_frame(data: Any) -> Any:
    """Return a Series, a list or dict of them, or a table as a DataFrame, and other data unchanged."""
    if type(data).__module__.startswith("datasets."):
        # A data set of the Hugging Face library; of several splits, each is one.
        if not hasattr(data, "features") or not hasattr(data, "with_format"):
            raise DataError(f"data: expected one split, such as data['train'], got {type(data).__name__}")
        data = data.with_format("arrow")[:]
    items = data if isinstance(data, Mapping) else dict(enumerate(data)) if isinstance(data, list | tuple) else {}
    if items and all(isinstance(item, pd.Series) for item in items.values()):
        names = [str(name) if isinstance(data, Mapping) else f"series-{name}" for name in items]
        if len({(type(item.index), getattr(item.index, "tz", None)) for item in items.values()}) > 1:
            raise DataError("data: expected all Series with times in one zone, or all without times; convert them")
        data = pd.concat([item.rename("value") for item in items.values()], keys=names, names=["series"])
    elif hasattr(data, "__dataframe__") and not isinstance(data, pd.DataFrame):
        # Tables of pyarrow, polars and other packages.
        data = pa.table(data).to_pandas()
    if isinstance(data, pd.Series):
        data = data.to_frame("value" if data.name is None else data.name)
    return data


def _array_series(data: Any) -> Iterable[Series]:
    """Yield the series of an array [step] or [series, step], of a list of arrays, or of arrays by name."""
    if isinstance(data, Mapping):
        named = [(str(name), _real_values(values)) for name, values in data.items()]
    elif isinstance(data, list | tuple) and data and all(np.ndim(item) == 1 for item in data):
        named = [(f"series-{i}", _real_values(values)) for i, values in enumerate(data)]
    else:
        values = _real_values(data)
        rows = np.atleast_2d(values) if values.ndim in (1, 2) else [values]
        named = [(f"series-{i}", row) for i, row in enumerate(rows)]
    for name, values in named:
        if values.ndim != 1:
            raise DataError(
                f"data: got an array {values.shape} of {values.dtype}, expected numbers [step] or [series, step]"
            )
        yield Series("data", name, values)


def _real_values(data: Any) -> np.ndarray:
    """Return numbers in float64, or float32 if they are; masked ones are NaN. Raises DataError for other data."""
    try:
        if np.ma.isMaskedArray(data):
            data = np.ma.filled(data.astype(np.result_type(data.dtype, np.float32)), np.nan)
        # Decimals and other objects that are numbers, and None where missing.
        is_object = isinstance(data, list | tuple | np.ndarray) and np.asarray(data).dtype == object
        values = np.array(data, dtype=np.float64) if is_object else real_array(data)
    except (TypeError, ValueError, OverflowError):
        kind = getattr(data, "dtype", "")
        raise DataError(
            "data: expected a DataFrame, a Series, numbers [step] or [series, step], or a list or dict of [step], got "
            f"{type(data).__name__}{kind and f' of {kind}'} that is no array of real numbers"
        ) from None
    return values if values.dtype == np.float32 else values.astype(np.float64)


def log_left_out(skipped: Mapping[str, int]) -> None:
    """Log the number of series left out, one line per reason."""
    for reason, n in skipped.items():
        logger.warning(f"left out: {n} series: {reason}")
