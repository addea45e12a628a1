"""Dump files: written once by workers, a row group or record batch a table, and read by these."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from store import files
from store.direct import DirectFile
from store.manifests import File, locate
from store.objects import Remote
from store.uploads import Upload

Place = tuple[str, int, bool]  # stack, layer, normed: what a record batch of an embedding dump holds

NAME = re.compile(r"[A-Za-z0-9_@=+-][A-Za-z0-9._@=+-]*")  # no separators, and no leading dot
FORMATS = ("parquet", "arrow")


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
    """dumps/model/dataset/condition.FORMAT; dumps/dataset/SHARD.FORMAT of a shard. ValueError for a bad name.

    FORMAT is the spec's `format`, else parquet.
    """
    shard = spec.get("shard")
    parts = ("dataset",) if shard is not None else ("model", "dataset", "condition")
    if absent := [part for part in parts if spec.get(part) is None]:
        raise ValueError(f"spec {dict(spec)}: a dump needs {absent} for its path")
    names = [str(spec[part]) for part in parts]
    for name in names:
        if not NAME.fullmatch(name):
            raise ValueError(f"name {name!r} cannot be part of a path: expected letters, digits and ._@=+- only")
    suffix = spec.get("format", "parquet")
    if suffix not in FORMATS:
        raise ValueError(f"format {suffix!r}: expected one of {FORMATS}")
    name = "/".join(names) if shard is None else f"{names[0]}/{shard:06d}"
    return f"dumps/{name}.{suffix}"


def write_dump(out: File, path: str, tables: Iterable[pa.Table]) -> dict[str, Any]:
    """Stream tables of one schema, a row group or batch each, to a file that then takes its name; it replaces a former.

    A path that ends in .arrow is an Arrow file without compression, which readers map into memory; others are Parquet.
    Answers path (relative to `out`), rows, bytes and fingerprint. The disk may have it later: whoever stores that
    answer syncs the file first, several at once (`Out.append`). An object is uploaded as it is written, in parts.
    """
    target = (out if isinstance(out, Remote) else Path(out)) / path
    if isinstance(target, Remote):
        with Upload(target) as upload:
            rows = _write(upload, path, tables)
        upload.sign()
        return {"path": path, "rows": rows, "bytes": upload.size, "fingerprint": upload.fingerprint}
    with files.atomic(target, durable=False) as temporary:
        if target.suffix == ".arrow":
            with DirectFile(temporary) as file:
                rows = _write(file, path, tables)
            size, digest = file.size, file.fingerprint
        else:
            rows = _write(str(temporary), path, tables)
            size, digest = temporary.stat().st_size, files.fingerprint(temporary)
    return {"path": path, "rows": rows, "bytes": size, "fingerprint": digest}


def _write(sink: Any, path: str, tables: Iterable[pa.Table]) -> int:
    """Write the tables of a dump of that name to a path or a file; how many rows."""
    rows = 0
    writer = None
    try:
        for table in tables:
            whole = table.combine_chunks()
            if writer is None:
                writer = (pa.ipc.new_file if path.endswith(".arrow") else files.parquet_writer)(sink, whole.schema)
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
    return rows


def write_job_dump(out: File, job: JobLike, tables: Iterable[pa.Table]) -> dict[str, Any]:
    """`write_dump` under the name that the job's spec gives."""
    return write_dump(out, dump_path(job.spec), tables)


def read_table(root: Path, job: JobLike) -> pa.Table:
    """The whole of the one dump among the job's inputs, its metadata too; an Arrow file is mapped, if it lies here."""
    found = _input(root, job, ".parquet", ".arrow")
    if found.suffix == ".arrow":
        return _reader(found).read_all()
    with pq.ParquetFile(_opened(found), page_checksum_verification=True) as file:
        return file.read(use_threads=False)


def dump_metadata(path: Path) -> dict[bytes, bytes]:
    """What a dump's schema says of it."""
    schema = _reader(path).schema if path.suffix == ".arrow" else pq.read_schema(_opened(locate(path)))
    return dict(schema.metadata or {})


def _opened(file: File) -> Path | pa.NativeFile:
    """What Arrow reads a dump from, a part at a time."""
    return file if isinstance(file, Path) else file.open()


def read_states(root: Path, job: JobLike) -> States:
    """The tokens of the spec's (stack, layer, normed), from that record batch of the embedding dump alone."""
    return layer_states(_input(root, job, ".arrow"), *(job.spec[name] for name in ("stack", "layer", "normed")))


def layer_states(path: File, stack: str, layer: int, normed: bool) -> States:
    """The tokens of one layer of an embedding dump. ValueError, with what it holds, where it has not got the layer.

    States of float32 are the file's own bytes, mapped and read-only; of an object that one batch is fetched. That they
    are those that were written is the caller's to know, by the file's fingerprint: a sweep compares it before each job.
    """
    return batch_states(layer_batch(path, (stack, layer, normed)))


def batch_states(batch: pa.RecordBatch) -> States:
    """The tokens of a record batch of an embedding dump."""
    state, types, series = batch["state"], batch["type"], batch["series"].cast(pa.string())
    flat = state.flatten().to_numpy()
    return {
        "states": flat.reshape(len(batch), state.type.list_size).astype(np.float32, copy=False),
        "types": None if types.null_count else types.to_numpy(),
        "kinds": batch["kind"].to_numpy(),
        "series": series.to_numpy(zero_copy_only=False),
        "position": batch["position"].to_numpy(),
        "n_series": len(series.unique()),
        "states_dtype": flat.dtype.name,
    }


def layer_batch(path: File, wanted: Place) -> pa.RecordBatch:
    """The record batch of one layer of an embedding dump. ValueError, with what it holds, where there is none."""
    found = layer_rows(path)
    if wanted not in found:
        raise ValueError(f"dump {path.name}: no (stack, layer, normed) {wanted}, expected one of {sorted(found)}")
    return _reader(path).get_batch(list(found).index(wanted))


def layer_rows(path: File) -> dict[Place, int]:
    """(stack, layer, normed) of each record batch of an embedding dump, in their order, and its rows.

    No state is read: a local file is mapped, of an object only these three columns are fetched.
    """
    names = ("stack", "layer", "normed")
    reader = _reader(path, names)
    found = {}
    for n in range(reader.num_record_batches):
        batch = reader.get_batch(n)
        stack, layer, normed = (batch[name][0].as_py() for name in names)
        found[stack, layer, normed] = len(batch)
    return found


def layers(path: File) -> list[Place]:
    """(stack, layer, normed) of each record batch of an embedding dump."""
    return list(layer_rows(path))


def _reader(path: File, columns: Sequence[str] | None = None) -> pa.ipc.RecordBatchFileReader:
    """Of an Arrow file, here or where a manifest says. columns: of an object all that is fetched."""
    file = locate(path) if isinstance(path, Path) else path
    if isinstance(file, Path):
        return pa.ipc.open_file(pa.memory_map(str(file)))
    source = file.open()
    reader = pa.ipc.open_file(source)
    if columns is None:
        return reader
    wanted = [reader.schema.get_field_index(name) for name in columns]
    return pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=wanted))


def last_layers(places: Iterable[Place]) -> set[Place]:
    """(stack, layer, normed) of each stack's last state: after its final norm, or of its last block without one."""
    return set({stack: (stack, layer, normed) for stack, layer, normed in sorted(places)}.values())


def _input(root: Path, job: JobLike, *suffixes: str) -> File:
    """The one file of these suffixes that the job reads."""
    found = [name for name in job.inputs if name.endswith(suffixes) and not name.startswith(files.NOT_FILES)]
    if len(found) != 1:
        raise ValueError(
            f"job {dict(job.spec)}: expected one {' or '.join(suffixes)} file among its inputs, got {found}"
        )
    return locate(Path(root) / found[0])
