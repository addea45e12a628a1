"""What a terminal shows of rows: all of it readable, whatever its width, height and markup."""

from __future__ import annotations

import io
import re
import time

import numpy as np
import pyarrow as pa
import pytest
from rich.cells import cell_len
from rich.console import Console

from store.render import python_rows, short_text
from tsfmscope.cli.output import print_many_rows


def shown(
    rows: pa.Table, *, width: int = 80, height: int = 24, terminal: bool = True, is_complete: bool = False
) -> str:
    """What is printed, without colours."""
    out = Console(
        file=io.StringIO(), width=width, height=height, force_terminal=terminal, color_system=None, highlight=False
    )
    print_many_rows(rows.column_names, python_rows(rows), short_text, out, is_complete=is_complete)
    text: str = out.file.getvalue()  # type: ignore[attr-defined]
    return text


WIDE = pa.table({f"column_{n:02d}": [n, -n] for n in range(40)})


def test_a_table_too_wide_for_a_terminal_shows_its_first_and_last_columns_and_their_number() -> None:
    lines = shown(WIDE).splitlines()
    assert max(map(len, lines)) <= 80
    words = lines[1].split()
    assert words[:2] == ["column_00", "column_01"]
    assert words[-1] == "column_39"
    assert words.count("…") == 1
    count = len(words) - 1
    assert 4 <= count < 40
    assert lines[-1] == f"2 rows, 40 columns ({count} shown); --all or another --format shows everything"


def test_a_pipe_gets_every_column_in_one_line_however_wide() -> None:
    wide = pa.table({"text": ["x" * 3000], "other": ["y z"]})
    for rows, cells in ((WIDE, ["0", "39"]), (wide, ["x" * 3000, "y z"])):
        line = shown(rows, terminal=False).splitlines()[3]
        assert set(re.split(" {2,}", line.strip())) >= set(cells)


def test_a_text_that_cannot_break_is_folded_and_not_cut() -> None:
    text = shown(pa.table({"text": ["x" * 300]}), width=40)
    assert text.count("x") == 300 + 1  # and that of the name
    assert "…" not in text


def test_a_terminal_shows_the_first_and_last_rows_and_a_pipe_all() -> None:
    rows = pa.table({"n": range(1500)})
    lines = shown(rows, width=200).splitlines()
    numbers = [line.strip() for line in lines[3:-2]]
    assert numbers == [*map(str, range(20)), "·", "·", "·", *map(str, range(1480, 1500))]
    assert lines[-1] == "1,500 rows (40 shown); --all or another --format shows everything"
    for text in (shown(rows, terminal=False), shown(rows, is_complete=True)):
        numbers = [line.strip() for line in text.splitlines()[3:-2]]
        assert numbers == [*map(str, range(1500))]
        assert text.splitlines()[-1] == "1,500 rows"


@pytest.mark.parametrize("n_columns", range(1, 12))
@pytest.mark.parametrize("width", [8, 20, 47, 80])
def test_no_line_is_wider_than_the_terminal(n_columns: int, width: int) -> None:
    rows = pa.table({f"名{n}": ["a b " * n, "x" * 5 * n] for n in range(n_columns)})
    lines = shown(rows, width=width).splitlines()[:-1]
    assert max(map(cell_len, lines)) <= width


def test_a_pipe_gets_the_same_frame_as_a_terminal() -> None:
    rows = pa.table({"number": [1.5, None], "text": ["名前", "a [b]"]})
    assert shown(rows, terminal=False) == shown(rows, width=200)
    assert shown(pa.table({"n": pa.array([], pa.int64())}), terminal=False).splitlines()[-1] == "0 rows"
    assert shown(pa.table({}), terminal=False).splitlines()[-1] == "0 rows"


def test_fifteen_thousand_rows_are_written_within_seconds() -> None:
    rows = pa.table({f"column_{n}": np.random.default_rng(n).normal(size=15_000) for n in range(50)})
    began = time.process_time()
    text = shown(rows, terminal=False)
    assert text.count("\n") == 15_000 + 5
    # rich took more than 55 s.
    assert time.process_time() - began < 20
    began = time.process_time()
    shown(rows)
    assert time.process_time() - began < 2


def test_brackets_in_names_and_values_are_no_markup() -> None:
    text = shown(pa.table({"a[b]": ["[red]x[/red]"], "[bold]": ["[0, 1]"]}))
    for word in ("a[b]", "[red]x[/red]", "[bold]", "[0, 1]"):
        assert word in text
