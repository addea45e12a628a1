"""Output of rows as a table: its first and last rows and columns on a terminal, all in a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING

import pyarrow as pa
from rich.cells import cell_len
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from store.render import cells
from tsfmscope.printable import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

# Largest number of rows on a terminal, half of them the first and half the last, as in DuckDB's shell.
MOST = 40
# Characters of a word that get a column of their own width; a longer word is folded.
WORD = 30
# In place of the rows and columns that are left out.
ROW, COLUMN = "·", "…"


def show(rows: pa.Table, out: Console | None = None, *, is_complete: bool = False) -> None:
    """Print rows, followed by their number.

    A terminal shows at most MOST rows, and the first and last columns where all are too wide, unless
    `is_complete`. In a pipe, nothing is folded or left out.
    """
    out = out or Console(highlight=False)
    foot = f"{len(rows):,} row{'' if len(rows) == 1 else 's'}"
    if is_complete or not out.is_terminal:
        _write(rows, out.file)
        print(foot, file=out.file)
        return
    head = (
        rows if len(rows) <= MOST else pa.concat_tables([rows.slice(0, MOST // 2), rows.slice(len(rows) - MOST // 2)])
    )
    body, columns = _body(head, len(head) < len(rows), out.width)
    out.print(body)
    if len(head) < len(rows):
        foot += f" ({len(head)} shown)"
    if columns < rows.num_columns:
        foot += f", {rows.num_columns} columns ({columns} shown)"
    out.print(foot + ("; --all or another --format shows everything" if "(" in foot else ""))


def _body(rows: pa.Table, is_cut: bool, width: int) -> tuple[RenderableType, int]:
    """Return a table of the columns that fit a terminal, whose cells may break between words, and their number."""
    names = [printable(name) for name in rows.column_names]
    lines = cells(rows)
    if is_cut:
        lines[MOST // 2 : MOST // 2] = [[ROW] * len(names)] * 3
    first, last = _columns_that_fit([_least_width(column) for column in zip(names, *lines, strict=True)], width)
    is_narrowed = first + last < len(names)

    def select(line: Sequence[str]) -> list[Text]:
        shown = [*line[:first], COLUMN, *line[len(line) - last :]] if is_narrowed else line
        return [Text(cell) for cell in shown]

    table = Table(*(Column(name, overflow="fold") for name in select(names)))
    for line in lines:
        table.add_row(*select(line))
    return table, first + last


def _columns_that_fit(widths: Sequence[int], width: int) -> tuple[int, int]:
    """Return how many first and last columns to show: those in the middle are left out."""
    if sum(widths) < width:
        return len(widths), 0
    first, last, left = 0, 0, width - 1 - _least_width([COLUMN])
    while first + last < len(widths):
        is_first = first <= last
        left -= widths[first] if is_first else widths[-1 - last]
        if left < 0 and first:
            break
        first, last = first + is_first, last + (not is_first)
    return first, last


def _least_width(column: Sequence[str]) -> int:
    """Return the characters that a column takes at least, with the two spaces and the line next to it."""
    return min(WORD, max((cell_len(word) for cell in column for word in cell.split()), default=0)) + 3


def _write(rows: pa.Table, file: IO[str]) -> None:
    """Write every row on one line; rich, which measures and folds, took minutes for 15,000 rows of 50 columns."""
    names = [printable(name) for name in rows.column_names]
    lines = cells(rows)
    widths = [max(map(cell_len, column)) for column in zip(names, *lines, strict=True)]
    file.writelines(f"{line}\n" for line in _box(names, lines, widths))


def _box(names: Sequence[str], lines: Sequence[Sequence[str]], widths: Sequence[int]) -> Iterator[str]:
    """Yield the lines of a table with the frame that rich draws on a terminal."""
    rules = [["━" * (width + 2) for width in widths], ["─" * (width + 2) for width in widths]]

    def line_of(cells: Sequence[str], edge: str) -> str:
        padded = (f" {cell}{' ' * (width - cell_len(cell))} " for cell, width in zip(cells, widths, strict=True))
        return f"{edge}{edge.join(padded)}{edge}"

    yield f"┏{'┳'.join(rules[0])}┓"
    yield line_of(names, "┃")
    yield f"┡{'╇'.join(rules[0])}┩"
    for line in lines:
        yield line_of(line, "│")
    yield f"└{'┴'.join(rules[1])}┘"
