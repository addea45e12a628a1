"""Dump files, each written once by a worker, with one row group or record batch per table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from store import files

# (stack, layer, normed): identifies a record batch of an embedding dump.
LayerKey = tuple[str, int, bool]

# Part of a path: no separators and no leading dot.
NAME = re.compile(r"[A-Za-z0-9_@=+-][A-Za-z0-9._@=+-]*")


class JobLike(Protocol):
    """Attributes of a job that the store reads."""

    @property
    def spec(self) -> Mapping[str, Any]: ...

    @property
    def inputs(self) -> Mapping[str, str]: ...


class States(TypedDict):
    """Tokens of one layer. states is [N, d] float32; types is None if the family has no vocabulary.

    n_series: number of distinct series among the tokens. states_dtype: name of the dtype in the file.
    """

    states: np.ndarray
    types: np.ndarray | None
    series: np.ndarray
    position: np.ndarray
    n_series: int
    states_dtype: str


def dump_path(spec: Mapping[str, Any]) -> str:
    """Return the path of a dump.

    It is dumps/model/dataset/condition.FORMAT, or dumps/dataset/SHARD.FORMAT for a shard. FORMAT is the
    spec's `format`, by default parquet. SHARD has six digits. Raises ValueError if a name is invalid.
    """
    shard = spec.get("shard")
    parts = ("dataset",) if shard is not None else ("model", "dataset", "condition")
    names = [str(spec[part]) for part in parts]
    for name in names:
        if not NAME.fullmatch(name):
            raise ValueError(f"name {name!r} cannot be part of a path: expected letters, digits and ._@=+- only")
    name = "/".join(names) if shard is None else f"{names[0]}/{shard:06d}"
    return f"dumps/{name}.{spec.get('format', 'parquet')}"


def write_dump(out: Path, path: str, tables: Iterable[pa.Table]) -> dict[str, Any]:
    """Stream tables of one schema to a temporary file that then replaces any file at `path`.

    Each table is one row group or record batch. A path that ends in .arrow is an Arrow file without
    compression, which readers map into memory; other paths are Parquet files.

    Returns a dictionary with path (relative to `out`), rows, bytes and fingerprint (BLAKE3, hex). The file is
    not yet forced to the disk: the caller that stores this dictionary syncs the file first, several
    files at once (`StageStore.append`). Raises ValueError if there are no tables.
    """
    target = Path(out) / path
    with files.atomic(target, durable=False) as temporary:
        rows, writer = 0, None
        try:
            for table in tables:
                combined = table.combine_chunks()
                if writer is None:
                    make = pa.ipc.new_file if path.endswith(".arrow") else files.parquet_writer
                    writer = make(str(temporary), combined.schema)
                if isinstance(writer, pq.ParquetWriter):
                    writer.write_table(combined, row_group_size=max(1, len(combined)))
                else:
                    writer.write_table(combined)
                rows += len(table)
        finally:
            if writer is not None:
                writer.close()
        if writer is None:
            raise ValueError(f"dump {path}: got no tables, expected at least one")
        size, digest = temporary.stat().st_size, files.fingerprint(temporary)
    return {"path": path, "rows": rows, "bytes": size, "fingerprint": digest}


def write_job_dump(out: Path, job: JobLike, tables: Iterable[pa.Table]) -> dict[str, Any]:
    """Call `write_dump` with the path that `dump_path` derives from the job's spec."""
    return write_dump(out, dump_path(job.spec), tables)


def read_table(root: Path, job: JobLike) -> pa.Table:
    """Read the one dump among the job's inputs, with its schema metadata; an Arrow file is memory-mapped."""
    path = _input(root, job, ".parquet", ".arrow")
    if path.suffix == ".arrow":
        return _reader(path).read_all()
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        return file.read(use_threads=False)


def dump_metadata(path: Path) -> dict[bytes, bytes]:
    """Return the metadata of a dump's schema."""
    schema = _reader(path).schema if path.suffix == ".arrow" else pq.read_schema(path)
    return dict(schema.metadata or {})


def read_states(root: Path, job: JobLike) -> States:
    """Read the tokens of the spec's (stack, layer, normed) from the job's embedding dump.

    No other layer is read.
    """
    return layer_states(_input(root, job, ".arrow"), *(job.spec[name] for name in ("stack", "layer", "normed")))


def layer_states(path: Path, stack: str, layer: int, normed: bool) -> States:
    """Read the tokens of one layer of an embedding dump.

    Raises ValueError, with the layers that the dump contains, if it lacks this one.

    States of float32 are a read-only memory map of the file. Nothing is verified here: the caller
    must compare the file's fingerprint, as a sweep does before each job.
    """
    batch = layer_batch(path, (stack, layer, normed))
    state, types, series = batch["state"], batch["type"], batch["series"].cast(pa.string())
    flat = state.flatten().to_numpy()
    return {
        "states": flat.reshape(len(batch), state.type.list_size).astype(np.float32, copy=False),
        "types": None if types.null_count else types.to_numpy(),
        "series": series.to_numpy(zero_copy_only=False),
        "position": batch["position"].to_numpy(),
        "n_series": len(series.unique()),
        "states_dtype": flat.dtype.name,
    }


def layer_batch(path: Path, layer: LayerKey) -> pa.RecordBatch:
    """Return the record batch of one layer of an embedding dump.

    Raises ValueError, with the layers that the dump contains, if there is no such batch.
    """
    rows = layer_rows(path)
    if layer not in rows:
        raise ValueError(f"dump {path.name}: no (stack, layer, normed) {layer}, expected one of {sorted(rows)}")
    return _reader(path).get_batch(list(rows).index(layer))


def layer_rows(path: Path) -> dict[LayerKey, int]:
    """Return the number of rows of each (stack, layer, normed) in file order, without reading states."""
    reader = _reader(path)
    rows = {}
    for n in range(reader.num_record_batches):
        batch = reader.get_batch(n)
        stack, layer, normed = (batch[name][0].as_py() for name in ("stack", "layer", "normed"))
        rows[stack, layer, normed] = len(batch)
    return rows


def layers(path: Path) -> list[LayerKey]:
    """Return (stack, layer, normed) of each record batch of an embedding dump, in file order."""
    return list(layer_rows(path))


def _reader(path: Path) -> pa.ipc.RecordBatchFileReader:
    """Return a reader of a memory-mapped Arrow file."""
    return pa.ipc.open_file(pa.memory_map(str(path)))


def last_layers(layers_of_dump: Iterable[LayerKey]) -> set[LayerKey]:
    """Return (stack, layer, normed) of each stack's last state.

    That is the state after the final norm, or the output of the last block if the stack has no final norm.
    """
    return set({stack: (stack, layer, normed) for stack, layer, normed in sorted(layers_of_dump)}.values())


def _input(root: Path, job: JobLike, *suffixes: str) -> Path:
    """Return the job's only input file with one of these suffixes. ValueError if there is not exactly one."""
    names = [name for name in job.inputs if name.endswith(suffixes) and not name.startswith(files.NOT_FILES)]
    (name,) = names
    return Path(root) / name
