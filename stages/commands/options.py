"""Options that several commands of the pipeline have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stages import DATA
from tsfmscope.cli.output import Json

# Outputs of the stages, and the results that the stage `tables` builds from them.
DATA_FOLDER = Path(DATA)
RESULTS = DATA_FOLDER / "results.duckdb"

DataFolder = Annotated[Path, typer.Option(help="Folder of the stages' outputs.")]
Results = Annotated[
    Path, typer.Option(help="DuckDB file of the results, or a folder that `tsfmscope save-results` wrote.")
]

__all__ = ["DATA_FOLDER", "RESULTS", "DataFolder", "Json", "Results"]
