"""Windows of every data set under every condition, tokenised by every model: one dump a cell."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from stages import DATA, planning
from stages.blocks import WITHOUT_TOKENS, Measure
from stages.params import Params
from stages.sweeping import Planned, opened, sweep
from store.dumps import dump_metadata, read_table
from tasks.sweep.jobs import Job, Task

TASK = Task("tokenize", 2, "tasks.models.tokenize:tokenize", "tasks.models.registry:load_for_job", table="dumps")


def main(params: Params) -> None:
    """Write data/tokens."""
    with opened("tokens", ["dumps"], params) as out:
        sweep(out, plan(params), params, functools.partial(read_table, Path.cwd()))
        out.write("skipped", skipped())


def plan(params: Params) -> Iterator[Planned]:
    """One job a cell."""
    models = planning.checkpoints()
    for cell, studies in planning.cells(params, set(get_args(Measure)) - WITHOUT_TOKENS, models).items():
        series = planning.series_file(params, cell.dataset)
        job = Job(TASK, spec(params, cell, models[cell.model]), planning.inputs(models[cell.model], series), cell.model)
        yield Planned(job, studies)


def spec(params: Params, cell: planning.Cell, model: Mapping[str, Any]) -> dict[str, Any]:
    """Of the job of a cell. model: its row of `checkpoints`."""
    return {
        **planning.identity(params, cell),
        **planning.windows_spec(params, cell, params.tokens.min_context),
        **planning.model_spec(model),
        "rows": params.tokens.rows,
        "format": "arrow",
    }


def skipped() -> Iterator[dict[str, Any]]:
    """Series that gave no window, counted by reason: the dumps' metadata say so."""
    for row in planning.dumps("tokens"):
        metadata = dump_metadata(Path(DATA, "tokens", row["path"]))
        for reason, n in json.loads(metadata.get(b"skipped", "{}")).items():
            cell = {name: row[name] for name in ("model", "dataset", "condition")}
            yield {"stage": "tokens", **cell, "reason": reason, "n": n}
