"""The SQL prompt, driven by typed keys through prompt_toolkit's own pipe."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from tsfmscope.store import catalogue, files, prompt, query
from tsfmscope.store.errors import QueryError


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory, rows) -> Iterator[duckdb.DuckDBPyConnection]:
    folder = tmp_path_factory.mktemp("prompt")
    files.write_rows(folder / "training", "training", [rows["training"] | {"job_key": "k"}])
    catalogue.build(folder / "results.duckdb", {"training": [folder / "training"]})
    with query.connect(folder / "results.duckdb") as opened:
        yield opened


Shown = list[tuple[list[str], str]]


@pytest.fixture
def typed(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], tuple[Shown, list[str], list[str]]]:
    """What is shown (columns, format), said and complained of where these keys are typed."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def call(keys: str) -> tuple[Shown, list[str], list[str]]:
        shown: Shown = []
        said: list[str] = []
        complaints: list[str] = []

        def show(rows: pa.Table, form: str) -> None:
            if rows.column_names == ["stopped"]:
                raise KeyboardInterrupt  # as a pager does
            shown.append((rows.column_names, form))

        session = prompt.Session(connection, show, said.append)
        with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
            pipe.send_text(keys)
            prompt.ask(session, connection, complaints.append)
        return shown, said, complaints

    return call


def test_a_statement_may_take_several_lines_and_its_error_ends_nothing(typed) -> None:
    shown, _, complaints = typed("select los\nfrom training;\nselect loss,\nstep from training;\n.quit\n")
    assert shown == [(["loss", "step"], "table")]
    assert len(complaints) == 1 and '"loss"' in complaints[0]


def test_ctrl_d_leaves_and_ctrl_c_drops_what_is_typed(typed) -> None:
    assert typed("select nonsense \x03select 1 as one;\n\x04") == ([(["one"], "table")], [], [])


def test_a_statement_that_is_interrupted_raises_what_ctrl_c_does(connection: duckdb.DuckDBPyConnection) -> None:
    """Ctrl-C while DuckDB works interrupts the connection; the thread does so until it has found the statement."""
    over = threading.Event()

    def interrupt() -> None:
        while not over.wait(0.05):
            connection.interrupt()

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            query.query(
                connection, "select count(*) from range(10000000000) as a(i), range(1000) as b(j) where i % 7 = j"
            )
    finally:
        over.set()
        thread.join()
    assert query.query(connection, "select 1 as one").to_pylist() == [{"one": 1}]


def test_ctrl_c_while_a_statement_is_done_or_shown_ends_it_and_the_prompt_goes_on(typed) -> None:
    shown, _, complaints = typed("select 1 as stopped;\nselect 2 as two;\n\x04")
    assert (shown, complaints) == ([(["two"], "table")], ["interrupted"])


@pytest.mark.parametrize(
    ("before", "first"),
    [
        ("select * from train", ["training", "training_runs"]),
        ("from training select lea", ["learning_rate"]),
        ("SELECT loss FROM training WHERE st", ["step"]),
        (".col", [".columns"]),
        (".columns comp", ["compressed_heads", "compression"]),
    ],
)
def test_what_fits_best_is_offered_first(connection: duckdb.DuckDBPyConnection, before: str, first: list[str]) -> None:
    completer = prompt.Completer(connection)
    assert list(completer.words(before))[: len(first)] == first
    offered = next(iter(completer.get_completions(Document(before), CompleteEvent())))
    written = before[: len(before) + offered.start_position] + offered.text
    assert written.startswith(before[:-3]) and written.endswith(first[0])


def test_history_is_kept_between_sessions(typed, tmp_path: Path) -> None:
    typed("select 1 as first;\n\x04")
    assert "select 1 as first;" in next(tmp_path.rglob("sql_history")).read_text()
    shown, _, _ = typed("\x1b[A\n\x04")  # arrow up: what was asked last
    assert shown == [(["first"], "table")]


@pytest.mark.parametrize(
    ("command", "columns"),
    [(".tables", ["name", "kind", "comment"]), (".columns training", ["column", "type", "meaning"])],
)
def test_commands_list_what_there_is(typed, command: str, columns: list[str]) -> None:
    assert typed(f"{command}\n.quit\n")[0] == [(columns, "table")]


def test_a_format_stays_and_the_text_of_a_view_is_shown(typed) -> None:
    shown, said, complaints = typed(".format csv\nselect 1 as a;\n.sql correlation\n.help\n.format xml\n.quit\n")
    assert shown == [(["a"], "csv")]
    assert said[0].lower().startswith("create view correlation") and said[1] == prompt.HELP
    assert complaints == [".format 'xml': expected one of table, csv, json, markdown"]


def test_an_unknown_table_is_answered_with_the_near_ones(connection: duckdb.DuckDBPyConnection) -> None:
    session = prompt.Session(connection, lambda rows, form: None, lambda line: None)
    with pytest.raises(QueryError, match=r"no table or view 'corelation'; near: correlation"):
        session.do(".columns corelation")


@pytest.mark.parametrize("text", ["", " -- nothing", ";"])
def test_a_text_without_a_statement_says_so(connection: duckdb.DuckDBPyConnection, text: str) -> None:
    with pytest.raises(QueryError, match="no statement: expected SQL"):
        list(query.statements(connection, text))
