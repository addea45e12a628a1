"""Locations of the catalogue's tables in the outputs of the stages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from stages import DATA, STAGES
from store.schema import TABLES
from store.stage_outputs import dump_files
from store.table_parts import parquet_files

SWEEPS = tuple(stage.name for stage in STAGES if stage.sweeps)


def writers(table: str) -> list[str]:
    """Return the stages whose outputs contain a table, in the order of the stages.

    The schema states them, except for two tables: every stage that runs jobs writes `failures`, and every stage
    that writes rows of studies writes `study_jobs`.
    """
    if table == "failures":
        return list(SWEEPS)
    stage_names = TABLES[table].stages
    if table == "study_jobs":
        stage_names = tuple(stage for schema in TABLES.values() if schema.by_study for stage in schema.stages)
    return [stage.name for stage in STAGES if stage.name in stage_names]


def sources() -> dict[str, Sequence[Path]]:
    """Return table -> its Parquet files, in the order of the stages, and the verified embedding dumps."""
    names = [name for name, table in TABLES.items() if table.in_catalogue and writers(name)]
    companions = [Path(DATA, "timings", stage) for stage in SWEEPS]
    files = tables(names) | {table: _files(table, companions) for table in ("timings", "runs")}
    return files | {"embeddings": dump_files(Path(DATA, "embeddings"), ".arrow")}


def tables(names: Iterable[str]) -> dict[str, Sequence[Path]]:
    """Return table -> its Parquet files, in the order of the stages, for the named tables."""
    return {name: _files(name, [Path(DATA, stage) for stage in writers(name)]) for name in names}


def _files(table: str, outs: Sequence[Path]) -> list[Path]:
    """Return the files of a table: a folder of files if jobs write the table, else one file."""
    single_files = [out / f"{table}.parquet" for out in outs]
    return [p for p in single_files if p.exists()] + [p for out in outs for p in parquet_files(out / table)]
