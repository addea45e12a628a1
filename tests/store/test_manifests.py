"""Outs whose rows and dumps lie in a shared folder: what DVC sees of them, and what later stages read through it."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from blake3 import blake3

from store import catalogue, dumps, files, sample
from store.dumps import layer_states, layers, read_states, read_table
from store.errors import LocationError, StaleInput, StoreBusy
from store.stage_folders import shared_folders
from store.stage_outputs import dump_files, read_rows, table_files
from store.stage_store import StageStore
from tests.store.test_dumps import LAYERS, layer_table
from tsfmscope.read_only_database import connect


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    return tmp_path / "shared folder"


@pytest.fixture
def out(shared: Path, tmp_path: Path) -> Callable[..., StageStore]:
    """`out()`: the out of a stage whose one table is `training`, or another's, kept in the shared folder."""

    def make(table: str = "training", data: Path = tmp_path / "data", stage: str = "stage") -> StageStore:
        where = shared_folders(shared, stage)
        return StageStore(data / stage, tables=[table], companion=data / "timings" / stage, stage=stage, folders=where)

    return make


def test_the_out_holds_a_manifest_and_the_manifest_every_row(out, record, row, tmp_path, shared) -> None:
    with out() as store:
        store.append([record(key, [row("training", step=n) for n in range(2)]) for key in "ba"])
        store.append([record("c", error={"transient": True})])
        store.finish("abc", {"s": "a"})
        store.write("skipped", [])
    data = tmp_path / "data"
    held = sorted(p.relative_to(data).as_posix() for p in data.rglob("*") if p.is_file() and ".status" not in p.parts)
    assert held == ["stage/manifest.json", "timings/stage/manifest.json"]
    assert [(r["job_key"], r["step"]) for r in read_rows(data / "stage", "training").to_pylist()] == [
        ("a", 0), ("a", 1), ("b", 0), ("b", 1),
    ]  # fmt: skip
    assert read_rows(data / "stage", "failures")["key"].to_pylist() == ["c"]
    assert read_rows(data / "stage", "study_jobs")["job_key"].to_pylist() == ["a"]
    assert read_rows(data / "stage", "skipped").num_rows == 0
    assert read_rows(data / "timings" / "stage", "timings")["key"].to_pylist() == ["a", "b", "c"]
    assert read_rows(data / "timings" / "stage", "runs")["done"].to_pylist() == [2]
    found = json.loads((data / "stage" / "manifest.json").read_text())
    assert found["keys"] == {"count": 2, "blake3": blake3(b"ab").hexdigest()}
    assert found["store"] == str(shared / "stage")
    (one,) = found["tables"]["training"]
    (path,) = table_files(data / "stage", "training")
    assert one == {"bytes": path.stat().st_size, "rows": 4, "fingerprint": blake3(path.read_bytes()).hexdigest()}


def test_the_same_content_gives_the_same_manifest_whatever_came_before(out, record, row, tmp_path) -> None:
    jobs = [record(key, [row("training", loss=ord(key))]) for key in "abc"]
    prints = []
    for history in ("cb", "a"):
        with out() as store:
            store.append([job for job in jobs if job["key"] in store.missing(history)])
            store.finish(history)
        with out() as store:
            store.append([job for job in jobs if job["key"] in store.missing("ab")])
            store.finish("ab")
        prints.append(files.fingerprint(tmp_path / "data" / "stage"))
    assert len(set(prints)) == 1


def test_rows_that_a_later_run_changed_are_named_by_an_older_manifest(out, record, row, tmp_path) -> None:
    with out() as store:
        store.append([record("a", [row("training")])])
        store.finish("a")
    shutil.copytree(tmp_path / "data" / "stage", tmp_path / "old" / "stage")
    with out() as store:
        store.append([record("b", [row("training")])])
        store.finish("ab")
    with pytest.raises(
        LocationError, match=r"no longer contains the rows of training that it names; check out .* run the stage"
    ):
        read_rows(tmp_path / "old" / "stage", "training")
    assert len(read_rows(tmp_path / "data" / "stage", "training")) == 2


def test_a_store_is_not_left_behind_unnoticed(out, record, row, tmp_path) -> None:
    with out() as store:
        store.append([record("a", [row("training")])])
        store.finish("a")
    data = tmp_path / "data"
    with pytest.raises(LocationError, match=r"the rows of stage are at .*, but resources.store requests"):
        StageStore(data / "stage", tables=["training"], companion=data / "c", stage="stage").__enter__()
    with StageStore(data / "other", tables=["training"], companion=data / "c", stage="other") as store:
        store.append([record("a", [row("training")])])
    with pytest.raises(LocationError, match=r"contains rows of \['training'\], but resources.store requests"):
        out(stage="other").__enter__()


def test_rows_are_found_where_their_folders_were_moved(out, record, row, tmp_path, shared) -> None:
    """Out of data/ into a shared folder, and from there into another: no job runs again."""
    data = tmp_path / "data"
    with StageStore(data / "stage", tables=["training"], companion=data / "timings" / "stage", stage="stage") as store:
        store.append([record("a", [row("training")])])
        store.finish("a")
    (shared / "timings").mkdir(parents=True)
    (data / "stage").rename(shared / "stage")
    (data / "timings" / "stage").rename(shared / "timings" / "stage")
    with out() as store:
        assert store.missing("a") == []
        store.finish("a")
    shared.rename(tmp_path / "other")
    for manifest in data.rglob("manifest.json"):
        manifest.unlink()
    where = shared_folders(tmp_path / "other", "stage")
    with StageStore(
        data / "stage", tables=["training"], companion=data / "timings" / "stage", stage="stage", folders=where
    ) as store:
        assert store.missing("a") == []
        store.finish("a")
    assert read_rows(data / "timings" / "stage", "runs")["done"].to_pylist() == [1, 0, 0]


def test_two_checkouts_drive_one_store_one_at_a_time(out, tmp_path) -> None:
    with out(), pytest.raises(StoreBusy, match="stage: another driver holds the store"):
        out(data=tmp_path / "elsewhere").__enter__()


def write(store: StageStore, record, row, key: str, **spec) -> str:
    """An embedding dump of every layer, as a worker elsewhere writes it."""
    job = SimpleNamespace(spec={"model": "m", "dataset": "d", "condition": key, "format": "arrow"} | spec, inputs={})
    tables = [layer_table(*one, dtype=np.float32, types=True) for one in LAYERS]
    facts = pickle.loads(pickle.dumps(store.write_dump))(job, tables)
    store.append([record(key, [row("dumps", condition=key, **facts)])])
    return facts["fingerprint"]


def test_later_stages_read_dumps_through_the_manifest(out, record, row, tmp_path, monkeypatch) -> None:
    with out("dumps", stage="embeddings") as store:
        fingerprint = write(store, record, row, "c")
        store.finish(["c"])
    monkeypatch.chdir(tmp_path)
    path = Path("data/embeddings/dumps/m/d/c.arrow")
    assert not path.exists()
    assert layers(path) == LAYERS
    job = SimpleNamespace(
        spec=dict(zip(("stack", "layer", "normed"), LAYERS[2], strict=True)), inputs={path.as_posix(): fingerprint}
    )
    files.check(tmp_path, job.inputs)
    expected = np.array(layer_table(*LAYERS[2], dtype=np.float32, types=True)["state"].to_pylist(), np.float32)
    np.testing.assert_array_equal(read_states(tmp_path, job)["states"], expected)
    with pytest.raises(ValueError, match=r"dump c.arrow: no \(stack, layer, normed\) \('encoder', 7, False\)"):
        layer_states(path, "encoder", 7, False)
    with pytest.raises(StaleInput, match="expected BLAKE3 other, found"):
        files.check(tmp_path, {path.as_posix(): "other"})
    with pytest.raises(StaleInput, match="found nothing there"):
        files.check(tmp_path, {"data/embeddings/dumps/m/d/x.arrow": "other"})


def test_a_parquet_dump_is_read_whole_with_its_metadata(out, record, row, tmp_path) -> None:
    table = pa.table({"x": [1, 2]}).replace_schema_metadata({"skipped": "{}"})
    with out("dumps", stage="tokens") as store:
        job = SimpleNamespace(spec={"model": "m", "dataset": "d", "condition": "c"}, inputs={})
        facts = store.write_dump(job, [table])
        store.append([record("c", [row("dumps", condition="c", **facts)])])
        store.finish(["c"])
    inputs = {f"data/tokens/{facts['path']}": facts["fingerprint"]}
    got = read_table(tmp_path, SimpleNamespace(spec={}, inputs=inputs))
    assert got.equals(table)
    assert got.schema.metadata == {b"skipped": b"{}"}
    assert dumps.dump_metadata(tmp_path / "data" / "tokens" / facts["path"]) == {b"skipped": b"{}"}


def test_the_catalogue_is_made_of_what_manifests_name(out, record, row, tmp_path) -> None:
    data = tmp_path / "data"
    with out("dumps", stage="embeddings") as store:
        for key in ("c", "c2"):
            write(store, record, row, key)
        store.finish(["c", "c2"])
    sources = {
        "dumps": table_files(data / "embeddings", "dumps"),
        "embeddings": dump_files(data / "embeddings", ".arrow"),
    }
    for name in ("timings", "runs"):
        sources[name] = table_files(data / "timings" / "embeddings", name)
    local = tmp_path / "local"
    with StageStore(local / "e", tables=["dumps"], companion=local / "t", stage="embeddings") as store:
        for key in ("c", "c2"):
            write(store, record, row, key)
        store.finish(["c", "c2"])
    assert sample.embeddings(sources["embeddings"], seed=3).equals(
        sample.embeddings(dump_files(local / "e", ".arrow"), seed=3)
    )
    empty = tmp_path / "sql"
    for folder in ("views", "answers", "checks"):
        (empty / folder).mkdir(parents=True)
    catalogue.build(tmp_path / "results.duckdb", sources, sql=empty)
    with connect(tmp_path / "results.duckdb") as connection:
        for table, least in {"dumps": 2, "timings": 2, "embeddings_sample": 20}.items():
            assert connection.sql(f"select count(*) as n from {table}").to_arrow_table()["n"][0].as_py() >= least
