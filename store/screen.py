"""Rows on a terminal: as a table, record by record where it is too wide, through a pager where it is too long."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from store import query

if TYPE_CHECKING:
    import pyarrow as pa

WIDE = 1_000  # columns where the output is no terminal, so that nothing is cut
UNBOUND = 10**6
MOST = 1_000  # rows that a terminal is shown; a pipe and the other formats have all


def console() -> Console:
    """Standard output."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=WIDE)


def show(rows: pa.Table, out: Console | None = None, *, paged: bool = False) -> None:
    """Print rows. paged: through $PAGER, or less, where they do not fit the terminal's height."""
    out = out or console()
    shown = rows.slice(0, MOST) if out.is_terminal else rows
    body = _body(shown, out)
    foot = f"{len(rows):,} row{'' if len(rows) == 1 else 's'}"
    if len(shown) < len(rows):
        foot += f", the first {len(shown):,} above; `limit` and `offset`, or another format than table, show the others"
    lines = len(out.render_lines(body, pad=False)) if paged else 0
    if lines + 2 > out.height:
        with out.pager():
            out.print(body)
            out.print(foot)
    else:
        out.print(body)
        out.print(foot)


def _body(rows: pa.Table, out: Console) -> RenderableType:
    """A table, whose cells may break between words; records where not even that makes it narrow enough."""
    table = Table(*(Column(Text(name), overflow="fold") for name in rows.column_names))
    cells = query.cells(rows)
    for line in cells:
        table.add_row(*map(Text, line))
    needs = out.measure(table, options=out.options.update(width=UNBOUND))
    if not out.is_terminal:
        out.width = max(out.width, needs.maximum)  # nothing is folded or cut in a pipe
    elif needs.minimum > out.width:
        return Group(*_records(rows.column_names, cells, out.width))
    return table


def _records(names: list[str], cells: list[list[str]], width: int) -> Iterator[RenderableType]:
    """A line a value, under a rule a row."""
    for number, line in enumerate(cells, 1):
        record = Table.grid(padding=(0, 1))
        record.add_column(width=min(max(map(len, names)), width // 2), overflow="fold")
        record.add_column(overflow="fold")
        for name, cell in zip(names, line, strict=True):
            record.add_row(Text(name, style="bold"), Text(cell))
        yield Text(f"row {number} ".ljust(width, "─"))
        yield record
