"""Queries of users: what they may do, how errors read, and Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from store import catalogue, files, query, render
from tests.store.conftest import build_results
from tsfmscope.errors import QueryError
from tsfmscope.functions import results


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory, rows) -> Path:
    return build_results(tmp_path_factory.mktemp("query"), {"training": [rows["training"] | {"job_key": "k"}]})


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
    with results.connect(database) as connection, pytest.raises(QueryError):
        query.query(connection, statement.format(folder=tmp_path))
    assert [p.name for p in tmp_path.iterdir()] == ["secret.csv"]
    assert files.fingerprint(database) == before


def test_a_python_variable_is_not_a_table(database: Path) -> None:
    outside = pa.table({"x": [1]})
    with results.connect(database) as connection, pytest.raises(QueryError, match="outside"):
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
    with results.connect(copy) as connection, pytest.raises(QueryError, match="has been disabled by configuration"):
        query.query(connection, statement.format(database=copy))
    assert files.fingerprint(copy) == files.fingerprint(database)
    found = sorted(path.name for path in tmp_path.rglob("*"))
    assert found == ["copy.duckdb", "copy.duckdb.tmp", "secret.csv"]


def test_a_second_connection_of_a_process_is_as_locked_as_the_first(database: Path) -> None:
    with results.connect(database) as first, results.connect(database) as second:
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
    with results.connect(database) as connection, pytest.raises(QueryError, match=near):
        list(query.statements(connection, statement))


def test_near_names_are_the_alike_ones_and_then_those_that_hold_the_name() -> None:
    names = ["runs", "rank_tests", "head_ranks", "training"]
    assert query.near("ranks", names) == ["runs", "rank_tests", "head_ranks"]
    assert query.near("trainin", names) == ["training"]
    assert query.near("xyzzy", names) == []


def test_a_missing_database_says_what_makes_it(tmp_path: Path) -> None:
    with pytest.raises(QueryError, match=r"no database at .*none\.duckdb; `make repro`"):
        results.connect(tmp_path / "none.duckdb")


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "r.duckdb").write_text("not a database, though it is long enough to be looked at" * 99)
    with pytest.raises(QueryError, match=r"r\.duckdb does not open as a DuckDB file"):
        results.connect(tmp_path / "r.duckdb")


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


def test_cells_shorten_numbers_and_lists() -> None:
    table = pa.table({"x": [1 / 3], "list": [[1.0, 2.0, 3.0, 4.0]]})
    (cells,) = render.python_rows(table)
    assert list(map(render.short_text, cells)) == ["0.333333", "[1, 2, 3, … 4 items]"]


def test_a_cell_of_a_traceback_is_its_last_line() -> None:
    text = "Traceback (most recent call last):\n  in f\nValueError: got NaN\n"
    table = pa.table({"traceback": [text], "message": ["one line\n"]})
    (cells,) = render.python_rows(table)
    assert list(map(render.short_text, cells)) == ["ValueError: got NaN (last of 3 lines)", "one line"]
    assert json.loads(render.render(table, "json"))[0]["traceback"] == text


def test_importing_the_store_loads_no_heavy_package_and_makes_no_file(tmp_path: Path) -> None:
    heavy = "('torch', 'ray', 'pandas')"
    imports = "import sys; from store import catalogue, stage_store"
    code = f"{imports}; print([m for m in {heavy} if m in sys.modules])"
    root = str(Path(catalogue.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path, env={"PYTHONPATH": root}
    )
    assert done.stdout == "[]\n"
    assert not list(tmp_path.iterdir())


STATEMENTS = {
    "recursion": "with recursive t(n) as (select 1 union all select n + 1 from t) select max(n) from t",
    "one-call": "select list_sum(range(400000000))",
    "product": "select count(*) from range(10000000) a, range(10000000) b",
    "sort": "select * from range(300000000) order by hash(range)",
}


@pytest.mark.parametrize("name", STATEMENTS)
@pytest.mark.slow
def test_ctrl_c_ends_the_command_within_two_seconds(empty_results: Path, name: str) -> None:
    command = [sys.executable, "-m", "tsfmscope", "sql", STATEMENTS[name], "--results", str(empty_results)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(4)  # the command has started, and no statement above ends by then
    assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGINT)
    sent = time.monotonic()
    out, err = process.communicate(timeout=60)
    assert time.monotonic() - sent < 2
    assert (process.returncode, out, err) == (130, "", "tsfmscope: interrupted\n")


@pytest.mark.slow
def test_a_statement_that_cannot_be_stopped_is_said_so(empty_results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "INTERRUPT_S", 0.0)
    threading.Timer(0.5, signal.raise_signal, [signal.SIGINT]).start()
    connection = results.connect(empty_results)
    with pytest.raises(query.StillRunning):
        query.query(connection, "select list_sum(range(30000000))")
    for thread in threading.enumerate():
        if thread.name == "sql":
            thread.join(60)
    connection.close()


def test_a_connection_answers_again_after_ctrl_c(empty_results: Path) -> None:
    # A shell starts background processes with SIGINT ignored, and Python then installs no handler.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with results.connect(empty_results) as connection:
            threading.Timer(0.5, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT]).start()
            with pytest.raises(KeyboardInterrupt):
                query.query(connection, STATEMENTS["product"])
            assert query.query(connection, "select 1 as a").to_pylist() == [{"a": 1}]
    finally:
        signal.signal(signal.SIGINT, before)
