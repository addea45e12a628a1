"""The program `tsfmscope`: commands of the library, and in a checkout those of the pipeline."""

from __future__ import annotations

import atexit
import contextlib
import difflib
import gc
import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import typer
from typer.core import TyperGroup

from tsfmscope.errors import KNOWN, printable, report_error, report_interrupt, shorten
from tsfmscope.extras import PACKAGE, version

PROGRAM = PACKAGE
# Allocated objects after which Python looks for unreachable ones. With its default of 700, a fifth of the time of
# loading torch and transformers goes into walking through objects that all stay. mypy sets the same number.
ALLOCATIONS = 200_000
# Base class of typer's errors about options and arguments, which has no public name.
USAGE_ERROR: Any = typer.BadParameter.__base__
HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}
# Command -> module and name of its function or `Command`, and its line of `tsfmscope --help`, in the order there.
COMMANDS = {
    "forecast": ("tsfmscope.cli.forecast:COMMAND", "Forecast the steps after every series of a table."),
    "inspect": ("tsfmscope.cli.inspect:COMMAND", "Measure isotropy, dimension and rank of every layer."),
    "probe": ("tsfmscope.cli.probe:COMMAND", "Measure what each layer knows of its series."),
    "ablate": ("tsfmscope.cli.ablate:COMMAND", "Measure what the forecast loses without each part."),
    "compare": ("tsfmscope.cli.compare:COMMAND", "Compare the layers of two models on your data."),
    "embed": ("tsfmscope.cli.embed:COMMAND", "Compute one vector per series from hidden states."),
    "score": ("tsfmscope.cli.score:COMMAND", "Score models on your data, and choose one."),
    "compress": ("tsfmscope.cli.compress:COMMAND", "Compress a model, and measure what it costs."),
    "certify": ("tsfmscope.cli.certify:COMMAND", "Test that a small model is as good as its base."),
    "models": ("tsfmscope.cli.models:models", "List the bundled models, with size, skill and seconds."),
    "export": ("tsfmscope.cli.export:COMMAND", "Write a model as a checkpoint or an ONNX model."),
    "push": ("tsfmscope.cli.push:COMMAND", "Upload a checkpoint folder to the model hub."),
    "verify": ("tsfmscope.cli.verify:COMMAND", "Check a released checkpoint on this machine."),
    "doctor": ("tsfmscope.cli.doctor:doctor", "Check what is installed, and print how to fix it."),
    "check-family": ("tsfmscope.cli.check_family:check_family", "Check what every family of models guarantees."),
}
# Commands for those who work on the project or write a family; help lists them in a checkout alone.
DEVELOPERS = ("check-family", "corpus", "commit-checkpoints")
# Folder that is a checkout if it has the pipeline's commands.
ROOT = Path(__file__).resolve().parents[2]


def pipeline_commands() -> Mapping[str, tuple[str, str]]:
    """Return the commands of the pipeline; empty outside a checkout.

    They come from the folder next to the package, never from a folder of that name in another project. This is the one
    place where the library looks for the pipeline.
    """
    file = ROOT / "stages" / "commands" / "__init__.py"
    if not file.is_file():
        return {}
    # Also the first place where the commands' own imports look.
    sys.path.insert(0, str(ROOT))
    try:
        module: ModuleType = importlib.import_module("stages.commands")
    except ImportError:
        return {}
    is_ours = module.__file__ is not None and Path(module.__file__).resolve() == file
    commands: Mapping[str, tuple[str, str]] = module.COMMANDS if is_ours else {}
    return commands


class Group(TyperGroup):
    """Group of commands, each imported when it runs, whose known errors are one line on stderr.

    docs/cli.md lists the exit codes.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in their order."""
        return list(all_commands())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, with its line of help."""
        if (entry := all_commands().get(cmd_name)) is None:
            return None
        command = load_command(cmd_name, entry[0])
        command.short_help = entry[1]
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command; the error for an unknown one names near ones."""
        try:
            return super().resolve_command(ctx, args)
        except USAGE_ERROR as error:
            near = difflib.get_close_matches(args[0], all_commands(), 3)
            error.message += f" Did you mean {', '.join(near)}?" if near else f" `{PROGRAM} --help` lists all."
            raise

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands in three groups without importing them; outside a checkout the first alone."""
        commands, of_pipeline = all_commands(), pipeline_commands()
        groups = {"Use a model": [name for name in COMMANDS if name not in DEVELOPERS]}
        if of_pipeline:
            groups["Studies, in this checkout"] = [name for name in of_pipeline if name not in (*COMMANDS, *DEVELOPERS)]
            groups["Developers"] = list(DEVELOPERS)
        for group, names in groups.items():
            with formatter.section(group):
                formatter.write_dl([(name, commands[name][1]) for name in names])

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


def all_commands() -> dict[str, tuple[str, str]]:
    """Return every command: those of the library, then those of the pipeline, which may replace one."""
    return {**COMMANDS, **pipeline_commands()}


def load_command(name: str, location: str) -> Any:
    """Import a command of a location MODULE:NAME."""
    module, _, attribute = location.partition(":")
    found = getattr(importlib.import_module(module), attribute)
    if isinstance(found, typer.Typer):
        return typer.main.get_command(found)
    alone = typer.Typer(
        add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, context_settings=HELP_OPTIONS
    )
    alone.command(name)(found if callable(found) else found.callback())
    command = typer.main.get_command(alone)
    command.name = name
    return command


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
tsfmscope forecast chronos-bolt-mini mine.csv --horizon 28 --out forecast.png
tsfmscope inspect chronos-bolt-mini nile   # isotropy, dimension and rank of every layer
tsfmscope embed chronos-bolt-mini nile     # one vector per series
tsfmscope compress chronos-bolt-mini smaller --to 0.25 --data nile --context 64

Exit codes: 0 success, 1 the work failed, 2 the command or params.yaml must be fixed, 3 `certify` needs
more tasks, 4 `certify` does not certify, 130 interrupted. A checkout has the commands of the pipeline too.
"""

app = typer.Typer(
    name=PROGRAM, cls=Group, help=HELP, add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False,
    rich_markup_mode=None, context_settings={"max_content_width": 100, **HELP_OPTIONS},
)  # fmt: skip


def _version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"{PACKAGE} {version()}")
        raise typer.Exit()


@app.callback()
def main_options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
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
