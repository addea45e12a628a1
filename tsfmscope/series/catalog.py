"""Catalogue of the named data sets: the 22 of Shelim et al. 2025, similar ones, and those inside packages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from tsfmscope.files import read_packaged

# Meaning of the values: steps, bytes, pixels or cells.
Modality = Literal["series", "text", "image", "table"]
# Modality by source.
MODALITIES: Mapping[str, Modality] = MappingProxyType({"text": "text", "images": "image", "tables": "table"})


@dataclass(frozen=True)
class Entry:
    """One data set of the catalogue.

    A kernelsynth data set has a `kernel`; a folder data set has a `file` and perhaps `items`. Text and images
    have a `file`, unless they are those that ship with dependencies (tsfmscope/series/other_modalities.py).
    """

    name: str
    # As in stages/config: kernelsynth, signals, bundled, folder, hub, text, images, tables.
    source: str
    domain: str
    # Number of steps to forecast.
    horizon: int
    # pandas alias; "" for synthetic series.
    freq: str = ""
    # scikit-learn expression on a grid of 1024 steps.
    kernel: str | None = None
    # One of tsfmscope.series.synthetic.signals.SIGNALS.
    signal: str | None = None
    # File under the data root: Parquet, text, or images.
    file: str | None = None
    # Regular expression that must match a whole item id.
    items: str | None = None
    # Name in Shelim et al. 2025, such as finance-1.
    paper: str | None = None
    # Title as printed in Shelim et al. 2025, Table 3.
    paper_title: str | None = None
    # For a data set that is not the paper's own: which one it replaces, and how it differs.
    stands_in_for: str | None = None


def modality(source: str) -> Modality:
    """Return what the values of a source stand for; "series" for sources that are not in MODALITIES."""
    return MODALITIES.get(source, "series")


def _read(path: Path) -> Mapping[str, Entry]:
    block: dict[str, dict[str, Any]] = read_packaged(path)
    names = {field.name for field in fields(Entry)}
    for name, facts in block.items():
        if extra := set(facts) - names:
            raise ValueError(f"{path.name}: {name}: unknown {sorted(extra)}, expected some of {sorted(names)}")
    return MappingProxyType({name: Entry(name=name, **facts) for name, facts in block.items()})


CATALOG: Mapping[str, Entry] = _read(Path(__file__).with_name("catalog.yaml"))
