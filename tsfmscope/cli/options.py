"""Arguments and options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stages import DATA
from stages.config import LARGEST_SEED
from tsfmscope.defaults import CONTEXT, HORIZON, MAX_CONTEXT, MIN_CONTEXT, Precision
from tsfmscope.series.files.columns import Columns

# Outputs of the stages, and the results that the stage `tables` builds from them.
DATA_FOLDER = Path(DATA)
RESULTS = DATA_FOLDER / "results.duckdb"


Model = Annotated[
    str,
    typer.Argument(help="Model name in params.yaml, FAMILY:FOLDER, hub:ORG/NAME, FAMILY:hub:ORG/NAME or a folder."),
]
Data = Annotated[str, typer.Argument(help="CSV or Parquet file, folder of such files, or name of a data set.")]
Time = Annotated[
    list[str] | None,
    typer.Option(
        help="Column of times in a file, repeated for a date and a time of day; default: the column named ds, "
        "timestamp or date, or of dates."
    ),
]
Id = Annotated[
    list[str] | None,
    typer.Option(
        "--id",
        help="Column of series ids in a file, repeated where several columns name a series; default: the column named "
        "unique_id, item_id or series.",
    ),
]
Value = Annotated[
    list[str] | None,
    typer.Option(help="Columns of values in a file, with commas; default: y or target next to ids, else all numbers."),
]
TimeFormat = Annotated[
    str | None,
    typer.Option(
        help="Format of the times in a file, such as %d/%m/%Y, or s, ms, us, ns since 1970; default: ISO 8601, or what "
        "fits all rows."
    ),
]
TimeZone = Annotated[
    str | None,
    typer.Option("--tz", help="Time zone of the times in a file, such as Europe/Berlin; default: none, or their own."),
]
Season = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Season of the series in files, in steps; default: 7 for days, 52 for weeks, 24 for hours and so on.",
    ),
]
Family = Annotated[
    str | None, typer.Option(help="Model family; needed only where the model's config.json does not name it.")
]
Context = Annotated[
    int | None,
    typer.Option(
        min=MIN_CONTEXT, max=MAX_CONTEXT, help=f"Number of context steps; default: that of params.yaml, or {CONTEXT}."
    ),
]
Horizon = Annotated[
    int | None,
    typer.Option(
        min=1, max=1024, help=f"Number of steps after the context; default: that of the data set, or {HORIZON}."
    ),
]
MaxSeries = Annotated[
    int | None, typer.Option(min=1, help="Largest number of series; more series are sampled with the seed.")
]
Seed = Annotated[
    int | None, typer.Option(min=0, max=LARGEST_SEED, help="Seed of every random sample; default: that of params.yaml.")
]
Device = Annotated[str, typer.Option(help="Device that runs the model: cpu, cuda or cuda:N.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else on stdout.")]
DataSets = Annotated[
    list[str],
    typer.Option(
        "--data", help="File, data set, or folder whose files are a data set each; repeat the option for more."
    ),
]
RunPrecision = Annotated[
    Precision | None, typer.Option(help="Precision that runs the model; default: the model's own, or float32.")
]
DataFolder = Annotated[Path, typer.Option(help="Folder of the stages' outputs.")]
Results = Annotated[
    Path, typer.Option(help="DuckDB file of the results, or a folder that `tsfmscope save-results` wrote.")
]


def name_columns(
    time: list[str] | None,
    series_id: list[str] | None,
    value: list[str] | None,
    time_format: str | None,
    tz: str | None = None,
    season: int | None = None,
) -> Columns:
    """Return the columns that --time, --id, --value, --time-format, --tz and --season describe."""
    values = tuple(name for text in value or () for name in text.split(","))
    return Columns(tuple(time or ()) or None, tuple(series_id or ()) or None, values, time_format, tz, season)
