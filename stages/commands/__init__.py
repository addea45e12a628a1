"""Commands of the pipeline, which only a checkout has: `tsfmscope` adds them to those of the library."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stages import DATA

# Outputs of the stages, and the results that the stage `tables` builds from them.
DATA_FOLDER = Path(DATA)
RESULTS = DATA_FOLDER / "results.duckdb"

DataFolder = Annotated[Path, typer.Option(help="Folder of the stages' outputs.")]
Results = Annotated[
    Path, typer.Option(help="DuckDB file of the results, or a folder that `tsfmscope save-results` wrote.")
]
# Command -> module and function, and its line of `tsfmscope --help`.
COMMANDS = {
    "sql": ("stages.commands.results:sql", "Run SQL on the results."),
    "tables": ("stages.commands.results:tables", "List the tables, views and columns of the results."),
    "report": ("stages.commands.results:report", "Print where the results and their page are."),
    "save-results": ("stages.commands.results:save_results", "Save the results as a folder of Parquet files."),
    "test-results": ("stages.commands.results:infer_results", "Compute the statistics of saved results anew."),
    "new": ("stages.commands.new_study:app", "Add a block to params.yaml."),
    "plan": ("stages.commands.runs:plan", "Print the jobs of a run, before it."),
    "profile": ("stages.commands.runs:profile", "Copy a profile over params.yaml."),
    "status": ("stages.commands.runs:status", "Print the progress of a run."),
    "failures": ("stages.commands.runs:failures", "Print the failed jobs."),
    "retry": ("stages.commands.runs:retry", "Run the failed jobs again."),
    "corpus": ("stages.commands.pretraining:corpus", "Make a corpus of training series."),
    "commit-checkpoints": (
        "stages.commands.pretraining:commit_checkpoints",
        "Copy pretrained checkpoints to a folder kept by git.",
    ),
    "doctor": ("stages.commands.doctor:doctor", "Check what is installed, and print how to fix it."),
}
