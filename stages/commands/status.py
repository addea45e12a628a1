"""Command `tsfmscope status`: progress of the stages that run jobs."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from stages.commands.options import DATA_FOLDER, DataFolder, Json
from stages.config.params import ParamsError
from tsfmscope.cli.output import print_json, print_table

if TYPE_CHECKING:
    from store.status import Status


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
