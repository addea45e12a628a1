"""Command `tsfmscope report`: the page of the results, which the stage report builds."""

from __future__ import annotations

import shutil
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from tsfmscope.stages import DATA
from tsfmscope.stages.cli.output import Json, say_json
from tsfmscope.stages.config.params import ParamsError, load

RESULTS = Path(DATA, "results.duckdb")


def report(
    build: Annotated[
        bool, typer.Option("--build", help="Build it anew, as `python -m tsfmscope.stages report` does.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Copy it there: one file that needs no other.")] = None,
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    as_json: Json = False,
) -> None:
    """Print where the page of the results is; build it if it is missing or --build is given.

    \b
    tsfmscope report
    tsfmscope report --out results.html
    tsfmscope report --json
    """
    from tsfmscope.stages.pipeline.report_figures import FIGURES
    from tsfmscope.stages.report import PAGE

    if not RESULTS.exists():
        raise ParamsError(f"{RESULTS}: no results in this folder; run `dvc repro`, or go where they are")
    built = build or not PAGE.exists()
    if built:
        _build(quiet=as_json)
    place = PAGE
    if out is not None:
        try:
            shutil.copyfile(PAGE, out)
        except OSError as error:
            raise ParamsError(f"--out {out}: cannot be written ({error.strerror}); name another place") from None
        place = out
    # A run of DVC writes the page last, so a page older than the results belongs to an earlier run.
    stale = not built and PAGE.stat().st_mtime < RESULTS.stat().st_mtime
    figures = len(list(FIGURES.glob("*.png")))
    if as_json:
        say_json(
            {"page": str(place), "bytes": place.stat().st_size, "figures": figures, "built": built, "stale": stale}
        )
    else:
        typer.echo(f"{place}: {place.stat().st_size / 1e6:.1f} MB; {figures} figures in {FIGURES}")
        if stale:
            typer.echo(f"{RESULTS} is newer: --build makes the page anew")
    if show and not webbrowser.open(place.resolve().as_uri()):
        raise ParamsError(f"--open: no browser answers here; open {place.resolve()} yourself")


def _build(*, quiet: bool) -> None:
    import contextlib
    import sys

    from tsfmscope.stages.report import main

    with contextlib.redirect_stdout(sys.stderr) if quiet else contextlib.nullcontext():
        main(load())
