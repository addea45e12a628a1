"""What is known of every named data set: the isotropy paper's 22, their kin, and those inside packages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import yaml

Modality = Literal["series", "text", "image", "table"]  # what values stand for: steps, bytes, pixels, cells
MODALITIES: Mapping[str, Modality] = MappingProxyType(
    {"text": "text", "images": "image", "tables": "table"}
)  # by source


@dataclass(frozen=True)
class Entry:
    """One data set. Fields of its source: kernelsynth `kernel`, folder `file` and perhaps `items`.

    Text and images have a `file` where they are not those that ship with dependencies (tasks/series/contrast.py).
    """

    name: str
    source: str  # as in stages/blocks: kernelsynth, signals, bundled, folder, hub, text, images, tables
    domain: str
    horizon: int  # steps to forecast
    freq: str = ""  # pandas alias; "" for synthetic series
    kernel: str | None = None  # scikit-learn expression on a grid of 1024 steps
    signal: str | None = None  # one of tasks.series.signals
    file: str | None = None  # under the data root: Parquet, or a text or images
    items: str | None = None  # regular expression that whole item ids match
    paper: str | None = None  # the isotropy paper's name for it, such as finance-1
    paper_title: str | None = None  # as printed in its Table 3
    stands_in_for: str | None = None  # not the paper's own: what it stands in for, and how it differs


def modality(source: str) -> Modality:
    """What the values of a source stand for; steps of a time series where it is none of MODALITIES."""
    return MODALITIES.get(source, "series")


def _read(path: Path) -> Mapping[str, Entry]:
    block: dict[str, dict[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))
    known = {field.name for field in fields(Entry)}
    for name, facts in block.items():
        if unknown := set(facts) - known:
            raise ValueError(f"{path.name}: {name}: unknown {sorted(unknown)}, expected some of {sorted(known)}")
    return MappingProxyType({name: Entry(name=name, **facts) for name, facts in block.items()})


CATALOG: Mapping[str, Entry] = _read(Path(__file__).with_name("catalog.yaml"))
