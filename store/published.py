"""Outs whose rows and dumps lie elsewhere: writing their manifest, and reading rows and dumps through it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from blake3 import blake3

from store import files, manifests
from store.errors import PlaceError
from store.keys import Keys
from store.manifests import File
from store.objects import Remote
from store.parts import conform
from store.places import Place
from store.schema import arrow_schema
from store.shelf import manifest

CACHE = ".rows"  # beside the outs: row files of object stores by their BLAKE3; may be deleted at any time


def expect(out: Path, uri: str | None, tables: Collection[str]) -> None:
    """PlaceError where an earlier run stored elsewhere what one at `uri` (None: in the out) would make once more."""
    found = manifests.read(out)
    if found and found["store"] != uri:
        raise PlaceError(
            f"{out / manifests.NAME}: the rows of {out.name} are at {found['store']}, but resources.store asks for "
            f"{uri or out}; mend that, or delete the manifest to make all rows again"
        )
    own = [name for name in tables if (out / name).is_dir()]
    if uri and own:
        raise PlaceError(
            f"{out}: holds rows of {own}, but resources.store asks for {uri}; take that out, or delete the folder "
            "to make all rows again"
        )


def publish(out: Path, place: Place, tables: Collection[str], keys: Keys | None = None) -> None:
    """Write the manifest of what a finished stage stored; without keys that of its wall-clock figures."""
    facts: dict[str, Any] = {"store": place.uri, "tables": {}}
    for name in sorted(tables):
        held = place.entries(name, companion=keys is None)
        facts["tables"][name] = [{"bytes": e.bytes, "fingerprint": e.fingerprint, "rows": e.rows} for e in held]
    if keys is not None:
        facts["keys"] = {"count": len(keys), "blake3": blake3(keys.sorted.tobytes()).hexdigest()}
    files.write_text(out / manifests.NAME, json.dumps(facts, indent=1, sort_keys=True) + "\n")


def table_files(out: Path, name: str) -> list[Path]:
    """A table's Parquet files: in the out, or in the store that its manifest names, fetched once and checked.

    PlaceError where the store no longer holds what the manifest names.
    """
    written = manifests.read(out)
    if written is None:
        return sorted((out / name).glob("[!.]*.parquet"))
    wanted = written["tables"].get(name, [])
    at = manifests.address(written["store"])
    if isinstance(at, Path):
        at = at if (at / name).is_dir() else _companion(at)
        found = [at / name / f"{n:05d}.parquet" for n in range(len(wanted))]
    else:
        found = _fetched(out.parent / CACHE, at, name, wanted)
    for path, one in zip(found, wanted, strict=True):
        if not path.is_file() or files.fingerprint(path) != one["fingerprint"]:
            raise PlaceError(_changed(out, written["store"], name))
    return found


def read_rows(out: Path, name: str) -> pa.Table:
    """All rows of a table of a stage's out, compacted or not; an out that is not there has none."""
    schema = arrow_schema(name)
    found = [conform(files.read_parquet(path), schema) for path in table_files(Path(out), name)]
    return pa.concat_tables(found or [schema.empty_table()])


def read_failures(data: Path) -> pa.Table:
    """The rows of `failures` of all outs in a folder, of each job the last; also of stages that have not finished."""
    outs = sorted(path for path in Path(data).glob("[!.]*") if path.is_dir())
    rows = pa.concat_tables([arrow_schema("failures").empty_table(), *(read_rows(out, "failures") for out in outs)])
    last = {key: n for n, key in enumerate(rows["key"].to_pylist())}
    return rows.take(pa.array(sorted(last.values()), pa.int64()))


def dump_files(out: Path, suffix: str) -> list[File]:
    """The dump files of a stage's out, by path."""
    if manifests.read(out) is None:
        return [*sorted((out / "dumps").rglob(f"[!.]*{suffix}"))]
    paths = sorted(read_rows(out, "dumps")["path"].to_pylist())
    return [manifests.locate(out / path) for path in paths if path.endswith(suffix)]


def _fetched(cache: Path, at: Remote, name: str, wanted: Sequence[Mapping[str, Any]]) -> list[Path]:
    """Local copies of a table's files, by BLAKE3."""
    found = [cache / f"{one['fingerprint']}.parquet" for one in wanted]
    if all(path.is_file() for path in found):
        return found
    there = {fingerprint: file for file, _, _, fingerprint in manifest(at)[0]["tables"].get(name, ())}
    for path, one in zip(found, wanted, strict=True):
        if not path.is_file() and one["fingerprint"] in there:
            with files.atomic(path, durable=False) as temporary:
                temporary.write_bytes((at / "rows" / name / there[one["fingerprint"]]).read()[0])
    return found


def _changed(out: Path, uri: str, name: str) -> str:
    return (
        f"{out / manifests.NAME}: {uri} no longer holds the rows of {name} that it names; "
        f"check out the manifest of its last run, or run the stage {out.name} again"
    )


def _companion(at: Path) -> Path:
    """Where the wall-clock figures of a stage in a shared folder lie."""
    return at.parent / "timings" / at.name
