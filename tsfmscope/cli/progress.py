"""Progress of a command on stderr, and the messages of the readers of data."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import typer

from tsfmscope.cli.output import console
from tsfmscope.progress import WATCHER, Watcher


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
