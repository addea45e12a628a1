"""Output of the commands: JSON for programs and tables for people on stdout, progress on stderr."""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from tsfmscope.errors import ArgumentError, printable
from tsfmscope.files import TABLES
from tsfmscope.progress import WATCHER, Watcher

if TYPE_CHECKING:
    from tsfmscope.conformance.subject import Finding

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else on stdout.")]
# Characters of a column that is never wrapped.
SHORT = 12
# Characters of a line if the output is not a terminal, so that nothing is cut off.
WIDE = 200
# Largest number of rows of many that a terminal shows, half of them the first and half the last, as in DuckDB's shell.
MOST = 40
# Characters of a word that get a column of their own width; a longer word is folded.
WORD = 30
# In place of the rows and columns that are left out.
ROW, COLUMN = "·", "…"


def check_file(path: Path, suffixes: Sequence[str]) -> None:
    """Check, before the work, that a result can be written into a file of this name.

    Raises ArgumentError for another suffix, and ModuleNotFoundError for a plot without the extra `report`.
    """
    if path.suffix not in suffixes:
        raise ArgumentError(f"--out {path}: expected a name that ends in {', '.join(suffixes)}")
    if path.suffix not in TABLES:
        importlib.import_module("altair")


def print_json(value: Any) -> None:
    """Print a value as one JSON document, floats with all digits. Raises ValueError for NaN."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


@contextlib.contextmanager
def stdout_for_json(as_json: bool) -> Iterator[None]:
    """Send what the work prints to stderr, if stdout is for the JSON document alone."""
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        yield


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print all rows and columns as a table; long cells break to fit the terminal.

    Numbers are as in `cell`.
    """
    lines = [[cell(value) for value in row] for row in rows]
    console().print(_table(title, columns, lines))


def print_many_rows(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], text: Callable[[Any], str], out: Console | None = None, *,
    is_complete: bool = False,
) -> None:  # fmt: skip
    """Print rows, followed by their number. text: text of a value.

    A terminal shows at most MOST rows, and the first and last columns where all are too wide, unless
    `is_complete`. In a pipe, nothing is folded or left out.
    """
    out = out or Console(highlight=False)
    names = list(map(printable, columns))
    foot = f"{len(rows):,} row{'' if len(rows) == 1 else 's'}"
    if is_complete or not out.is_terminal:
        _write_unfolded(names, [list(map(text, row)) for row in rows], out.file)
        print(foot, file=out.file)
        return
    is_cut = len(rows) > MOST
    lines = [list(map(text, row)) for row in ([*rows[: MOST // 2], *rows[-MOST // 2 :]] if is_cut else rows)]
    if is_cut:
        foot += f" ({MOST} shown)"
        lines[MOST // 2 : MOST // 2] = [[ROW] * len(names) for _ in range(3)]
    first, last = _columns_that_fit([_least_width(column) for column in zip(names, *lines, strict=True)], out.width)
    if first + last < len(names):
        foot += f", {len(names)} columns ({first + last} shown)"
        for line in (names, *lines):
            line[first : len(line) - last] = [COLUMN]
    out.print(_table("", names, lines, can_break=True))
    out.print(foot + ("; --all or another --format shows everything" if "(" in foot else ""))


def _table(title: str, names: Sequence[str], lines: Sequence[Sequence[str]], *, can_break: bool = False) -> Table:
    """Return a table for rich. can_break: whether columns of numbers and of short texts may break too."""
    table = Table(title=escape(title) or None, title_justify="left", box=box.SIMPLE_HEAD)
    for at, name in enumerate(names):
        right = _is_numeric(lines, at)
        is_short = right or max((len(line[at]) for line in lines), default=0) <= SHORT
        overflow: Literal["fold", "ellipsis"] = "fold" if can_break else "ellipsis"
        table.add_column(
            Text(name), justify="right" if right else "left", no_wrap=is_short and not can_break, overflow=overflow
        )
    for line in lines:
        table.add_row(*map(Text, line))
    return table


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
    """Return the characters that a column takes at least, with the three spaces next to it."""
    return min(WORD, max((cell_len(word) for cell in column for word in cell.split()), default=0)) + 3


def _write_unfolded(names: Sequence[str], lines: Sequence[Sequence[str]], file: IO[str]) -> None:
    """Write every row on one line as rich does; rich, which folds, took minutes for 15,000 rows of 50 columns."""
    widths = [max(map(cell_len, column)) for column in zip(names, *lines, strict=True)]
    rights = [_is_numeric(lines, at) for at in range(len(names))]

    def write(line: Sequence[str]) -> None:
        spaces = (" " * (width - cell_len(cell)) for cell, width in zip(line, widths, strict=True))
        cells = (s + cell if right else cell + s for cell, s, right in zip(line, spaces, rights, strict=True))
        file.write(f"  {'   '.join(cells)}  \n")

    blank = " " * (sum(widths) + 3 * len(widths) + 1) + "\n"
    file.write(blank)
    write(names)
    file.write(f" {'─' * (len(blank) - 3)} \n")
    for line in lines:
        write(line)
    file.write(blank)


def print_lines(lines: Iterable[str]) -> None:
    """Print each text as one line; control characters are escaped."""
    for line in lines:
        typer.echo(printable(line))


def print_findings(title: str, findings: Sequence[Finding]) -> None:
    """Print the checks of a family or a checkpoint, and their number by verdict."""
    rows = []
    for finding in findings:
        demand = f" Required: {finding.demand}" if finding.verdict == "fail" else ""
        rows.append([finding.check.replace("-", " "), finding.verdict, f"{finding.detail}{demand}"])
    print_table(title, ["check", "verdict", "detail"], rows)
    counts = Counter[str](finding.verdict for finding in findings)
    typer.echo(", ".join(f"{counts[verdict]} {verdict}" for verdict in ("pass", "fail", "not applicable")))


def console(*, stderr: bool = False) -> Console:
    """Return a console as wide as the terminal, or WIDE characters wide if there is none."""
    console = Console(highlight=False, stderr=stderr)
    return console if console.is_terminal else Console(highlight=False, stderr=stderr, width=WIDE)


def cell(value: Any) -> str:
    """Return a value as text for people: three decimals or three digits; control characters are escaped."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.3f}" if 1e-3 <= abs(value) < 1e3 or value == 0 else f"{value:.3g}"
    return printable(str(value))


def with_spread(value: Any, spread: float | None) -> Any:
    """Return a value with its standard deviation, both rounded to the second digit of the latter.

    Returns the value alone if there is no standard deviation.
    """
    if value is None or spread is None:
        return value
    if isinstance(value, int) or spread == 0:
        return f"{cell(value)} ± {spread:.2g}"
    digits = max(0, 1 - math.floor(math.log10(spread)))
    return f"{value:.{digits}f} ± {spread:.{digits}f}"


def _is_numeric(lines: Sequence[Sequence[str]], at: int) -> bool:
    """Return whether every text of a column is a number, or stands for none."""
    return all(_is_number(line[at]) for line in lines)


def _is_number(text: str) -> bool:
    try:
        return not math.isnan(float(text.partition(" ± ")[0]))
    except ValueError:
        return text in ("–", "", ROW)


@contextlib.contextmanager
def show_progress(*, with_lines: bool = False) -> Iterator[Watcher]:
    """Show progress on stderr if that is a terminal, and remove it at the end.

    After that, print the messages that were logged about the data, each once. with_lines: if stderr is no
    terminal, print a line when the subject of a step, the text before its first colon, changes.
    """
    from huggingface_hub.utils import disable_progress_bars
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    from transformers.utils.logging import disable_progress_bar

    # Bars of other packages would be printed in the middle of ours.
    disable_progress_bar()
    disable_progress_bars()
    bar = [SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()]
    terminal = console(stderr=True)
    with Progress(*bar, console=terminal, transient=True, disable=not terminal.is_terminal) as progress:
        task, subject = progress.add_task("", total=None), ""

        def watch(step: str, n_done: int, total: int) -> None:
            nonlocal subject
            progress.update(task, description=step, completed=n_done, total=total or None)
            previous, subject = subject, step.partition(":")[0]
            if with_lines and subject != previous and not terminal.is_terminal:
                typer.echo(f"{subject}, {n_done} of {total} done", err=True)

        token = WATCHER.set(watch)
        try:
            with _collected_messages() as messages:
                yield watch
        finally:
            WATCHER.reset(token)
    for message in messages:
        typer.echo(message, err=True)


@contextlib.contextmanager
def _collected_messages() -> Iterator[dict[str, None]]:
    """Collect the log messages of this package, in order.

    Each message is kept once, because several candidates may read the same file. One with the attribute `is_urgent`,
    which the user should see before the work goes on, is printed at once.
    """
    messages: dict[str, None] = {}

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if getattr(record, "is_urgent", False):
                typer.echo(record.getMessage(), err=True)
            else:
                messages.setdefault(record.getMessage())

    logger, collector = logging.getLogger("tsfmscope"), Collector()
    level = logger.level
    # With a handler, Python's handler of last resort does not print the messages as well.
    logger.addHandler(collector)
    logger.setLevel(logging.INFO)
    try:
        yield messages
    finally:
        logger.setLevel(level)
        logger.removeHandler(collector)
