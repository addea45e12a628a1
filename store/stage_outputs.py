"""Manifests of outs whose rows and dumps are stored elsewhere: writing them, and reading through them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
from blake3 import blake3

from tsfmscope.store import checksums, files, manifests
from tsfmscope.store.backend import StorageBackend
from tsfmscope.store.errors import LocationError
from tsfmscope.store.job_rows import summarize_error
from tsfmscope.store.manifests import File
from tsfmscope.store.object_store import manifest
from tsfmscope.store.objects import Remote
from tsfmscope.store.schema import arrow_schema
from tsfmscope.store.table_parts import conform

# Dumps read in parallel; botocore keeps ten connections.
READS = 8
# Folder next to the outs with files of rows from object stores, named by BLAKE3; it may be deleted
# at any time.
CACHE = ".rows"


def check_location(out: Path, uri: str | None, tables: Collection[str]) -> None:
    """Raise LocationError if an earlier run stored the rows of this out at another location than `uri`.

    uri: None means the out itself. tables: names of the tables of the out.
    """
    manifest = manifests.read(out)
    if manifest and manifest["store"] != uri:
        raise LocationError(
            f"{out / manifests.NAME}: the rows of {out.name} are at {manifest['store']}, but resources.store requests "
            f"{uri or out}; correct resources.store, or delete the manifest to compute all rows again"
        )
    own = [name for name in tables if (out / name).is_dir()]
    if uri and own:
        raise LocationError(
            f"{out}: contains rows of {own}, but resources.store requests {uri}; remove resources.store, or delete the "
            "folder to compute all rows again"
        )


def publish(out: Path, backend: StorageBackend, tables: Collection[str], keys: Collection[str] | None = None) -> None:
    """Write the manifest of the tables that a finished stage has stored.

    keys: keys of all jobs with rows. If None, `out` is the companion folder with the wall-clock times.
    """
    facts: dict[str, Any] = {"store": backend.uri, "tables": {}}
    for name in sorted(tables):
        entries = backend.entries(name, companion=keys is None)
        facts["tables"][name] = [{"bytes": e.bytes, "fingerprint": e.fingerprint, "rows": e.rows} for e in entries]
    if keys is not None:
        facts["keys"] = {"count": len(keys), "blake3": blake3("".join(sorted(keys)).encode()).hexdigest()}
    files.write_text(out / manifests.NAME, manifests.text_of(facts))


def table_files(out: Path, name: str) -> list[Path]:
    """Return the paths of a table's Parquet files, in the out or from the store that its manifest names.

    Files of an object store are fetched once into a local cache. Files of a store are compared with the
    fingerprints in the manifest; LocationError if the store no longer contains them.
    """
    manifest = manifests.read(out)
    if manifest is None:
        return sorted((out / name).glob("[!.]*.parquet"))
    entries = manifest["tables"].get(name, [])
    at = manifests.address(manifest["store"])
    if isinstance(at, Path):
        at = at if (at / name).is_dir() else _companion(at)
        paths = [at / name / f"{n:05d}.parquet" for n in range(len(entries))]
    else:
        paths = _fetched(out.parent / CACHE, at, name, entries)
    for path, entry in zip(paths, entries, strict=True):
        if not path.is_file() or files.fingerprint(path) != entry["fingerprint"]:
            raise LocationError(_changed(out, manifest["store"], name))
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


def dump_files(out: Path, suffix: str) -> list[File]:
    """Return the dump files of a stage's out with this suffix, sorted by path.

    Raises DamagedFile as `read_dumps` does.
    """
    paths = sorted(row["path"] for row in read_dumps(out))
    return [manifests.locate(out / path) for path in paths if path.endswith(suffix)]


def _check_dump(file: File, expected: str) -> None:
    try:
        actual = f"BLAKE3 {files.fingerprint(file)}"
    except FileNotFoundError:
        actual = "no such file"
    if actual != f"BLAKE3 {expected}":
        raise checksums.damaged(file, actual, f"BLAKE3 {expected}")


def _fetched(cache: Path, at: Remote, name: str, entries: Sequence[Mapping[str, Any]]) -> list[Path]:
    """Return paths in the cache for a table's files, after fetching those that are absent or damaged.

    A file that the store no longer contains is not fetched.
    """
    paths = [cache / f"{entry['fingerprint']}.parquet" for entry in entries]
    is_cached = {path: path.is_file() and files.fingerprint(path) == path.stem for path in paths}
    if all(is_cached.values()):
        return paths
    stored = {fingerprint: file for file, _, _, fingerprint in manifest(at)[0]["tables"].get(name, ())}
    for path, entry in zip(paths, entries, strict=True):
        if not is_cached[path] and entry["fingerprint"] in stored:
            with files.atomic(path, durable=False) as temporary:
                temporary.write_bytes((at / "rows" / name / stored[entry["fingerprint"]]).read()[0])
    return paths


def _changed(out: Path, uri: str, name: str) -> str:
    return (
        f"{out / manifests.NAME}: {uri} no longer contains the rows of {name} that it names; "
        f"check out the manifest of its last run, or run the stage {out.name} again"
    )


def _companion(at: Path) -> Path:
    """Return the folder of the wall-clock times of a stage whose rows are in a shared folder."""
    return at.parent / "timings" / at.name
