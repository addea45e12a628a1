"""Where every table of the catalogue lies in the outs of the stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from stages import DATA, STAGES
from store.manifests import File
from store.published import dump_files, table_files

HOLDERS: Mapping[str, Sequence[str]] = {
    "datasets": ("kernelsynth", "datasets"),
    "skipped": ("kernelsynth", "datasets", "tokens"),
    "checkpoints": ("checkpoints", "compression"),
    "training": ("checkpoints", "pretraining"),
    "trials": ("pretraining",),
    "skill": ("checkpoints",),
    "compression": ("compression",),
    "compressed_heads": ("compression",),
    "fidelity": ("compression",),
    "dumps": ("tokens", "embeddings"),
    "geometry": ("geometry",),
    "alignment": ("heads",),
    "partition": ("heads",),
    "jacobian": ("heads",),
    "spectra": ("spectra",),
    "planes": ("spectra",),
    "angles": ("spectra",),
    "forecasts": ("forecasts",),
    "validation": ("forecasts",),
    "theory": ("theory",),
    "studies": ("compression", "geometry", "spectra", "forecasts"),
    "inference": ("statistics",),
    "questions": ("statistics",),
    "failures": tuple(stage.name for stage in STAGES if stage.sweeps),
}


def sources() -> dict[str, Sequence[File]]:
    """Table -> its Parquet files, in the order of the stages."""
    found: dict[str, Sequence[File]] = {
        table: _files(table, [Path(DATA, stage) for stage in stages]) for table, stages in HOLDERS.items()
    }
    swept = [Path(DATA, "timings", stage.name) for stage in STAGES if stage.sweeps]
    found |= {table: _files(table, swept) for table in ("timings", "runs")}
    return found | {"embeddings": dump_files(Path(DATA, "embeddings"), ".arrow")}


def _files(table: str, outs: Sequence[Path]) -> list[Path]:
    """A table is a folder of files where jobs write it, else one file."""
    alone = [out / f"{table}.parquet" for out in outs]
    return [p for p in alone if p.exists()] + [p for out in outs for p in table_files(out, table)]
