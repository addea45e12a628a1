"""Commands of `tsfmscope`, and its exit codes."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tsfmscope.stages.cli import compress, doctor, inspect, new_study, recommend, report, sql
from tsfmscope.stages.config.params import ParamsError
from tsfmscope.stages.pipeline.system_errors import describe, drop_output
from tsfmscope.store.errors import StoreError
from tsfmscope.store.printable import printable
from tsfmscope.tasks.errors import TsfmscopeError

# Exit codes other than 0; docs/cli.md lists the cases.
FAILED, USAGE = 1, 2


class Group(TyperGroup):
    """Group of commands whose errors are one line on stderr.

    Exit code 2: an error that the user can fix in the command or params.yaml. Exit code 1: the work failed.
    """

    def invoke(self, ctx: Any) -> Any:
        """Run the command and turn known errors into one line and an exit code."""
        try:
            return super().invoke(ctx)
        except ParamsError as error:
            code, message = USAGE, str(error)
        except (TsfmscopeError, StoreError) as error:
            code, message = FAILED, str(error)
        except BrokenPipeError:
            raise
        except OSError as error:
            code, message = FAILED, describe(error)
            drop_output()
        print(printable(f"tsfmscope: {message}", keep="\n\t"), file=sys.stderr)
        raise typer.Exit(code)


HELP = """Look inside time-series foundation models.

\b
tsfmscope doctor                           # what is installed here, and what to do about what is not
tsfmscope inspect chronos-bolt-nano nile   # isotropy, dimension and rank of every layer
tsfmscope recommend nile --models chronos-bolt-nano,patchtst-nano --contexts 32,64
tsfmscope compress chronos-bolt-nano smaller --to 0.25 --data nile --context 64
tsfmscope sql "select 6 * 7 as answer"     # SQL over the results
tsfmscope report                           # where the page of the results is
tsfmscope new study mine --models chronos-bolt-nano --datasets nile --conditions context-500

Exit codes: 0 fine, 1 the work failed, 2 the command or params.yaml is to be mended.
"""

app = typer.Typer(
    name="tsfmscope",
    cls=Group,
    help=HELP,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
new = typer.Typer(help="Add to params.yaml.", rich_markup_mode=None, no_args_is_help=True)
app.command("doctor")(doctor.doctor)
app.command("inspect")(inspect.inspect)
app.command("recommend")(recommend.recommend)
app.command("compress")(compress.compress)
app.command("sql", context_settings=sql.SETTINGS)(sql.sql)
app.command("report")(report.report)
app.add_typer(new, name="new")
new.command("study")(new_study.study)


def _version(asked: bool) -> None:
    if asked:
        from tsfmscope.stages.config.defaults import PACKAGE, version

        typer.echo(f"{PACKAGE} {version()}")
        raise typer.Exit()


@app.callback()
def about(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """Define the options of `tsfmscope` itself."""


def main() -> None:
    """Run the console script `tsfmscope`."""
    try:
        app(prog_name="tsfmscope")
    except BrokenPipeError:
        raise
    # Raised by output that is printed before a command is reached, such as help.
    except OSError as error:
        drop_output()
        print(f"tsfmscope: {describe(error)}", file=sys.stderr)
        sys.exit(FAILED)
