"""Stage tokens: windows of every data set under every condition, tokenised by every model.

There is one dump per cell.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from stages import DATA
from stages.config.blocks import WITHOUT_TOKENS, Measure
from stages.config.params import Params
from stages.planning import planning
from stages.planning.sweeping import PlannedJob, open_store, sweep
from store.dumps import dump_metadata, read_table
from tasks.job import Job, Task
from tasks.tokens import TokenOptions, TokensSpec

TASK = Task("tokenize", 4, "tasks.tokens:tokenize", "tasks.parts:load_model", table="dumps")


def main(params: Params) -> None:
    """Write data/tokens."""
    with open_store("tokens") as out:
        sweep(out, plan(params), params, functools.partial(read_table, Path.cwd()))
        out.write("skipped", list_skipped())


def plan(params: Params) -> Iterator[PlannedJob]:
    """Yield one job per cell."""
    models = planning.checkpoints()
    for cell, studies in planning.cells(params, set(get_args(Measure)) - WITHOUT_TOKENS, models).items():
        series = planning.series_file(params, cell.dataset)
        of_cell = spec(params, cell, models[cell.model]).to_dict()
        yield PlannedJob(Job(TASK, of_cell, planning.inputs(models[cell.model], series), cell.model), studies)


def spec(params: Params, cell: planning.Cell, model: Mapping[str, Any]) -> TokensSpec:
    """Return the spec of a cell's job. model: the model's row of `checkpoints`."""
    return TokensSpec(
        **dict(planning.identity(params, cell)),
        **dict(planning.window_options(params, cell, params.tokens.min_context)),
        **dict(planning.model_source(model)),
        **params.tokens.part(TokenOptions),
        format="arrow",
    )


def list_skipped() -> Iterator[dict[str, Any]]:
    """Yield the number of series without a window by cell and reason, from the metadata of the dumps."""
    for row in planning.dumps("tokens"):
        metadata = dump_metadata(Path(DATA, "tokens", row["path"]))
        for reason, n in json.loads(metadata.get(b"skipped", "{}")).items():
            cell = {name: row[name] for name in ("model", "dataset", "condition")}
            yield {"stage": "tokens", **cell, "reason": reason, "n": n}
