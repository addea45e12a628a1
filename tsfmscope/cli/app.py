"""Commands of `tsfmscope`, and the only place that turns errors into exit codes."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from stages.planning.exit_codes import KNOWN, report_error, report_interrupt
from store.printable import printable, shorten
from tsfmscope.cli import (
    certify,
    check_family,
    commit_checkpoints,
    compress,
    corpus,
    doctor,
    embed,
    export,
    failures,
    inspect,
    new_study,
    plan,
    profile,
    push,
    report,
    retry,
    save_results,
    sql,
    status,
    tables,
    verify,
)

PROGRAM = "tsfmscope"
# Allocated objects after which Python looks for unreachable ones. With its default of 700, a fifth of the time of
# loading torch and transformers goes into walking through objects that all stay. mypy sets the same number.
ALLOCATIONS = 200_000
# Base class of typer's errors about options and arguments, which has no public name.
USAGE_ERROR: Any = typer.BadParameter.__base__


class Group(TyperGroup):
    """Group of commands whose known errors are one line on stderr; docs/cli.md lists the exit codes."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Read the options that come before the command."""
        with _short_usage_errors():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run the command and turn known errors into one line and an exit code."""
        try:
            with _short_usage_errors():
                return super().invoke(ctx)
        except KeyboardInterrupt as error:
            code = report_interrupt(error, PROGRAM)
        except KNOWN as error:
            code = report_error(error, PROGRAM)
        raise typer.Exit(code)


@contextlib.contextmanager
def _short_usage_errors() -> Iterator[None]:
    """Shorten the message of typer's errors about options, which repeat what was typed."""
    try:
        yield
    except USAGE_ERROR as error:
        error.message = shorten(printable(error.message, keep="\n"))
        raise


HELP = """Look inside time-series foundation models.

\b
tsfmscope doctor                           # what is installed here, and how to fix what is not
tsfmscope inspect chronos-bolt-mini nile   # isotropy, dimension and rank of every layer
tsfmscope embed chronos-bolt-mini nile     # one vector per series
tsfmscope compress chronos-bolt-mini smaller --to 0.25 --data nile --context 64
tsfmscope new study mine --models chronos-bolt-mini --datasets nile --conditions context-500
tsfmscope sql "select 6 * 7 as answer"     # SQL over the results of `dvc repro`
tsfmscope report                           # where the results and their page are

Exit codes: 0 success, 1 the work failed, 2 the command or params.yaml must be fixed, 3 `certify` needs
more tasks, 4 `certify` does not certify, 130 interrupted.
"""

app = typer.Typer(
    name=PROGRAM,
    cls=Group,
    help=HELP,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": 100},
)
new = typer.Typer(help="Add a block to params.yaml.", rich_markup_mode=None, no_args_is_help=True)
# The order is that of `tsfmscope --help`: models, then results, then the pipeline.
COMMANDS: dict[str, Callable[..., None]] = {
    "inspect": inspect.inspect,
    "compress": compress.compress,
    "certify": certify.certify,
    "embed": embed.embed,
    "export": export.export,
    "push": push.push,
    "sql": sql.sql,
    "tables": tables.tables,
    "report": report.report,
    "save-results": save_results.save_results,
    "plan": plan.plan,
    "profile": profile.profile,
    "status": status.status,
    "failures": failures.failures,
    "retry": retry.retry,
    "corpus": corpus.corpus,
    "commit-checkpoints": commit_checkpoints.commit_checkpoints,
    "verify": verify.verify,
    "check-family": check_family.check_family,
    "doctor": doctor.doctor,
}
for _name, _function in COMMANDS.items():
    app.command(_name)(_function)
app.add_typer(new, name="new")
new.command("study")(new_study.study)


def _version(is_requested: bool) -> None:
    if is_requested:
        from stages.config.defaults import PACKAGE, version

        typer.echo(f"{PACKAGE} {version()}")
        raise typer.Exit()


@app.callback()
def main_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Define the options of `tsfmscope` itself."""


def main() -> None:
    """Run the console script `tsfmscope`.

    The process ends without freeing the objects of its modules: with torch and transformers, that takes 1.5 s.
    """
    gc.set_threshold(ALLOCATIONS)
    codes = [1]
    # Handlers run in reverse order: this one runs after those of every module that a command imports.
    atexit.register(_end_process, codes)
    try:
        app(prog_name=PROGRAM)
    except SystemExit as end:
        codes.append(end.code if isinstance(end.code, int) else int(end.code is not None))
        raise
    # Raised by output that is printed before a command is reached, such as help.
    except OSError as error:
        codes.append(report_error(error, PROGRAM))
        sys.exit(codes[-1])


def _end_process(codes: list[int]) -> None:
    """Write what is buffered and end the process with the last exit code."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(codes[-1])
