"""Output of the commands: JSON for programs and tables for people on stdout, progress on stderr."""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
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
    table = Table(title=escape(title) or None, title_justify="left", box=box.SIMPLE_HEAD)
    for name, texts in zip(columns, zip(*lines, strict=True) if lines else [()] * len(columns), strict=True):
        right = all(map(_is_number, texts))
        is_short = right or max(map(len, texts), default=0) <= SHORT
        table.add_column(Text(name), justify="right" if right else "left", no_wrap=is_short)
    for line in lines:
        table.add_row(*map(Text, line))
    console().print(table)


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


def _is_number(text: str) -> bool:
    """Return whether a text is a number, or stands for none."""
    try:
        return not math.isnan(float(text.partition(" ± ")[0]))
    except ValueError:
        return text in ("–", "")


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
