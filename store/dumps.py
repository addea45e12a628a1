"""Dump files: written once by workers, a row group a table, and read by the row group."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from store import files

NAME = re.compile(r"[A-Za-z0-9_@=+-][A-Za-z0-9._@=+-]*")  # no separators, and no leading dot
FORMATS = ("parquet", "arrow")  # of shards of series


class JobLike(Protocol):
    """What of a job the store looks at."""

    @property
    def spec(self) -> Mapping[str, Any]: ...

    @property
    def inputs(self) -> Mapping[str, str]: ...


class States(TypedDict):
    """Tokens of one layer. states is [N, d] float32; types is None where the family has no vocabulary."""

    states: np.ndarray
    types: np.ndarray | None
    kinds: np.ndarray
    series: np.ndarray
    position: np.ndarray
    n_series: int
    states_dtype: str


def dump_path(spec: Mapping[str, Any]) -> str:
    """dumps/model/dataset/condition.parquet; dumps/dataset/SHARD.FORMAT of a shard. ValueError for a bad name."""
    shard = spec.get("shard")
    parts = ("dataset",) if shard is not None else ("model", "dataset", "condition")
    if absent := [part for part in parts if spec.get(part) is None]:
        raise ValueError(f"spec {dict(spec)}: a dump needs {absent} for its path")
    names = [str(spec[part]) for part in parts]
    for name in names:
        if not NAME.fullmatch(name):
            raise ValueError(f"name {name!r} cannot be part of a path: expected letters, digits and ._@=+- only")
    if shard is None:
        return f"dumps/{'/'.join(names)}.parquet"
    if spec["format"] not in FORMATS:
        raise ValueError(f"format {spec['format']!r}: expected one of {FORMATS}")
    return f"dumps/{names[0]}/{shard:06d}.{spec['format']}"


def write_dump(out: Path, path: str, tables: Iterable[pa.Table]) -> dict[str, Any]:
    """Stream tables of one schema, a row group or batch each, to a file that then takes its name; it replaces a former.

    A path that ends in .arrow is an Arrow file without compression, which readers map into memory; others are Parquet.
    Answers path (relative to `out`), rows, bytes and sha256.
    """
    target = Path(out) / path
    rows = 0
    with files.atomic(target) as temporary:
        writer = None
        try:
            for table in tables:
                whole = table.combine_chunks()
                if writer is None:
                    arrow = target.suffix == ".arrow"
                    writer = (pa.ipc.new_file if arrow else files.parquet_writer)(str(temporary), whole.schema)
                if isinstance(writer, pq.ParquetWriter):
                    writer.write_table(whole, row_group_size=max(1, len(whole)))
                else:
                    writer.write_table(whole)
                rows += len(table)
        finally:
            if writer is not None:
                writer.close()
        if writer is None:
            raise ValueError(f"dump {path}: got no tables, expected at least one")
        size, sha256 = temporary.stat().st_size, files.fingerprint(temporary)
    return {"path": path, "rows": rows, "bytes": size, "sha256": sha256}


def write_job_dump(out: Path, job: JobLike, tables: Iterable[pa.Table]) -> dict[str, Any]:
    """`write_dump` under the name that the job's spec gives."""
    return write_dump(out, dump_path(job.spec), tables)


def read_table(root: Path, job: JobLike) -> pa.Table:
    """The whole of the one Parquet file among the job's inputs, its metadata too."""
    return pq.read_table(_input(root, job), partitioning=None, page_checksum_verification=True)


def read_states(root: Path, job: JobLike) -> States:
    """The tokens of the spec's (stack, layer, normed), from those row groups of the embedding dump alone."""
    return layer_states(_input(root, job), *(job.spec[name] for name in ("stack", "layer", "normed")))


def layer_states(path: Path, stack: str, layer: int, normed: bool) -> States:
    """The tokens of one layer of an embedding dump. ValueError, with what it holds, where it has not got the layer."""
    wanted = (stack, layer, normed)
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        groups = dict(enumerate(layers(file.metadata)))
        if wanted not in groups.values():
            held = sorted(set(groups.values()))
            raise ValueError(f"dump {path.name}: no (stack, layer, normed) {wanted}, expected one of {held}")
        columns = ["position", "series", "kind", "type", "state"]
        table = file.read_row_groups([n for n, name in groups.items() if name == wanted], columns=columns)
    state = table["state"].combine_chunks()
    width, dtype = state.type.list_size, str(state.type.value_type).replace("halffloat", "float16")
    series = table["series"].cast(pa.string())
    types = table["type"]
    return {
        "states": state.flatten().to_numpy(zero_copy_only=False).reshape(len(table), width).astype(np.float32),
        "types": None if types.null_count else types.to_numpy(),
        "kinds": table["kind"].to_numpy(),
        "series": series.to_numpy(),
        "position": table["position"].to_numpy(),
        "n_series": len(series.unique()),
        "states_dtype": {"float": "float32", "double": "float64"}.get(dtype, dtype),
    }


def layers(metadata: pq.FileMetaData) -> list[tuple[str, int, bool]]:
    """(stack, layer, normed) of each row group, from its statistics."""
    places = {metadata.schema.column(n).path: n for n in range(metadata.num_columns)}
    found = []
    for n in range(metadata.num_row_groups):
        group = metadata.row_group(n)
        stack, layer, normed = (group.column(places[name]).statistics.min for name in ("stack", "layer", "normed"))
        found.append((str(stack), int(layer), bool(normed)))
    return found


def last_layers(metadata: pq.FileMetaData) -> set[tuple[str, int, bool]]:
    """(stack, layer, normed) of each stack's last state: after its final norm, or of its last block without one."""
    return set({stack: (stack, layer, normed) for stack, layer, normed in sorted(layers(metadata))}.values())


def _input(root: Path, job: JobLike) -> Path:
    """The one Parquet file that the job reads."""
    found = [name for name in job.inputs if name.endswith(".parquet") and not name.startswith(files.NOT_FILES)]
    if len(found) != 1:
        raise ValueError(f"job {dict(job.spec)}: expected one Parquet file among its inputs, got {found}")
    return Path(root) / found[0]
