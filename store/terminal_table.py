"""Output of rows on a terminal: a table, or record by record if the table is too wide."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from tsfmscope.store.printable import printable
from tsfmscope.store.render import cells

if TYPE_CHECKING:
    import pyarrow as pa

# Width in characters if the output is not a terminal, so that nothing is cut.
WIDE = 1_000
UNBOUND = 10**6
# Maximum number of rows on a terminal; a pipe and the other formats get all rows.
MOST = 1_000


def console() -> Console:
    """Return a console for standard output; its width is WIDE if that is not a terminal."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=WIDE)


def show(rows: pa.Table, out: Console | None = None) -> None:
    """Print rows, followed by their number."""
    out = out or console()
    shown = rows.slice(0, MOST) if out.is_terminal else rows
    body = _body(shown, out)
    foot = f"{len(rows):,} row{'' if len(rows) == 1 else 's'}"
    if len(shown) < len(rows):
        foot += f", the first {len(shown):,} above; `limit` and `offset`, or another format than table, show the others"
    out.print(body)
    out.print(foot)


def _body(rows: pa.Table, out: Console) -> RenderableType:
    """Return a table, whose cells may break between words, or records if that is still too wide."""
    names = [printable(name) for name in rows.column_names]
    table = Table(*(Column(Text(name), overflow="fold") for name in names))
    lines = cells(rows)
    for line in lines:
        table.add_row(*map(Text, line))
    needs = out.measure(table, options=out.options.update(width=UNBOUND))
    if not out.is_terminal:
        # In a pipe, nothing is folded or cut.
        out.width = max(out.width, needs.maximum)
    elif needs.minimum > out.width:
        return Group(*_records(names, lines, out.width))
    return table


def _records(names: list[str], lines: list[list[str]], width: int) -> Iterator[RenderableType]:
    """Yield each row as a rule with its number, followed by one line per value."""
    for number, line in enumerate(lines, 1):
        record = Table.grid(padding=(0, 1))
        record.add_column(width=min(max(map(len, names)), width // 2), overflow="fold")
        record.add_column(overflow="fold")
        for name, cell in zip(names, line, strict=True):
            record.add_row(Text(name, style="bold"), Text(cell))
        yield Text(f"row {number} ".ljust(width, "─"))
        yield record
