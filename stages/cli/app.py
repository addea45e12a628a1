"""What `tsfm-lens` understands, and its exit codes."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from stages.cli import advise, compress, doctor, look, page, sql, study
from stages.params import ParamsError
from store.errors import StoreError
from tasks.errors import TsfmLensError

FAILED, USAGE = 1, 2  # exit codes beside 0; docs/cli.md says when


class Group(TyperGroup):
    """Commands whose errors are one line on stderr: exit 2 for what the user can mend in words, 1 for failed work."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except ParamsError as error:
            code, message = USAGE, str(error)
        except (TsfmLensError, StoreError) as error:
            code, message = FAILED, str(error)
        print(f"tsfm-lens: {message}", file=sys.stderr)
        raise typer.Exit(code)


HELP = """Look inside time-series foundation models.

\b
tsfm-lens doctor                           # what is installed here, and what to do about what is not
tsfm-lens look chronos-bolt-nano nile      # isotropy, dimension and rank of every layer
tsfm-lens advise nile --models chronos-bolt-nano,patchtst-nano --contexts 32,64
tsfm-lens compress chronos-bolt-nano smaller --to 0.25 --data nile --context 64
tsfm-lens sql "select 6 * 7 as answer"     # SQL over the results
tsfm-lens report                           # where the page of the results is
tsfm-lens new study mine --models chronos-bolt-nano --datasets nile --conditions context-500

Exit codes: 0 fine, 1 the work failed, 2 the command or params.yaml is to be mended.
"""

app = typer.Typer(
    name="tsfm-lens",
    cls=Group,
    help=HELP,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
new = typer.Typer(help="Add to params.yaml.", rich_markup_mode=None, no_args_is_help=True)
app.command("doctor")(doctor.doctor)
app.command("look")(look.look)
app.command("advise")(advise.advise)
app.command("compress")(compress.compress)
app.command("sql", context_settings=sql.SETTINGS)(sql.sql)
app.command("report")(page.report)
app.add_typer(new, name="new")
new.command("study")(study.study)


def _version(asked: bool) -> None:
    if asked:
        from stages.defaults import PACKAGE, version

        typer.echo(f"{PACKAGE} {version()}")
        raise typer.Exit()


@app.callback()
def about(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """Before any command."""


def main() -> None:
    """The console script."""
    app(prog_name="tsfm-lens")
