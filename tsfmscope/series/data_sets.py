"""Named data sets: their description, which is also their block of params.yaml, and the readers of their sources."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from tsfmscope.errors import DataError
from tsfmscope.series.catalog import CATALOG
from tsfmscope.series.files.bundled import load_bundled
from tsfmscope.series.files.columns import UNNAMED, Columns
from tsfmscope.series.files.hub_datasets import load_hub
from tsfmscope.series.files.parquet import MIN_LENGTH, LoadedSeries, load_parquet, select
from tsfmscope.series.files.user_files import load_own
from tsfmscope.series.other_modalities import SOURCES
from tsfmscope.series.synthetic.kernels import parse_kernel
from tsfmscope.series.synthetic.kernelsynth import synthetic_set
from tsfmscope.series.synthetic.signals import draw_signal
from tsfmscope.series.types import Series
from tsfmscope.strict import Strict

# Environment variable with the folder of the files that data sets name.
DATA_VARIABLE = "TSFMSCOPE_DATA"
# Number of series of a synthetic data set, and their steps.
DRAWN, DRAWN_STEPS = 32, 1024


class DataSet(Strict):
    """A data set that studies may name; missing keys come from the entry of that name in catalog.yaml."""

    source: Literal["kernelsynth", "signals", "bundled", "folder", "hub", "text", "images", "tables"]
    domain: str = ""
    horizon: int = Field(gt=0, le=1024, description="steps to forecast")
    kernel: str | None = Field(None, description="source kernelsynth: a scikit-learn kernel expression")
    signal: Literal["corpus", "sinusoid", "noise", "constant"] | None = Field(
        None, description="source signals: kind of signal; corpus is a mixture of kinds"
    )
    file: str | None = Field(
        None, description="path under the data root, without `..`: Parquet or CSV file, UTF-8 text or .npz images"
    )
    time: str | list[str] | None = Field(
        None,
        description="source folder: column of times in a CSV file, or in a Parquet file with one row per time; several "
        "columns, such as a date and a time of day, are joined",
    )
    id: str | list[str] | None = Field(
        None, description="source folder: column of series ids in such a file; several columns are joined"
    )
    value: str | list[str] = Field([], description="source folder: columns of values in such a file")
    time_format: str | None = Field(None, description="source folder: format of its times, such as %d/%m/%Y")
    tz: str | None = Field(None, description="source folder: time zone of its times, such as Europe/Berlin")
    season: int | None = Field(
        None, ge=1, description="source folder: season in steps; default: that of the frequency, such as 7 for days"
    )
    items: str | None = Field(None, description="regular expression that item ids must match")
    paper: str | None = Field(None, description="name of the data set in Shelim et al. 2025, such as finance-1")
    stands_in_for: str | None = Field(
        None, description="for a substitute: the paper's data set that it replaces, and how it differs"
    )

    @property
    def columns(self) -> Columns:
        """Columns that the block names."""
        return Columns(self.time, self.id, self.value or (), self.time_format, self.tz, self.season)

    @model_validator(mode="after")
    def _source_has_its_field(self) -> DataSet:
        if self.source != "folder" and self.columns != UNNAMED:
            raise ValueError(
                f"time, id, value, time_format, tz, season: expected source folder, got {self.source!r}; remove them"
            )
        need = {"kernelsynth": "kernel", "signals": "signal", "folder": "file"}.get(self.source)
        if need and getattr(self, need) is None:
            raise ValueError(f"source {self.source!r} needs {need!r}; add it, or use a name of catalog.yaml")
        return self


def complete_entry(name: str, entry: Any) -> Any:
    """Return the block of a data set, with missing keys from the entry of that name in catalog.yaml."""
    if entry is not None and not isinstance(entry, dict):
        return entry
    known = CATALOG.get(name)
    fields = {} if known is None else {k: getattr(known, k) for k in DataSet.model_fields if hasattr(known, k)}
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
        return load_hub(name, allowed=not offline, domain=dataset.domain, **selection)
    path = None if dataset.file is None else _under_root(dataset.file, root)
    if dataset.source in SOURCES:
        return select(SOURCES[dataset.source](name, path, domain=dataset.domain, seed=seed), **selection)
    if Path(str(path)).suffix != ".parquet" or dataset.columns != UNNAMED:
        return load_own(
            Path(str(path)), name=name, columns=dataset.columns, domain=dataset.domain, items=dataset.items, **selection
        )
    return load_parquet(Path(str(path)), dataset=name, domain=dataset.domain, items=dataset.items, **selection)


def _under_root(file: str, root: Path | None) -> Path:
    if root is None:
        raise DataError(f"no data root; set {DATA_VARIABLE} or datasets.root to a folder that contains {file}")
    return root / file
