"""Commands before and during a run: `tsfmscope plan`, `profile`, `status`, `failures` and `retry`."""

from __future__ import annotations

import shutil
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stages.commands import DATA_FOLDER, DataFolder
from stages.commands.results import Format, print_rows
from stages.config.params import PARAMS_FILE, ParamsError
from tsfmscope.cli.output import Json, print_json, print_table, stdout_for_json

if TYPE_CHECKING:
    from stages.planning.planned_work import PlannedContext
    from store.status import Status

PROFILES = Path("params")


def plan(
    params: Annotated[Path, typer.Argument(help="Params file.")] = Path(PARAMS_FILE), as_json: Json = False
) -> None:
    """Check a params file and print the size of its studies.

    \b
    tsfmscope plan
    tsfmscope plan params.yaml --json

    It works offline. It prints how many models, data sets and cells each study has, the observed steps of every
    context length, as far as the data are on this machine, and the jobs, rows, bytes and seconds of each model and
    stage, extrapolated from its finished jobs in data/. Exit codes: 0, 2 if the params file must be fixed.
    """
    from stages.planning.planned_work import check_params, context_lines, planned_contexts, planned_work, study_sizes

    checked = check_params(params)
    sizes = study_sizes(checked)
    contexts, absent = planned_contexts(checked)
    totals = {"models": len(checked.models), "datasets": len(checked.datasets.sets)}
    totals |= {"conditions": len(checked.conditions), "rows": checked.embeddings.rows}
    work = planned_work(checked)
    if as_json:
        lengths = []
        for dataset, context, observed in contexts:
            steps = {name: getattr(observed, name, None) for name in ("minimum", "median")}
            is_filled = observed is not None and observed.is_filled
            lengths.append({"dataset": dataset, "context": context, **steps, "is_filled": is_filled})
        document = {"file": str(params), "studies": sizes, "contexts": lengths, "absent": absent} | totals
        print_json(document | {"work": work})
        return
    print_table(
        str(params), ["study", "models", "data sets", "conditions", "cells"], [list(row.values()) for row in sizes]
    )
    _show_contexts(contexts)
    for line in context_lines(contexts, absent):
        typer.echo(line)
    typer.echo(
        f"{totals['models']} models, {totals['datasets']} data sets, {totals['conditions']} conditions; "
        f"{totals['rows']} tokens of every layer are kept of each cell"
    )
    _show_work(work)


def profile(
    name: Annotated[str, typer.Argument(help="Name of a file in params/, without .yaml.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite edits of params.yaml.")] = False,
) -> None:
    """Copy a file of params/ over params.yaml.

    \b
    tsfmscope profile smoke

    The file is checked first, and its plan is printed. A params.yaml with edits stays, unless --force is
    given.
    """
    plan(profile_file(name))
    use_profile(name, force=force)


def _show_work(work: list[dict[str, Any]]) -> None:
    """Print one line per stage: sums over the models of which jobs are finished, and the cells of the others."""
    lines = []
    for stage in dict.fromkeys(row["stage"] for row in work):
        rows = [row for row in work if row["stage"] == stage]
        known = [row for row in rows if row["seconds"] is not None]
        jobs, n_rows, size, seconds = (sum(row[name] for row in known) for name in ("jobs", "rows", "bytes", "seconds"))
        unknown = sum(row["cells"] for row in rows if row["seconds"] is None)
        sums = [jobs, n_rows, size / 1e9, seconds] if known else [None] * 4
        lines.append([stage, sum(row["cells"] for row in rows), unknown, *sums])
    columns = ["stage", "cells", "of these without a measurement", "jobs", "rows", "GB", "seconds of one worker"]
    if lines:
        print_table("work, extrapolated from the finished jobs of each model", columns, lines)


def _show_contexts(contexts: list[PlannedContext]) -> None:
    """Print the observed steps of every context by data set."""
    lengths = sorted({planned.context for planned in contexts})
    cells = {
        (planned.dataset, planned.context): "no window"
        if planned.observed is None
        else f"{planned.observed.minimum} / {planned.observed.median:g}"
        for planned in contexts
    }
    names = dict.fromkeys(planned.dataset for planned in contexts)
    lines = [[name, *(cells.get((name, length), "") for length in lengths)] for name in names]
    if lengths:
        title = "observed steps: minimum / median"
        print_table(title, ["data set", *(f"context {length}" for length in lengths)], lines)


def profile_file(name: str) -> Path:
    """Return the file of a profile. Raises ParamsError, with the names of all profiles, if there is none."""
    path = PROFILES / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in PROFILES.glob("*.yaml"))) or "none"
        raise ParamsError(f"no profile {name!r} in {PROFILES}; known: {known}")
    return path


def use_profile(name: str, *, force: bool = False) -> None:
    """Copy params/NAME.yaml over params.yaml.

    Raises ParamsError if there is no such profile, or if params.yaml has edits that would be lost. force:
    overwrite the edits.
    """
    profile, target = profile_file(name), Path(PARAMS_FILE)
    if not force and has_edits(target):
        raise ParamsError(
            f"{target} has edits that are neither in a profile nor in git's last commit; save them with "
            f"`cp {target} {PROFILES}/mine.yaml` and use `make profile NAME=mine` later, or discard them with "
            f"`make profile NAME={name} FORCE=1`"
        )
    shutil.copyfile(profile, target)


def has_edits(path: Path) -> bool:
    """Return whether a params file differs from every profile and from the version in git's last commit.

    Returns False if there is no such file.
    """
    if not path.exists():
        return False
    content = path.read_bytes()
    if any(profile.read_bytes() == content for profile in PROFILES.glob("*.yaml")):
        return False
    committed = subprocess.run(["git", "show", f"HEAD:./{path}"], capture_output=True, check=False)
    return committed.returncode != 0 or committed.stdout != content


def status(data: DataFolder = DATA_FOLDER, as_json: Json = False) -> None:
    """Print the progress of every stage, also while it runs.

    \b
    tsfmscope status
    tsfmscope status --json
    """
    from store.status import FOLDER, read_statuses

    folder = data / FOLDER.name
    statuses = read_statuses(folder)
    if not statuses:
        raise ParamsError(f"no status in {folder}: no stage that runs jobs has run here yet; `dvc repro` runs them")
    rows = [_row(status, alive=alive) for status, alive in statuses]
    if as_json:
        print_json(rows)
        return
    columns = ["stage", "state", "planned", "reused", "done", "running", "failed", "left", "jobs/s", "time left"]
    lines = []
    for row in rows:
        *cells, rate, left = row.values()
        duration = None if left is None else str(timedelta(seconds=round(left)))
        lines.append([*cells, f"{rate:.3g}" if rate else None, duration])
    print_table("", columns, lines)


def _row(status: Status, *, alive: bool) -> dict[str, Any]:
    from store.status import state

    return {
        "stage": status.stage,
        "state": state(status, alive=alive),
        "planned": status.planned,
        "reused": status.reused - status.passed_over,
        "done": status.done,
        "running": status.running if alive else 0,
        "failed": status.failed + status.passed_over,
        "left": status.remaining,
        "jobs_per_second": status.rate,
        "seconds_left": status.seconds_left if alive else None,
    }


def failures(
    full: Annotated[bool, typer.Option("--full", help="Print whole messages and tracebacks.")] = False,
    data: DataFolder = DATA_FOLDER,
    as_json: Json = False,
) -> None:
    """Print the failed jobs of every stage.

    \b
    tsfmscope failures
    tsfmscope failures --full --json
    """
    from store.stage_outputs import list_failures

    if not any(path.is_dir() for path in data.glob("[!.]*")):
        raise ParamsError(f"no results in {data}; `make repro` (or `dvc repro`) makes them, `dvc pull` brings them")
    print_rows(list_failures(data, full=full), Format.json if as_json else Format.table)


def retry(as_json: Json = False) -> None:
    """Run the failed jobs of all stages again.

    \b
    tsfmscope retry
    """
    from stages.planning.run_stage import run_stage
    from stages.planning.sweeping import RETRY_VARIABLE, stages_with_failures
    from tasks.sweep.cluster import environment

    with stdout_for_json(as_json), environment({RETRY_VARIABLE: "1"}):
        stages = stages_with_failures()
        if stages:
            print(f"retrying {', '.join(stages)}", flush=True)
        for name in stages:
            run_stage(name)
    if as_json:
        print_json({"stages": stages})
    else:
        typer.echo("now run `dvc repro`, so that what depends on them follows" if stages else "no stage has failures")
