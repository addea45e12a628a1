"""Commands that read results: sql, tables, status, failures."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from store.lock import Lock
from store.saved_results import LEFT_OUT
from store.stage_store import StageStore
from store.status import Status, write_status
from tests.store.conftest import build_results, valid_row
from tsfmscope.cli.app import app


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalogue with one row of `training`."""
    return build_results(tmp_path_factory.mktemp("results"), {"training": [valid_row("training") | {"job_key": "k"}]})


def run(*arguments: str | Path, given: bytes | None = None) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `tsfmscope ARGUMENTS`, in this process."""
    done = CliRunner().invoke(app, list(map(str, arguments)), input=given, catch_exceptions=False)
    return done.exit_code, done.stdout, done.stderr


def test_the_help_of_save_results_names_the_tables_that_it_leaves_out() -> None:
    shown = " ".join(run("save-results", "--help")[1].split())
    assert all(name in shown for name in LEFT_OUT)


class TestSql:
    def test_a_query_is_answered_in_a_table_in_csv_and_in_json(self, database: Path) -> None:
        code, shown, complaint = run("sql", "select model, loss, [1] as list from training", "--results", database)
        assert (code, complaint) == (0, "")
        assert "loss" in shown
        assert "[1]" in shown
        assert shown.rstrip().endswith("1 row")
        ask = ("sql", "--results", database, "select model, loss from training")
        assert run(*ask, "--format", "csv") == (0, "model,loss\nm,2.0\n", "")
        for form in (["--json"], ["--format", "json"]):
            assert json.loads(run(*ask, *form)[1]) == [{"model": "m", "loss": 2.0}]

    def test_the_command_reads_and_cannot_write(self, database: Path, tmp_path: Path) -> None:
        for statement in (f"copy (select 1) to '{tmp_path}/x.csv'", "delete from training"):
            assert run("sql", statement, "--results", database)[0] == 2
        assert list(tmp_path.iterdir()) == []
        count = ("sql", "select count(*) as n from training", "--results", database, "--format", "csv")
        assert run(*count)[1] == "n\n1\n"

    def test_a_sql_file_and_standard_input_are_answered_statement_by_statement(
        self, database: Path, tmp_path: Path
    ) -> None:
        file = tmp_path / "question.sql"
        file.write_text("-- two\nselect 1 as a; select 2 as b;\n")
        expected = (0, "a\n1\nb\n2\n", "")
        assert run("sql", file, "--results", database, "--format", "csv") == expected
        for argument in (["-"], []):
            given = file.read_bytes()
            assert run("sql", *argument, "--results", database, "--format", "csv", given=given) == expected
        assert run("sql", tmp_path / "none.sql", "--results", database)[0] == 2

    def test_on_a_terminal_without_a_statement_the_help_names_duckdb_s_own_prompt(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("stages.commands.results.stdin_is_terminal", lambda: True)
        code, shown, _ = run("sql")
        assert code == 0
        assert "duckdb -readonly data/results.duckdb" in shown

    @pytest.mark.timeout(20)
    def test_sql_that_is_no_text_or_no_regular_file_is_one_line(self, database: Path, tmp_path: Path) -> None:
        code, out, error = run("sql", "-", "--results", database, given=b"select '\xff'")
        assert (code, out, error.count("\n")) == (2, "", 1)
        assert "standard input: expected SQL in UTF-8" in error
        os.mkfifo(tmp_path / "pipe.sql")
        (tmp_path / "zero.sql").symlink_to("/dev/zero")
        for name in ("pipe.sql", "zero.sql"):
            code, out, error = run("sql", tmp_path / name, "--results", database)
            assert (code, out) == (2, "")
            assert "expected a regular file" in error

    @pytest.mark.parametrize("form", ["parquet", "csv", "json"])
    def test_rows_go_into_a_file_that_is_never_overwritten(self, database: Path, tmp_path: Path, form: str) -> None:
        out, sql = tmp_path / "rows", "select model, loss from training"
        assert run("sql", sql, "--results", database, "--format", form, "--out", out)[0] == 0
        read = {"parquet": pd.read_parquet, "csv": pd.read_csv, "json": pd.read_json}[form]
        assert read(out).to_dict("records") == [{"model": "m", "loss": 2.0}]
        code, _, complaint = run("sql", "select 3", "--results", database, "--out", out)
        assert code == 2 and "the file exists" in complaint
        assert [path.name for path in tmp_path.iterdir()] == ["rows"]

    @pytest.mark.parametrize(
        ("statement", "text"),
        [
            ("select los from training", '"loss"'),
            ("copy training to 'x.csv'", "disabled"),
            ("select 1; select 2", "got 2 statements, expected one"),
        ],
    )
    def test_it_ends_with_2_and_the_reason(self, database: Path, statement: str, text: str) -> None:
        code, shown, complaint = run("sql", statement, "--results", database, "--json")
        assert (code, shown) == (2, "")
        assert text in complaint

    def test_a_missing_database_is_named(self, tmp_path: Path) -> None:
        code, shown, complaint = run("sql", "select 1", "--results", tmp_path / "none.duckdb")
        assert (code, shown) == (2, "")
        assert complaint.startswith("tsfmscope: no database at")


class TestTables:
    def test_columns_have_their_meaning_and_source(self) -> None:
        _, shown, _ = run("tables", "geometry")
        assert "inter-token cosine" in shown
        assert "Shelim et al. 2025, eq. 1" in shown
        code, _, complaint = run("tables", "geometri")
        assert code == 2 and "near: geometry" in complaint

    def test_json_holds_every_table(self) -> None:
        tables = json.loads(run("tables", "--json")[1])
        by_name = {table["name"]: table for table in tables}
        assert {"geometry", "spectra", "forecasts"} <= by_name.keys()
        assert {"column", "type", "unit", "meaning", "source"} <= by_name["geometry"]["columns"][0].keys()

    def test_a_view_is_shown_with_its_question_and_columns(self, database: Path) -> None:
        _, shown, _ = run("tables", "flow_of_ranks", "--results", database)
        assert "flow_of_ranks: How does the numerical rank" in shown
        assert "singular values above epsilon of the largest [dimensions] (Yu et al. 2026, eq. 1)" in shown
        (view,) = json.loads(run("tables", "flow_of_ranks", "--results", database, "--json")[1])
        assert view["kind"] == "view" and view["meaning"].startswith("How does")
        (stored,) = json.loads(run("tables", "correlation_blocks", "--results", database, "--json")[1])
        assert stored["kind"] == "table" and stored["meaning"].startswith("In each block")

    def test_an_unknown_view_gives_near_names(self, database: Path) -> None:
        code, _, complaint = run("tables", "flow_of_rank", "--results", database)
        assert code == 2 and "near: flow_of_ranks" in complaint

    @pytest.mark.parametrize("view", ["flow_of_ranks", "last_layer"])
    def test_a_view_is_described_without_results_too(self, database: Path, tmp_path: Path, view: str) -> None:
        with_results = run("tables", view, "--results", database, "--json")
        assert with_results[0] == 0
        assert run("tables", view, "--results", tmp_path / "none.duckdb", "--json") == with_results


def test_status_counts_the_jobs_of_a_running_stage(tmp_path: Path) -> None:
    folder = tmp_path / ".status"
    folder.mkdir()
    lock = Lock(folder / "geometry.lock")
    lock.acquire()
    counts = {"planned": 100, "done": 30, "failed": 7, "running": 4, "reused": 23, "passed_over": 3}
    write_status(Status("geometry", **counts, started=1006.0, updated=1080.0), folder=folder)
    _, shown, _ = run("status", "--data", tmp_path)
    row = json.loads(run("status", "--data", tmp_path, "--json")[1])
    lock.release()
    (line,) = [line for line in shown.splitlines() if "geometry" in line]
    assert line.split() == ["geometry", "running", "100", "20", "30", "4", "10", "40", "0.5", "0:01:20"]
    assert row == [
        {"stage": "geometry", "state": "running", "planned": 100, "reused": 20, "done": 30, "running": 4, "failed": 10,
         "left": 40, "jobs_per_second": 0.5, "seconds_left": 80.0}
    ]  # fmt: skip
    code, _, complaint = run("status", "--data", tmp_path / "none")
    assert code == 2
    assert "no stage that runs jobs has run here yet" in complaint
    (folder / "geometry.json").write_text("{}")
    code, _, complaint = run("status", "--data", tmp_path)
    assert code == 1 and "not a status that this version writes" in complaint


def test_failures_are_read_from_the_outs_also_where_the_pipeline_ended_with_them(tmp_path: Path) -> None:
    data, empty = tmp_path / "data", tmp_path / "clean"
    with StageStore(data / "heads", tables=["training"], companion=tmp_path / "c", stage="heads") as out:
        out.append([failed("a", type="KeyError", message="no 'x'\nnor 'y'", traceback="line 7")])
        out.append([failed("a", type="ValueError", message="of the last attempt")])
        out.append([failed("b", type="ValueError", message="one\ntwo", traceback="line 9")])
    shown = json.loads(run("failures", "--data", data, "--json")[1])
    assert [(one["stage"], one["error"], one["message"]) for one in shown] == [
        ("heads", "ValueError", "of the last attempt"),
        ("heads", "ValueError", "one"),
    ]
    assert list(shown[0]) == ["stage", "task", "error", "message", "spec"]
    shown = json.loads(run("failures", "--data", data, "--full", "--json")[1])
    assert [(one["message"], one["traceback"]) for one in shown][1] == ("one\ntwo", "line 9")
    with StageStore(empty / "heads", tables=["training"], companion=tmp_path / "c", stage="heads"):
        pass
    code, text, _ = run("failures", "--data", empty)
    assert (code, text.splitlines()[-1]) == (0, "0 rows")
    assert json.loads(run("failures", "--data", empty, "--json")[1]) == []


def failed(key: str, **error: Any) -> dict[str, Any]:
    """What the engine hands to `StageStore.append` for a job that failed."""
    timing = {"seconds": 1.0, "load_seconds": 0.5, "actor": "a", "node": "n", "device": "cpu", "started": 1e9}
    record = {"key": key, "task": "t", "spec": json.dumps({"key": key}), "table": "training", "rows": []}
    return record | {"error": {"traceback": "t", "attempts": 1, "transient": False} | error, "timing": timing}


def test_a_folder_without_results_is_not_one_without_failures(tmp_path: Path) -> None:
    for data in (tmp_path / "none", tmp_path):
        code, shown, complaint = run("failures", "--data", data)
        assert (code, shown) == (2, "")
        assert complaint.startswith(f"tsfmscope: no results in {data}; `make repro`")
