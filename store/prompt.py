"""Interactive prompt of `python -m tsfmscope.store`: SQL over several lines, with history, completion and paging."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import duckdb
from platformdirs import user_state_path
from prompt_toolkit import PromptSession, completion
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import PostgresLexer

from tsfmscope.store import query
from tsfmscope.store.errors import QueryError, StoreError
from tsfmscope.store.render import FORMATS

HELP = """\
SQL ends with a semicolon and may take several lines; Tab completes, the arrow keys go through what was asked before.
  .tables          tables and views, with what a row is or the question that is answered
  .columns NAME    the columns of one, with what they mean
  .sql NAME        the text of a view
  .format FORMAT   how rows are printed: table, csv, json, markdown
  .quit            leave, as does Ctrl-D"""
VIEW = "select sql from duckdb_views() where not internal and view_name = $1"


class Session:
    """Interpreter of the prompt's commands and statements, independent of the terminal.

    show: prints rows in a format. say: prints a line.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        show: Callable[[Any, str], None],
        say: Callable[[str], None],
    ) -> None:
        self._connection = connection
        self._show = show
        self._say = say
        self.form = "table"

    def is_whole(self, text: str) -> bool:
        """Return whether the text is complete: a command, empty, or terminated by a semicolon."""
        text = text.strip()
        return not text or text.startswith(".") or text.endswith(";")

    def do(self, text: str) -> bool:
        """Execute a command or statements.

        Return False if the user leaves. Raises StoreError or ValueError.
        """
        text = text.strip()
        if not text.startswith("."):
            for rows in query.statements(self._connection, text):
                self._show(rows, self.form)
            return True
        command, *names = text.removesuffix(";").split()
        if command in (".quit", ".exit"):
            return False
        if command == ".tables":
            self._ask(query.RELATIONS)
        elif command == ".columns" and len(names) == 1:
            self._ask(query.COLUMNS, self._known(names[0]))
        elif command == ".sql" and len(names) == 1:
            rows = self._connection.execute(VIEW, [self._known(names[0])]).fetchall()
            self._say(rows[0][0] if rows else f"{names[0]} is a table: .columns {names[0]} says what it holds")
        elif command == ".format" and len(names) == 1:
            if names[0] not in FORMATS:
                raise QueryError(f".format {names[0]!r}: expected one of {', '.join(FORMATS)}")
            self.form = names[0]
        else:
            self._say(HELP)
        return True

    def _ask(self, sql: str, *values: str) -> None:
        self._show(self._connection.sql(sql, params=values).to_arrow_table(), "table")

    def _known(self, name: str) -> str:
        names = [row[0] for row in self._connection.execute(query.RELATIONS).fetchall()]
        if name not in names:
            near = query.near(name, names)
            raise QueryError(f"no table or view {name!r}" + (f"; near: {', '.join(near)}" if near else ""))
        return name


class Completer(completion.Completer):
    """Completion of SQL: table and view names after FROM and JOIN, column names first elsewhere.

    Columns are those of the tables that the text names, or of all tables if it names none.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._tables = [row[0] for row in connection.execute(query.RELATIONS).fetchall()]
        columns = connection.execute(
            "select table_name, column_name from duckdb_columns() where not internal"
        ).fetchall()
        self._columns: dict[str, list[str]] = {}
        for table, column in columns:
            self._columns.setdefault(table, []).append(column)
        words = connection.execute("select keyword_name from duckdb_keywords()").fetchall()
        functions = connection.execute(
            r"select distinct function_name from duckdb_functions() where regexp_matches(function_name, '^\w+$')"
        ).fetchall()
        self._words = sorted({row[0] for row in (*words, *functions)})

    def words(self, before: str) -> Iterable[str]:
        """Return the completions of the last word before the cursor, the likeliest first."""
        *former, word = re.split(r"[^\w.]+", before.lower()) if before else [""]
        if before.lstrip().startswith("."):
            known = [".tables", ".columns", ".sql", ".format", ".quit"] if not former else [*self._tables, *FORMATS]
        elif former and former[-1] in ("from", "join"):
            known = self._tables
        else:
            named = [table for table in self._tables if table in former]
            columns = [column for table in named or self._tables for column in self._columns.get(table, [])]
            known = [*dict.fromkeys(columns), *self._tables, *self._words]
        return (name for name in known if name.lower().startswith(word) and name.lower() != word)

    def get_completions(
        self, document: Document, complete_event: completion.CompleteEvent
    ) -> Iterable[completion.Completion]:
        """Return the completions of `words`, each in place of the last word."""
        before = document.text_before_cursor
        word = re.split(r"[^\w.]+", before)[-1]
        return (completion.Completion(name, start_position=-len(word)) for name in self.words(before))


def ask(session: Session, connection: duckdb.DuckDBPyConnection, complain: Callable[[str], None]) -> None:
    """Read from the terminal and execute until the user leaves; Ctrl-C discards the input line.

    Errors are passed to `complain`. Raises StillRunning if a statement does not end after Ctrl-C.
    """
    keys = KeyBindings()
    prompt: PromptSession[str] = PromptSession(
        history=FileHistory(str(history())),
        completer=Completer(connection),
        complete_while_typing=False,
        auto_suggest=AutoSuggestFromHistory(),
        lexer=PygmentsLexer(PostgresLexer),
        multiline=True,
        key_bindings=keys,
        prompt_continuation=lambda width, *_: "." * (width - 1) + " ",
    )

    @keys.add("enter", filter=Condition(lambda: session.is_whole(prompt.default_buffer.text)))
    def _(event: Any) -> None:
        event.current_buffer.validate_and_handle()

    while True:
        try:
            text = prompt.prompt("sql> ")
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        try:
            if text.strip() and not session.do(text):
                return
        except query.StillRunning:
            raise
        except KeyboardInterrupt:
            complain("interrupted")
        except (StoreError, ValueError) as error:
            complain(str(error))


def history() -> Path:
    """Return the path of the prompt's history file, in the user's state folder."""
    return user_state_path("tsfmscope", ensure_exists=True) / "sql_history"
