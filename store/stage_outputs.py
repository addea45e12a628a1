"""Manifests of outs whose rows and dumps are in a shared folder: writing them, and reading through them."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
from blake3 import blake3

from store import checksums, files, manifests
from store.errors import LocationError
from store.job_rows import summarize_error
from store.schema import arrow_schema
from store.table_folder import parquet_files
from store.table_parts import conform

# Dumps read in parallel.
READS = 8


def check_location(out: Path, folder: Path | None, tables: Collection[str]) -> None:
    """Raise LocationError if an earlier run stored the rows of this out elsewhere than in `folder`.

    folder: None means the out itself. tables: names of the tables of the out.
    """
    manifest = manifests.read(out)
    if manifest and manifest["store"] != (folder and str(folder)):
        raise LocationError(
            f"{out / manifests.NAME}: the rows of {out.name} are at {manifest['store']}, but resources.store requests "
            f"{folder or out}; correct resources.store, or delete the manifest: rows that were moved there are found, "
            "others are computed again"
        )
    own = [name for name in tables if (out / name).is_dir()]
    if folder and own:
        raise LocationError(
            f"{out}: contains rows of {own}, but resources.store requests {folder}; remove resources.store, move "
            f"{out} there, or delete it to compute all rows again"
        )


def publish(out: Path, folder: Path, tables: Collection[str], keys: Collection[str] | None = None) -> None:
    """Write the manifest of the tables that a finished stage has stored in a folder.

    keys: keys of all jobs with rows; None for wall-clock times. Raises DamagedFile if a file of rows is not as
    it was written.
    """
    facts: dict[str, Any] = {"store": str(folder), "tables": {}}
    for name in sorted(tables):
        facts["tables"][name] = [_describe(path) for path in parquet_files(folder / name)]
    if keys is not None:
        facts["keys"] = {"count": len(keys), "blake3": blake3("".join(sorted(keys)).encode()).hexdigest()}
    files.write_text(out / manifests.NAME, manifests.text_of(facts))


def _describe(path: Path) -> dict[str, Any]:
    rows = files.metadata(path).num_rows
    return {"bytes": path.stat().st_size, "fingerprint": files.fingerprint(path), "rows": rows}


def table_files(out: Path, name: str) -> list[Path]:
    """Return the paths of a table's Parquet files, in the out or in the folder that its manifest names.

    Files in such a folder are compared with the fingerprints in the manifest; LocationError if they differ.
    """
    manifest = manifests.read(out)
    if manifest is None:
        return parquet_files(out / name)
    expected = [entry["fingerprint"] for entry in manifest["tables"].get(name, [])]
    paths = [Path(manifest["store"], name, f"{n:05d}.parquet") for n in range(len(expected))]
    if any(not path.is_file() for path in paths) or [*map(files.fingerprint, paths)] != expected:
        raise LocationError(
            f"{out / manifests.NAME}: {manifest['store']} no longer contains the rows of {name} that it names; "
            f"check out the manifest of its last run, or run the stage {out.name} again"
        )
    return paths


def read_rows(out: Path, name: str) -> pa.Table:
    """Read all rows of a table of a stage's out, compacted or not; none if it does not exist."""
    schema = arrow_schema(name)
    tables = [conform(files.read_parquet(path), schema) for path in table_files(Path(out), name)]
    return pa.concat_tables(tables or [schema.empty_table()])


def read_failures(data: Path) -> pa.Table:
    """Read the last failure of each job, from all outs in a folder, including those of unfinished stages."""
    outs = sorted(path for path in Path(data).glob("[!.]*") if path.is_dir())
    rows = pa.concat_tables([arrow_schema("failures").empty_table(), *(read_rows(out, "failures") for out in outs)])
    last = {key: n for n, key in enumerate(rows["key"].to_pylist())}
    return rows.take(pa.array(sorted(last.values()), pa.int64()))


def list_failures(data: Path, *, full: bool = False) -> pa.Table:
    """Return the failed jobs of every stage, one row each.

    data: folder of the stages' outs. full: whole messages and tracebacks instead of one line.
    """
    rows = read_failures(data)
    if full:
        return rows.select(["stage", "task", "error", "message", "spec", "attempts", "transient", "traceback"])
    texts = zip(rows["message"].to_pylist(), rows["traceback"].to_pylist(), strict=True)
    lines = pa.array([summarize_error(message, traceback) for message, traceback in texts], pa.string())
    return rows.select(["stage", "task", "error", "spec"]).add_column(3, "message", lines)


def read_dumps(out: Path) -> list[dict[str, Any]]:
    """Read the rows of a stage's table `dumps`, and verify each dump.

    Raises DamagedFile if a dump is gone or differs from the fingerprint in its row.
    """
    rows: list[dict[str, Any]] = read_rows(out, "dumps").to_pylist()
    with ThreadPoolExecutor(READS) as pool:
        list(pool.map(lambda row: _check_dump(manifests.locate(out / row["path"]), row["fingerprint"]), rows))
    return rows


def dump_files(out: Path, suffix: str) -> list[Path]:
    """Return the dump files of a stage's out with this suffix, sorted by path.

    Raises DamagedFile as `read_dumps` does.
    """
    paths = sorted(row["path"] for row in read_dumps(out))
    return [manifests.locate(out / path) for path in paths if path.endswith(suffix)]


def _check_dump(file: Path, expected: str) -> None:
    try:
        actual = f"BLAKE3 {files.fingerprint(file)}"
    except FileNotFoundError:
        actual = "no such file"
    if actual != f"BLAKE3 {expected}":
        raise checksums.damaged(file, actual, f"BLAKE3 {expected}")
