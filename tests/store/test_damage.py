"""One random bit of a finished run is flipped: the next run has the undisturbed results, or an error names the file."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import store
from store import catalogue, files
from store.errors import StoreError
from store.stage_outputs import dump_files
from store.stage_store import StageStore
from store.table_parts import parquet_files
from tsfmscope.errors import QueryError

KEYS = [f"{n:064d}" for n in range(6)]
TABLES = ("geometry", "dumps", "failures", "datasets", "embeddings_sample")  # the others hold times of this machine
OUTS = ("geometry", "dumps")
Results = dict[str, list[dict[str, Any]]]
Make = Callable[[Path], Results]


@pytest.fixture
def make(row: Callable[..., dict[str, Any]], record: Callable[..., dict[str, Any]]) -> Make:
    """`make(folder)`: run two stages of six jobs each, one of which fails, and the catalogue; the results."""

    def geometry(out: StageStore, n: int, key: str) -> dict[str, Any]:
        if n == 5:
            return record(key, error={}, table="geometry")
        return record(key, [row("geometry", layer=n, zeta=n / 7)], table="geometry")

    def dump(out: StageStore, n: int, key: str) -> dict[str, Any]:
        job = SimpleNamespace(spec={"model": "m", "dataset": "d", "condition": f"c{n}", "format": "arrow"}, inputs={})
        facts = out.write_dump(job, [states(n)])
        return record(key, [row("dumps", condition=f"c{n}", kind="embeddings", **facts)], table="dumps")

    def run(folder: Path) -> Results:
        data = folder / "data"
        for table, answer in zip(OUTS, (geometry, dump), strict=True):
            with StageStore(data / table, tables=[table], companion=data / "timings" / table, stage=table) as out:
                for key in out.missing(KEYS):
                    out.append([answer(out, KEYS.index(key), key)])
                out.finish(KEYS, {"s": KEYS[:1]} if table == "geometry" else {})
        if not (data / "datasets.parquet").exists():  # of a stage that DVC runs as a whole or not at all
            files.write_rows(data / "datasets.parquet", "datasets", [row("datasets")])
        sources: dict[str, Any] = {name: parquet_files(data / name / name) for name in OUTS}
        sources["study_jobs"] = parquet_files(data / "geometry" / "study_jobs")
        sources["failures"] = [path for name in OUTS for path in parquet_files(data / name / "failures")]
        sources |= {"datasets": [data / "datasets.parquet"], "embeddings": dump_files(data / "dumps", ".arrow")}
        for name in ("timings", "runs"):
            sources[name] = [path for out in OUTS for path in parquet_files(data / "timings" / out / name)]
        catalogue.build(data / "results.duckdb", sources, sql=no_views(folder / "sql"))
        return results(data / "results.duckdb")

    return run


def no_views(folder: Path) -> Path:
    """No view and no check: a second of a build that reads no file."""
    for name in ("views", "answers", "checks"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    return folder


def states(n: int) -> pa.Table:
    """One layer of an embedding dump."""
    state = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(40, dtype=np.float32) + n), 4)
    fixed = {"stack": ["encoder"] * 10, "layer": [1] * 10, "normed": [True] * 10, "series": ["s"] * 10}
    numbers = {"token": range(10), "origin": [0] * 10, "position": range(10), "kind": [0] * 10}
    return pa.table(fixed | {name: list(of) for name, of in numbers.items()} | {"type": [None] * 10, "state": state})


def results(path: Path) -> Results:
    """All rows of the tables, in their order, but for moments."""
    with store.open(path) as connection:
        return {name: connection.sql(f"select * from {name}").to_arrow_table().to_pylist() for name in TABLES}


def kinds(data: Path) -> Iterator[tuple[str, list[Path]]]:
    """Files of each kind, by what they hold."""
    yield "rows", sorted(path for name in OUTS for path in (data / name / name).glob("*.parquet"))
    yield "failures", sorted(data.glob("*/failures/*.parquet"))
    yield "study_jobs", sorted(data.glob("*/study_jobs/*.parquet"))
    yield "activations", sorted(data.rglob("*.arrow"))
    yield "wall clock", sorted((data / "timings").rglob("*.parquet"))
    yield "data sets", [data / "datasets.parquet"]


def flip(path: Path, draw: random.Random, *, quietly: bool) -> None:
    """Flip one bit in place. quietly: the time of change stays, as where a disk and not a program does it."""
    before = path.stat()
    with path.open("r+b") as file:
        place = draw.randrange(before.st_size)
        file.seek(place)
        byte = file.read(1)[0] ^ 1 << draw.randrange(8)
        file.seek(place)
        file.write(bytes([byte]))
    if quietly:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def attempted(what: Callable[[], Results]) -> tuple[Results | None, str]:
    """Results, or the text of the error in their place."""
    try:
        return what(), ""
    except (StoreError, QueryError, duckdb.Error) as error:
        return None, str(error)


@pytest.mark.parametrize(
    "seeds", [range(6), pytest.param(range(6, 42), marks=[pytest.mark.slow, pytest.mark.long])], ids=str
)
def test_a_flipped_bit_never_gives_other_results(make: Make, tmp_path: Path, seeds: range) -> None:
    pristine = tmp_path / "pristine"
    expected = make(pristine)
    assert expected["geometry"] and expected["embeddings_sample"] and expected["failures"]
    made_again = 0
    for seed in seeds:
        draw, copy = random.Random(seed), tmp_path / f"seed-{seed}"
        shutil.copytree(pristine, copy)
        named = list(kinds(copy / "data"))
        kind, paths = named[seed % len(named)]
        damaged = draw.choice(paths)
        flip(damaged, draw, quietly=bool(seed % 2))
        found, said = attempted(lambda folder=copy: make(folder))
        assert found == expected or str(damaged) in said, f"seed {seed}: {kind}: {damaged}: {said}"
        made_again += found is not None
        shutil.rmtree(copy)
    assert made_again > len(seeds) / 2  # all but the files that no store reuses


def read_all(data: Path, path: Path) -> None:
    """Read every file of the run, as the stage `tables` does: first the dumps, then the rows."""
    dump_files(data / "dumps", ".arrow")
    rows = [path for _, found in kinds(data) for path in found if path.suffix == ".parquet"]
    catalogue.build(path, {"geometry": rows}, sql=no_views(data.parent / "sql"))


def test_the_catalogue_refuses_a_damaged_file_of_every_kind(make: Make, tmp_path: Path) -> None:
    """Where DVC sees no change, no stage runs again: what reads the file must notice."""
    make(tmp_path)
    data = tmp_path / "data"
    for kind, paths in kinds(data):
        content = paths[0].read_bytes()
        flip(paths[0], random.Random(kind), quietly=False)
        with pytest.raises(StoreError, match=str(paths[0])):
            read_all(data, tmp_path / "other.duckdb")
        paths[0].write_bytes(content)


def test_a_flipped_bit_of_the_database_gives_its_rows_or_an_error_of_duckdb_seeds_0_to_19(
    make: Make, tmp_path: Path
) -> None:
    """DuckDB keeps a checksum of every block."""
    expected = make(tmp_path)
    path, sound = tmp_path / "data" / "results.duckdb", (tmp_path / "data" / "results.duckdb").read_bytes()
    for seed in range(20):
        flip(path, random.Random(seed), quietly=True)
        found, said = attempted(lambda: results(path))
        assert found == expected or "results.duckdb" in said or "checksum" in said, f"seed {seed}"
        path.write_bytes(sound)


def test_a_dump_that_is_gone_is_named(make: Make, tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "data/dumps/dumps/m/d/c1.arrow").unlink()
    with pytest.raises(StoreError, match=r"c1\.arrow: damaged: expected BLAKE3 \w+, found no such file"):
        dump_files(tmp_path / "data/dumps", ".arrow")
