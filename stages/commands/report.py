"""Command `tsfmscope report`: where the results and their page are."""

from __future__ import annotations

import shutil
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from stages.commands.options import RESULTS, Json
from stages.config.params import ParamsError
from tsfmscope.cli.output import print_json, stdout_for_json


def report(
    build: Annotated[bool, typer.Option("--build", help="Build the page anew.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="File for a copy of the page; run.html is copied next to it.")
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    as_json: Json = False,
) -> None:
    """Print where the results and their page are.

    \b
    tsfmscope report
    tsfmscope report --out results.html
    tsfmscope report --json

    The page is built if it is missing.
    """
    from stages.planning.report_figures import FIGURES
    from stages.planning.run_stage import run_stage
    from stages.report import PAGE, RUN_PAGE

    if not RESULTS.exists():
        raise ParamsError(
            f"no results at {RESULTS}; `make repro` (or `dvc repro`) makes them, `dvc pull` brings them; or run this "
            "in the folder that contains them"
        )
    built = build or not PAGE.exists()
    if built:
        with stdout_for_json(as_json):
            run_stage("report")
    page = PAGE
    if out is not None:
        try:
            shutil.copyfile(PAGE, out)
            if RUN_PAGE.exists():
                shutil.copyfile(RUN_PAGE, out.with_name(RUN_PAGE.name))
        except OSError as error:
            raise ParamsError(f"--out {out}: cannot be written ({error.strerror}); name another file") from None
        page = out
    # A run of DVC writes the page last, so a page older than the results belongs to an earlier run.
    stale = not built and PAGE.stat().st_mtime < RESULTS.stat().st_mtime
    figures = len(list(FIGURES.glob("*.png")))
    size = page.stat().st_size
    if as_json:
        facts = {"page": str(page), "bytes": size, "figures": figures, "built": built, "stale": stale}
        print_json({"results": str(RESULTS)} | facts)
    else:
        typer.echo(f'results: {RESULTS}  (tsfmscope sql "select * from correlation")')
        typer.echo(f"report:  {page}  ({size / 1e6:.1f} MB; {figures} figures in {FIGURES})")
        if stale:
            typer.echo(f"{RESULTS} is newer than the page; --build makes the page anew")
    if show and not webbrowser.open(page.resolve().as_uri()):
        raise ParamsError(f"--open: no browser is available; open {page.resolve()} yourself")
