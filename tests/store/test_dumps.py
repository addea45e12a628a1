from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from blake3 import blake3

from store import dumps

STACKS = pa.array(["encoder", "decoder"])  # an Arrow file has one dictionary a column
LAYERS = [("encoder", 0, False), ("encoder", 1, False), ("encoder", 1, True), ("decoder", 0, False)]


def layer_table(stack: str, layer: int, normed: bool, *, dtype: type, types: bool, n: int = 6, d: int = 3) -> pa.Table:
    generator = np.random.default_rng(layer + 10 * normed + 100 * (stack == "decoder"))
    flat = pa.array(generator.normal(size=n * d).astype(dtype))
    return pa.table(
        {
            "stack": pa.DictionaryArray.from_arrays(pa.array([stack == "decoder"] * n).cast(pa.int8()), STACKS),
            "layer": pa.array([layer] * n, pa.int16()),
            "normed": [normed] * n,
            "token": pa.array(range(n), pa.int64()),
            "series": pa.array([f"s{i // 2}" for i in range(n)]).dictionary_encode(),
            "origin": pa.array([9] * n, pa.int64()),
            "position": pa.array(range(n), pa.int32()),
            "kind": pa.array([0] * n, pa.int8()),
            "type": pa.array([i % 4 for i in range(n)] if types else [None] * n, pa.int32()),
            "state": pa.FixedSizeListArray.from_arrays(flat, d),
        }
    )


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("types", [True, False])
@pytest.mark.parametrize("wanted", LAYERS)
def test_states_of_one_layer_come_back_as_written(tmp_path: Path, dtype: type, types: bool, wanted: tuple) -> None:
    tables = {name: layer_table(*name, dtype=dtype, types=types) for name in LAYERS}
    facts = dumps.write_dump(tmp_path / "data" / "embeddings", "dumps/m/d/c.arrow", iter(tables.values()))
    path = "data/embeddings/" + facts["path"]
    job = SimpleNamespace(
        spec=dict(zip(("stack", "layer", "normed"), wanted, strict=True)), inputs={path: "x", "model:m": "y"}
    )
    got = dumps.read_states(tmp_path, job)
    expected = np.array(tables[wanted]["state"].to_pylist(), np.float32)
    assert got["states"].dtype == np.float32
    np.testing.assert_array_equal(got["states"], expected)
    assert got["states_dtype"] == np.dtype(dtype).name
    assert got["n_series"] == 3
    assert got["series"].tolist() == ["s0", "s0", "s1", "s1", "s2", "s2"]
    assert (got["types"] is None) == (not types)
    assert not types or got["types"].tolist() == [0, 1, 2, 3, 0, 1]
    assert got["position"].tolist() == list(range(6))


def test_states_of_float32_are_mapped_and_nobody_can_write_into_the_file(tmp_path: Path) -> None:
    facts = dumps.write_dump(
        tmp_path, "dumps/m/d/c.arrow", [layer_table(*LAYERS[0], dtype=np.float32, types=False, n=4000, d=64)]
    )
    before = pa.total_allocated_bytes()
    states = dumps.layer_states(tmp_path / facts["path"], *LAYERS[0])["states"]
    assert pa.total_allocated_bytes() - before < states.nbytes / 4
    assert not states.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        states[0, 0] = 1


def test_a_dump_that_was_cut_off_is_no_dump(tmp_path: Path) -> None:
    facts = dumps.write_dump(tmp_path, "dumps/m/d/c.arrow", [layer_table(*LAYERS[0], dtype=np.float32, types=False)])
    path = tmp_path / facts["path"]
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(pa.ArrowInvalid, match="Not an Arrow file"):
        dumps.layers(path)


def test_a_dump_says_its_rows_bytes_and_fingerprint_and_has_a_row_group_a_table(tmp_path: Path) -> None:
    facts = dumps.write_dump(tmp_path, "dumps/m/d/c.parquet", [pa.table({"x": [1, 2]}), pa.table({"x": [3]})])
    content = (tmp_path / facts["path"]).read_bytes()
    assert facts == {
        "path": "dumps/m/d/c.parquet",
        "rows": 3,
        "bytes": len(content),
        "fingerprint": blake3(content).hexdigest(),
    }
    assert pq.read_metadata(tmp_path / facts["path"]).num_row_groups == 2


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_a_dump_keeps_the_metadata_of_its_schema(tmp_path: Path, suffix: str) -> None:
    table = pa.table({"x": [1, 2, 3]}).replace_schema_metadata({"shape": "2,3"})
    facts = dumps.write_dump(tmp_path, f"dumps/d/series.{suffix}", [table])
    job = SimpleNamespace(spec={}, inputs={facts["path"]: "x", "param:seed": "1"})
    assert dumps.read_table(tmp_path, job).equals(table, check_metadata=True)
    assert dumps.dump_metadata(tmp_path / facts["path"]) == {b"shape": b"2,3"}


def test_writing_a_dump_again_replaces_the_file_and_spares_a_linked_cache(tmp_path: Path) -> None:
    first = dumps.write_dump(tmp_path, "dumps/m/d/c.parquet", [pa.table({"x": [1]})])
    os.link(tmp_path / first["path"], tmp_path / "cache")
    second = dumps.write_dump(tmp_path, "dumps/m/d/c.parquet", [pa.table({"x": [2]})])
    assert blake3((tmp_path / "cache").read_bytes()).hexdigest() == first["fingerprint"] != second["fingerprint"]
    assert sorted(p.name for p in (tmp_path / "dumps" / "m" / "d").iterdir()) == ["c.parquet"]


def test_a_dump_that_fails_half_way_leaves_the_former_one(tmp_path: Path) -> None:
    def failing():
        yield pa.table({"x": [2]})
        raise RuntimeError("model died")

    first = dumps.write_dump(tmp_path, "dumps/m/d/c.parquet", [pa.table({"x": [1]})])
    with pytest.raises(RuntimeError, match="model died"):
        dumps.write_dump(tmp_path, "dumps/m/d/c.parquet", failing())
    assert blake3((tmp_path / first["path"]).read_bytes()).hexdigest() == first["fingerprint"]


def test_a_dump_of_no_tables_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="got no tables, expected at least one"):
        dumps.write_dump(tmp_path, "dumps/m/d/c.parquet", [])


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"model": "t5@absorbed-0.25", "dataset": "d", "condition": "c512"}, "dumps/t5@absorbed-0.25/d/c512.parquet"),
        ({"model": "m", "dataset": "d", "condition": "noise=0.1+c8", "layer": 3}, "dumps/m/d/noise=0.1+c8.parquet"),
        ({"model": "m", "dataset": "d", "condition": "c", "format": "arrow"}, "dumps/m/d/c.arrow"),
        ({"dataset": "d", "shard": 7, "format": "parquet"}, "dumps/d/000007.parquet"),
        ({"dataset": "d", "shard": 1234567, "format": "arrow", "model": None}, "dumps/d/1234567.arrow"),
    ],
)
def test_a_spec_gives_the_path(spec: dict, path: str) -> None:
    assert dumps.dump_path(spec) == path


@pytest.mark.parametrize("name", ["..", ".", "a/b", "../x", "", ".tmp-1", "a b", "a\n", "é", "a\\b", "~/x"])
def test_names_that_could_leave_the_folder_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be part of a path"):
        dumps.dump_path({"model": name, "dataset": "d", "condition": "c"})


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_a_shard_is_written_table_by_table_and_read_back(tmp_path: Path, suffix: str) -> None:
    tables = [pa.table({"id": [f"{n}"], "target": [np.arange(n, dtype=np.float32)]}) for n in range(4)]
    facts = dumps.write_dump(tmp_path, f"dumps/d/000000.{suffix}", iter(tables))
    again = dumps.write_dump(tmp_path, f"dumps/d/000000.{suffix}", iter(tables))
    path = tmp_path / facts["path"]
    found = pq.read_table(path) if suffix == "parquet" else pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    assert found.equals(pa.concat_tables(tables))
    assert facts == again
    assert facts["bytes"] == path.stat().st_size


def test_a_layer_that_is_not_in_the_dump_is_answered_with_those_that_are(tmp_path: Path) -> None:
    dumps.write_dump(tmp_path, "dumps/m/d/c.arrow", [layer_table(*LAYERS[0], dtype=np.float32, types=False)])
    job = SimpleNamespace(spec={"stack": "encoder", "layer": 7, "normed": False}, inputs={"dumps/m/d/c.arrow": "x"})
    with pytest.raises(ValueError, match=r"no \(stack, layer, normed\) \('encoder', 7, False\), expected one of"):
        dumps.read_states(tmp_path, job)


def test_the_last_state_of_a_stack_is_the_normed_one_where_there_is_one(tmp_path: Path) -> None:
    tables = [layer_table(*name, dtype=np.float32, types=False) for name in [*LAYERS, ("decoder", 1, False)]]
    facts = dumps.write_dump(tmp_path, "dumps/m/d/c.arrow", tables)
    found = dumps.last_layers(dumps.layers(tmp_path / facts["path"]))
    assert found == {("encoder", 1, True), ("decoder", 1, False)}


@pytest.mark.parametrize(
    "inputs", [{}, {"a.parquet": "1", "b.parquet": "2"}, {"a.parquet": "1", "b.arrow": "2"}, {"hub:x.parquet": "1"}]
)
def test_a_job_reads_one_dump(tmp_path: Path, inputs: dict) -> None:
    with pytest.raises(ValueError, match="values to unpack"):
        dumps.read_table(tmp_path, SimpleNamespace(spec={}, inputs=inputs))
