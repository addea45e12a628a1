"""Locations of the catalogue's tables in the outputs of the stages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tsfmscope.stages import DATA, STAGES
from tsfmscope.store.manifests import File
from tsfmscope.store.published import dump_files, table_files

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
    "study_jobs": ("compression", "geometry", "spectra", "forecasts"),
    "inference": ("statistics",),
    "studies": ("statistics",),
    "failures": tuple(stage.name for stage in STAGES if stage.sweeps),
}


def sources() -> dict[str, Sequence[File]]:
    """Return table -> its Parquet files, in the order of the stages, and the verified activation files."""
    swept = [Path(DATA, "timings", stage.name) for stage in STAGES if stage.sweeps]
    files = tables(HOLDERS) | {table: _files(table, swept) for table in ("timings", "runs")}
    return files | {"embeddings": dump_files(Path(DATA, "embeddings"), ".arrow")}


def tables(names: Iterable[str]) -> dict[str, Sequence[File]]:
    """Return table -> its Parquet files, in the order of the stages, for the named tables of HOLDERS."""
    return {name: _files(name, [Path(DATA, stage) for stage in HOLDERS[name]]) for name in names}


def _files(table: str, outs: Sequence[Path]) -> list[Path]:
    """Return the files of a table: a folder of files if jobs write the table, else one file."""
    single_files = [out / f"{table}.parquet" for out in outs]
    return [p for p in single_files if p.exists()] + [p for out in outs for p in table_files(out, table)]
