"""The store of a stage: rows of jobs, failures, dumps and the record of the run."""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import pickle
import traceback
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store import files, table_parts
from store.errors import DamagedPart
from store.stage_outputs import summarize_error, timing_row
from store.stage_store import StageStore


def spoilt(content: bytes, column: str) -> bytes:
    """A Parquet file with one bit of the last page of a column flipped."""
    group = pq.read_metadata(io.BytesIO(content)).row_group(0)
    (chunk,) = [c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == column]
    data = bytearray(content)
    data[(chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size - 2] ^= 1
    return bytes(data)


def read(folder: Path) -> list[dict]:
    return pa.concat_tables([pq.read_table(p) for p in sorted(folder.glob("*.parquet"))]).to_pylist()


def test_a_stored_job_is_not_missing_and_order_is_kept(out, record, row) -> None:
    with out() as store:
        assert store.missing(["c", "a", "b"]) == ["c", "a", "b"]
        store.append([record("a", [row("training")])])
        assert store.missing(["c", "a", "b"]) == ["c", "b"]
    with out() as store:
        assert store.missing(["c", "a", "b"]) == ["c", "b"]


@pytest.mark.parametrize(
    ("transient", "retry", "expected"), [(False, False, []), (False, True, ["a"]), (True, False, ["a"])]
)
def test_failures_are_done_unless_transient_or_asked_for(out, record, transient, retry, expected) -> None:
    with out() as store:
        store.append([record("a", error={"transient": transient})])
        assert store.missing(["a"], retry_failed=retry) == expected
    with out() as store:
        assert store.missing(["a"], retry_failed=retry) == expected


def test_a_success_ends_earlier_failures_and_a_later_failure_replaces_an_earlier(out, record, row) -> None:
    with out() as store:
        store.append([record("a", error={"transient": True}), record("b", error={"message": "first"})])
        store.append([record("a", [row("training")]), record("b", error={"message": "second"})])
        assert store.failed()["message"].to_pylist() == ["second"]
        assert store.finish(["a", "b"]) == {"jobs": 2, "done": 1, "failed": 1, "reused": 0}
        assert [(f["key"], f["message"]) for f in read(store.root / "failures")] == [("b", "second")]
        assert [t["key"] for t in read(store.companion / "timings")] == ["a", "b"]


def test_rows_that_do_not_fit_fail_their_job_and_no_other(out, record, row) -> None:
    with out() as store:
        store.append([record("a", [row("training", stepp=1)]), record("b", [row("training")])])
        assert store.missing(["a", "b"], retry_failed=True) == ["a"]
        assert "unknown columns ['stepp']" in store.failed()["message"][0].as_py()


def test_rows_that_do_not_fit_stop_no_append_where_they_are_all_there_is(out, record, row) -> None:
    with out() as store:
        store.append([record("a", [row("training", stepp=1)])])
        assert store.failed()["error"].to_pylist() == ["SchemaError"]


def test_a_part_whose_keys_are_spoilt_behind_a_sound_footer_is_set_aside_at_opening(out, record, row) -> None:
    with out() as store:
        store.append([record("a", [row("training")])])
        store.append([record("b", [row("training")])])
        part = store.tables["training"].files()[0]
    part.write_bytes(spoilt(part.read_bytes(), "job_key"))
    with out() as store:
        assert store.missing(["a", "b"]) == ["a"]
        assert [p.name for p in (store.status / "damaged/training").iterdir()] == ["training-part-00000000.damaged"]


def test_records_handed_over_twice_are_stored_once(out, record, row) -> None:
    with out() as store:
        store.append([record("a", [row("training")])])
        store.append([record("a", [row("training")]), record("b", [row("training")])])
        store.finish(["a", "b"])
        assert [r["job_key"] for r in read(store.root / "training")] == ["a", "b"]


def test_rows_stand_once_where_the_merge_after_them_fails(out, record, row, monkeypatch) -> None:
    """With EIO, as network file systems have it; the engine then hands the same records over again."""
    monkeypatch.setattr(table_parts, "MANY", 2)
    replace = os.replace

    def failing(source: Path, target: Path) -> None:
        if Path(source).name.startswith(".merged-"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        replace(source, target)

    with out() as store:
        for key in "ab":
            store.adopt("training", key, [row("training")])
        monkeypatch.setattr(os, "replace", failing)
        with pytest.raises(OSError, match="Input/output error"):
            store.append([record("c", [row("training")])])
        monkeypatch.setattr(os, "replace", replace)
        store.append([record("c", [row("training")]), record("d", [row("training")])])
        store.finish("abcd")
        assert [r["job_key"] for r in read(store.root / "training")] == list("abcd")


def test_finish_prunes_what_is_not_current_and_writes_studies_and_the_run(out, record, row) -> None:
    with out() as store:
        store.append([record(key, [row("training")]) for key in "abc"])
        store.finish("abc", {"one": "baa"}, {"seed": 7, "cpus": 2})
    with out() as store:
        counts = store.finish("ab", {"two": "a"})
        assert counts == {"jobs": 2, "done": 0, "failed": 0, "reused": 2}
        assert [r["job_key"] for r in read(store.root / "training")] == ["a", "b"]
        assert [t["key"] for t in read(store.companion / "timings")] == ["a", "b"]
        assert read(store.root / "study_jobs") == [{"study": "two", "stage": "training", "job_key": "a"}]
        first, second = read(store.companion / "runs")
    assert (first["done"], first["seed"], first["cpus"], second["reused"]) == (3, 7, 2, 2)
    assert '"pyarrow"' in first["versions"]


def test_nothing_but_tables_is_left_in_the_out(out, record, row) -> None:
    with out() as store:
        store.append([record("a", [row("training")])])
        store.finish(["a"])
        left = sorted(p.relative_to(store.root).as_posix() for p in store.root.rglob("*") if p.is_file())
    assert left == ["failures/00000.parquet", "study_jobs/00000.parquet", "training/00000.parquet"]


steps = st.lists(
    st.sampled_from(["abcdefghij"[n] for n in range(10)]) | st.sampled_from(["finish", "reopen"]), max_size=12
)


@settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=steps, extra=st.booleans())
def test_the_same_content_gives_the_same_bytes_whatever_came_before(
    tmp_path_factory, out, record, row, steps: list[str], extra: bool
) -> None:
    """Jobs in any order, failures first, runs cut off or finished early with other current keys: one fingerprint."""
    wanted = "bdfh"

    def job(key: str) -> dict:
        return record(key, [row("training", step=n, loss=ord(key) + n) for n in range(3)])

    prints = set()
    for history in ([], steps):
        folder = tmp_path_factory.mktemp("run")
        store = out(folder=folder).__enter__()
        for step in history:
            if step == "finish":
                store.finish("abcdef")
            elif step == "reopen":
                store.__exit__(None, None, None)
                store = out(folder=folder).__enter__()
            elif store.missing([step]):
                store.append([record(step, error={"transient": True})] if extra else [])
                store.append([job(step)])
        store.append([job(key) for key in store.missing(wanted)])
        store.finish(wanted, {"s": wanted})
        store.__exit__(None, None, None)
        prints.add(files.fingerprint(store.root))
    assert len(prints) == 1


def test_a_damaged_part_costs_its_jobs_only(out, record, row, caplog: pytest.LogCaptureFixture) -> None:
    with out() as store:
        store.append([record("a", [row("training")])])
        store.append([record("b", [row("training")])])
        part = sorted((store.root / "training").glob("part-*"))[0]
    part.write_bytes(part.read_bytes()[:-10])
    with out() as store:
        assert "part-00000000" in caplog.text
        assert store.missing(["a", "b"]) == ["a"]
        assert (store.status / "damaged" / "training" / "training-part-00000000.damaged").exists()


def test_a_part_that_rots_while_the_stage_runs_is_named_at_its_end(out, record, row) -> None:
    with out() as store:
        store.append([record("a", [row("training", step=n) for n in range(2000)])])
        store.append([record("b", [row("training")])])
        part = sorted((store.root / "training").glob("part-*"))[0]
        content = bytearray(part.read_bytes())
        content[400] ^= 0xFF
        part.write_bytes(content)
        with pytest.raises(DamagedPart, match=r"quarantined: .*part-00000000\.damaged; run the stage again"):
            store.finish(["a", "b"])
    with out() as store:
        assert store.missing(["a", "b"]) == ["a"]


def dump(store: StageStore, record, row, key: str, condition: str, values: list[int]) -> Path:
    job = SimpleNamespace(spec={"model": "m", "dataset": "d", "condition": condition}, inputs={})
    write = pickle.loads(pickle.dumps(store.write_dump))
    facts = write(job, [pa.table({"x": values})])
    store.append([record(key, [row("dumps", condition=condition, **facts)], table="embeddings")])
    return store.root / facts["path"]


def test_dumps_that_are_gone_or_damaged_are_named_and_made_again(out, record, row, caplog) -> None:
    with out("dumps") as store:
        gone, torn, whole = (dump(store, record, row, key, key, [1, 2]) for key in ("a", "b", "c"))
        gone.unlink()
        torn.write_bytes(torn.read_bytes()[:-1])
        with caplog.at_level(logging.WARNING):
            assert store.missing(["a", "b", "c"]) == ["a", "b"]
        assert f"dump {gone} is gone" in caplog.text
        assert f"dump {torn} is damaged" in caplog.text
        assert store.tables["dumps"].keys() == {"c"}
        dump(store, record, row, "a", "a", [1, 2])
        assert store.missing(["a", "b", "c"]) == ["b"]
    assert whole.exists()


def test_a_dump_of_the_right_size_with_other_bytes_is_damaged(out, record, row) -> None:
    with out("dumps") as store:
        path = dump(store, record, row, "a", "a", [1, 2])
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content)
    with out("dumps") as store:
        assert store.missing(["a"]) == ["a"]


def test_finish_deletes_dumps_that_no_row_names_but_not_the_rows_beside_them(out, record, row) -> None:
    with out("dumps") as store:
        dump(store, record, row, "a", "keep", [1])
        dump(store, record, row, "b", "drop", [2])
        store.write_dump(
            SimpleNamespace(spec={"dataset": "orphan", "shard": 0, "format": "parquet"}), [pa.table({"x": [3]})]
        )
        store.finish(["a"])
        left = sorted(p.relative_to(store.root).as_posix() for p in (store.root / "dumps").rglob("*") if p.is_file())
        assert left == ["dumps/00000.parquet", "dumps/m/d/keep.parquet"]
        assert not (store.root / "dumps" / "orphan").exists()


def test_temporary_files_of_killed_workers_are_swept_at_the_start(out) -> None:
    with out("dumps") as store:
        root = store.root
    left = root / "dumps" / "m" / ".tmp-1-abcd-c.parquet"
    left.parent.mkdir(parents=True)
    left.write_text("half")
    with out("dumps"):
        assert not left.exists()


def test_rows_linked_into_a_cache_are_never_written_into(out, record, row, tmp_path: Path) -> None:
    with out() as store:
        store.append([record("a", [row("training")])])
        store.finish(["a"])
    os.link(store.root / "training" / "00000.parquet", tmp_path / "cache")
    (tmp_path / "cache").chmod(0o444)
    before = (tmp_path / "cache").read_bytes()
    with out() as store:
        store.append([record("b", [row("training")])])
        store.finish(["b"])
    assert (tmp_path / "cache").read_bytes() == before


def test_an_out_of_several_tables_asks_which(tmp_path: Path, record, row) -> None:
    with StageStore(tmp_path / "o", tables=["training", "skill"], companion=tmp_path / "c", stage="s") as store:
        store.append([record("a", [row("training")])])
        assert store.missing(["a"]) == []


@pytest.mark.parametrize(
    ("spec", "subject"),
    [
        ({"model": "m"}, "m"),
        ({"model": "m@half", "base_model": "m"}, "m"),
        ({"model": "m", "base_model": None}, "m"),
        ({"experiment": "sketch"}, "sketch"),
        ({}, "measure"),
    ],
)
def test_a_timing_says_what_its_job_was_about(record, spec: dict[str, str | None], subject: str) -> None:
    row = timing_row("stage", record("k", [{}]) | {"task": "measure", "spec": json.dumps(spec)})
    assert (row["task"], row["subject"]) == ("measure", subject)


def raised(error: Exception) -> str:
    try:
        assert isinstance(error, KeyError), error.args or None
        raise error
    except Exception as caught:
        return "".join(traceback.format_exception(caught))


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("no such file", "no such file"),
        ("\n  first \nsecond", "first"),
        (
            "Validation error for field 'num_heads':\n    got 'four'\n  see there",
            "Validation error for field 'num_heads': got 'four'",
        ),
        ("ends in a colon:", "ends in a colon:"),
    ],
)
def test_it_is_the_first_line_of_the_message_and_what_a_colon_promises(message: str, line: str) -> None:
    assert summarize_error(message, "whatever") == line


def test_an_error_without_a_word_is_told_by_the_code_that_raised_it() -> None:
    assert summarize_error("", raised(ValueError())) == "at `assert isinstance(error, KeyError), error.args or None`"
    assert summarize_error("", "") == ""
