from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from tsfmscope.store import catalogue, files, query, render
from tsfmscope.store.__main__ import main
from tsfmscope.store.errors import QueryError
from tsfmscope.store.lock import Lock
from tsfmscope.store.stage_store import StageStore
from tsfmscope.store.status import Status, write_status


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory, rows) -> Path:
    folder = tmp_path_factory.mktemp("query")
    files.write_rows(folder / "training", "training", [rows["training"] | {"job_key": "k"}])
    catalogue.build(folder / "results.duckdb", {"training": [folder / "training"]})
    return folder / "results.duckdb"


@pytest.mark.parametrize(
    "statement",
    [
        "copy training to '{folder}/out.csv'",
        "copy (select 1) to '{folder}/out.parquet'",
        "export database '{folder}/out'",
        "attach '{folder}/other.duckdb'",
        "select * from read_csv('{folder}/secret.csv')",
        "select * from '{folder}/secret.csv'",
        "select * from read_text('{folder}/secret.csv')",
        "select * from glob('{folder}/*')",
        "select * from read_parquet('https://example.org/a.parquet')",
        "install httpfs",
        "load httpfs",
        "set enable_external_access = true",
        "reset lock_configuration",
        "set temp_directory = '{folder}/out'",
        "create table mine (x int)",
        "create view mine as select 1",
        "insert into training select * from training",
        "update training set loss = 0",
        "delete from training",
        "drop table training",
        "create secret mine (type s3)",
    ],
)
def test_nothing_is_written_and_nothing_else_is_read(database: Path, tmp_path: Path, statement: str) -> None:
    (tmp_path / "secret.csv").write_text("a\n1\n")
    before = files.fingerprint(database)
    with query.connect(database) as connection, pytest.raises(QueryError):
        query.query(connection, statement.format(folder=tmp_path))
    assert [p.name for p in tmp_path.iterdir()] == ["secret.csv"]
    assert files.fingerprint(database) == before


def test_a_python_variable_is_not_a_table(database: Path) -> None:
    outside = pa.table({"x": [1]})
    with query.connect(database) as connection, pytest.raises(QueryError, match="outside"):
        query.query(connection, "select * from outside")
    assert len(outside) == 1


@pytest.mark.parametrize(
    "statement",
    [
        "copy (select 1 as a) to '{database}' (format csv, use_tmp_file false)",
        "copy (select 1 as a) to '{database}.wal'",
        "copy (select 1 as a) to '{database}.tmp/out.csv'",
        "select * from '{database}.tmp/secret.csv'",
        "select * from read_blob('{database}')",
        "attach '{database}' as again",
    ],
)
def test_the_database_itself_and_what_lies_by_it_are_shut_too(database: Path, tmp_path: Path, statement: str) -> None:
    """DuckDB leaves these open where external access is off: the file, its log and its temporary folder."""
    copy = tmp_path / "copy.duckdb"
    copy.write_bytes(database.read_bytes())
    beside = tmp_path / "copy.duckdb.tmp"
    beside.mkdir()
    (beside / "secret.csv").write_text("a\n1\n")
    with query.connect(copy) as connection, pytest.raises(QueryError, match="has been disabled by configuration"):
        query.query(connection, statement.format(database=copy))
    assert files.fingerprint(copy) == files.fingerprint(database)
    found = sorted(path.name for path in tmp_path.rglob("*"))
    assert found == ["copy.duckdb", "copy.duckdb.tmp", "secret.csv"]


def test_a_second_connection_of_a_process_is_as_locked_as_the_first(database: Path) -> None:
    with query.connect(database) as first, query.connect(database) as second:
        assert query.query(first, "select model from training") == query.query(second, "select model from training")
        with pytest.raises(QueryError, match="has been disabled by configuration"):
            query.query(second, f"select * from read_blob('{database}')")


@pytest.mark.parametrize(
    ("statement", "near"),
    [
        ("select los from training", '"loss"'),
        ("select t.los from training as t", '"loss"'),
        ("select * from trainin", "Near: training"),
        ("select * from frontier", "Near: compression_frontier"),  # what is only a part of a name
        ("select * from RANK_TEST", "Near: rank_tests"),
        ("select wql_window from training", "a column of that name in: .*forecasts"),
        ("select model from training where nosuchcolumn = 1", "nosuchcolumn"),
        ("begin; select * from trainin", "Near: training"),
    ],
)
def test_a_wrong_name_is_answered_with_the_near_ones(database: Path, statement: str, near: str) -> None:
    with query.connect(database) as connection, pytest.raises(QueryError, match=near):
        list(query.statements(connection, statement))


def test_near_names_are_the_alike_ones_and_then_those_that_hold_the_name() -> None:
    names = ["runs", "rank_tests", "head_ranks", "training"]
    assert query.near("ranks", names) == ["runs", "rank_tests", "head_ranks"]
    assert query.near("trainin", names) == ["training"]
    assert query.near("xyzzy", names) == []


def test_a_missing_database_says_what_makes_it(tmp_path: Path) -> None:
    with pytest.raises(QueryError, match=r"no database at .*none\.duckdb; `make repro`"):
        query.connect(tmp_path / "none.duckdb")


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "r.duckdb").write_text("not a database, though it is long enough to be looked at" * 99)
    with pytest.raises(QueryError, match=r"r\.duckdb does not open as a DuckDB file"):
        query.connect(tmp_path / "r.duckdb")


TABLE = pa.table(
    {"name": ["a|b", None], "x": [0.5, float("nan")], "list": [[1.0, 2.0], []], "ok": [True, False], "n": [1, None]}
)


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("csv", 'name,x,list,ok,n\na|b,0.5,"[1.0, 2.0]",true,1\n,nan,[],false,'),
        (
            "markdown",
            "| name | x | list | ok | n |\n| --- | --- | --- | --- | --- |\n"
            "| a\\|b | 0.5 | [1.0, 2.0] | true | 1 |\n|  | nan | [] | false |  |",
        ),
    ],
)
def test_rows_are_printed_as_asked(form: str, expected: str) -> None:
    assert render.render(TABLE, form) == expected


def test_json_holds_no_nan() -> None:
    assert json.loads(render.render(TABLE, "json")) == [
        {"name": "a|b", "x": 0.5, "list": [1.0, 2.0], "ok": True, "n": 1},
        {"name": None, "x": None, "list": [], "ok": False, "n": None},
    ]


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(ValueError, match="format 'xml': expected one of csv, json, markdown"):
        render.render(TABLE, "xml")


def test_cells_shorten_numbers_and_lists() -> None:
    table = pa.table({"x": [1 / 3], "list": [[1.0, 2.0, 3.0, 4.0]]})
    assert render.cells(table) == [["0.333333", "[1, 2, 3, … 4 items]"]]


def test_a_cell_of_a_traceback_is_its_last_line() -> None:
    text = "Traceback (most recent call last):\n  in f\nValueError: got NaN\n"
    table = pa.table({"traceback": [text], "message": ["one line\n"]})
    assert render.cells(table) == [["ValueError: got NaN (last of 3 lines)", "one line"]]
    assert json.loads(render.render(table, "json"))[0]["traceback"] == text


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """`run("select 1")`: exit code, stdout and stderr of `python -m tsfmscope.store "select 1"`, in this process."""

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["store", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return (int(ended.value.code or 0), *capsys.readouterr())

    return call


def test_the_command_line_answers_a_query_in_a_table_and_in_csv(run, database: Path) -> None:
    code, shown, complaint = run("select model, loss, [1] as list from training", "--db", database)
    assert (code, complaint) == (0, "")
    assert "loss" in shown
    assert "[1]" in shown
    assert shown.rstrip().endswith("1 row")
    assert run("--format", "csv", "--db", database, "select model, loss from training") == (
        0,
        "model,loss\nm,2.0\n",
        "",
    )


def test_a_sql_file_and_standard_input_are_answered_statement_by_statement(
    run, database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "question.sql"
    file.write_text("-- two\nselect 1 as a; select 2 as b;\n")
    expected = (0, "a\n1\nb\n2\n", "")
    assert run(file, "--db", database, "--format", "csv") == expected
    for argument in (["-"], []):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(file.read_bytes())))
        assert run(*argument, "--db", database, "--format", "csv") == expected
    assert run(tmp_path / "none.sql", "--db", database)[0] == 2


@pytest.mark.timeout(20)
def test_sql_that_is_no_text_or_no_regular_file_is_one_line(
    run, database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"select '\xff'")))
    code, out, error = run("-", "--db", database)
    assert (code, out, error.count("\n")) == (2, "", 1)
    assert "standard input: expected SQL in UTF-8" in error
    os.mkfifo(tmp_path / "pipe.sql")
    (tmp_path / "zero.sql").symlink_to("/dev/zero")
    for name in ("pipe.sql", "zero.sql"):
        code, out, error = run(tmp_path / name, "--db", database)
        assert (code, out) == (2, "")
        assert "expected a regular file" in error


@pytest.mark.parametrize("form", ["parquet", "csv", "json"])
def test_rows_go_into_a_file_that_is_never_overwritten(run, database: Path, tmp_path: Path, form: str) -> None:
    out, sql = tmp_path / "rows", "select model, loss from training"
    assert run(sql, "--db", database, "--format", form, "--out", out)[0] == 0
    read = {"parquet": pd.read_parquet, "csv": pd.read_csv, "json": pd.read_json}[form]
    assert read(out).to_dict("records") == [{"model": "m", "loss": 2.0}]
    code, _, complaint = run("select 3", "--db", database, "--out", out)
    assert code == 2 and "there is such a file" in complaint
    assert [path.name for path in tmp_path.iterdir()] == ["rows"]


@pytest.mark.parametrize(
    ("statement", "text"), [("select los from training", '"loss"'), ("copy training to 'x.csv'", "disabled")]
)
def test_the_command_line_ends_with_2_and_says_why(run, database: Path, statement: str, text: str) -> None:
    code, shown, complaint = run(statement, "--db", database)
    assert (code, shown) == (2, "")
    assert text in complaint


def test_the_command_line_ends_with_2_and_no_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tsfmscope.store", "select 1", "--db", str(tmp_path / "none.duckdb")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("no database at")
    assert "Traceback" not in done.stderr


def test_the_command_line_lists_tables(run) -> None:
    _, shown, _ = run("tables", "geometry")
    assert "inter-token cosine" in shown
    assert "Shelim et al. 2025, eq. 1" in shown
    code, _, complaint = run("tables", "geometri")
    assert code == 2 and "near: geometry" in complaint


def test_the_command_line_tells_a_view_s_question_and_columns(run, database: Path) -> None:
    _, shown, _ = run("tables", "flow_of_ranks", "--db", database)
    assert shown.startswith("flow_of_ranks: How does the numerical rank")
    assert "singular values above epsilon of the largest [dimensions] (Yu et al. 2026, eq. 1)" in shown
    code, _, complaint = run("tables", "flow_of_rank", "--db", database)
    assert code == 2 and "near: flow_of_ranks" in complaint


def test_the_command_line_tells_the_status(run, tmp_path: Path) -> None:
    lock = Lock(tmp_path / "geometry.lock")
    lock.acquire()
    counts = {"planned": 100, "done": 30, "failed": 7, "running": 4, "reused": 23, "passed_over": 3}
    write_status(Status("geometry", **counts, started=1006.0, updated=1080.0), folder=tmp_path)
    _, shown, _ = run("status", "--folder", tmp_path)
    lock.release()
    assert [cell.strip() for cell in shown.splitlines()[3].strip("│").split("│")] == [
        "geometry", "running", "100", "20", "30", "4", "10", "40", "0.5", "0:01:20",
    ]  # fmt: skip
    code, _, complaint = run("status", "--folder", tmp_path / "none")
    assert code == 2
    assert "no stage that sweeps has run here yet" in complaint


def test_failures_are_listed_from_the_outs_also_where_the_pipeline_ended_with_them(
    run, record: Callable[..., dict], tmp_path: Path
) -> None:
    with StageStore(tmp_path / "data" / "heads", tables=["training"], companion=tmp_path / "c", stage="heads") as out:
        out.append([record("a", error={"type": "KeyError", "message": "no 'x'\nnor 'y'", "traceback": "line 7"})])
        out.append([record("a", error={"type": "ValueError", "message": "of the last attempt"})])
        out.append([record("b", error={"type": "ValueError", "message": "one\ntwo", "traceback": "line 9"})])
    _, shown, _ = run("failures", "--data", tmp_path / "data", "--format", "json")
    assert [(one["stage"], one["error"], one["message"]) for one in json.loads(shown)] == [
        ("heads", "ValueError", "of the last attempt"),
        ("heads", "ValueError", "one"),
    ]
    assert list(json.loads(shown)[0]) == ["stage", "task", "error", "message", "spec"]
    _, shown, _ = run("failures", "--data", tmp_path / "data", "--full", "--format", "json")
    assert [(one["message"], one["traceback"]) for one in json.loads(shown)][1] == ("one\ntwo", "line 9")
    with StageStore(tmp_path / "clean" / "heads", tables=["training"], companion=tmp_path / "c", stage="heads"):
        pass
    code, shown, _ = run("failures", "--data", tmp_path / "clean")
    assert (code, shown.splitlines()[-1]) == (0, "0 rows")


def test_a_folder_without_results_is_not_one_without_failures(run, tmp_path: Path) -> None:
    for data in (tmp_path / "none", tmp_path):
        code, shown, complaint = run("failures", "--data", data)
        assert (code, shown) == (2, "")
        assert complaint.startswith(f"no results in {data}; `make repro`")


def test_importing_the_store_loads_no_heavy_package_and_makes_no_file(tmp_path: Path) -> None:
    heavy = "('torch', 'ray', 'pandas')"
    imports = "import sys; from tsfmscope.store import catalogue, stage_store"
    code = f"{imports}; print([m for m in {heavy} if m in sys.modules])"
    root = str(Path(catalogue.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path, env={"PYTHONPATH": root}
    )
    assert done.stdout == "[]\n"
    assert not list(tmp_path.iterdir())
