"""What a terminal shows of rows: all of it readable, whatever its width, height and markup."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest
from rich.console import Console

from tsfmscope.store import terminal_table


def shown(rows: pa.Table, *, width: int = 80, height: int = 24, terminal: bool = True) -> str:
    """What is printed, without colours."""
    out = Console(
        file=io.StringIO(), width=width, height=height, force_terminal=terminal, color_system=None, highlight=False
    )
    terminal_table.show(rows, out)
    text: str = out.file.getvalue()  # type: ignore[attr-defined]
    return text


WIDE = pa.table({f"column_{n:02d}": [n, -n] for n in range(40)})


def test_a_row_too_wide_for_a_terminal_is_shown_value_by_value() -> None:
    lines = shown(WIDE).splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split() for line in lines if line.startswith("column_39")] == [
        ["column_39", "39"],
        ["column_39", "-39"],
    ]
    assert [line[:6] for line in lines if "─" in line] == ["row 1 ", "row 2 "]
    assert lines[-1] == "2 rows"


def test_a_pipe_gets_every_column_in_one_line_however_wide() -> None:
    wide = pa.table({"text": ["x" * 3000], "other": ["y z"]})
    for rows, cells in ((WIDE, ["0", "39"]), (wide, ["x" * 3000, "y z"])):
        line = shown(rows, terminal=False).splitlines()[3]
        assert {cell.strip() for cell in line.strip("│").split("│")} >= set(cells)


def test_a_text_that_cannot_break_is_folded_and_not_cut() -> None:
    text = shown(pa.table({"text": ["x" * 300]}), width=40)
    assert text.count("x") == 300 + 1  # and that of the name
    assert "…" not in text


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_is_shown_the_first_rows_and_a_pipe_all(terminal: bool) -> None:
    text = shown(pa.table({"n": range(1500)}), width=200, terminal=terminal)
    assert ("│ 1499 │" in text) is not terminal
    assert text.splitlines()[-1].startswith("1,500 rows" + (", the first 1,000 above" if terminal else ""))


def test_brackets_in_names_and_values_are_no_markup() -> None:
    text = shown(pa.table({"a[b]": ["[red]x[/red]"], "[bold]": ["[0, 1]"]}))
    for word in ("a[b]", "[red]x[/red]", "[bold]", "[0, 1]"):
        assert word in text
