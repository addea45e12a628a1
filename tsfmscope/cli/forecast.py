"""Command `tsfmscope forecast`: quantiles of the steps after every series."""

from __future__ import annotations

from typing import Any

import typer

from tsfmscope.cli.from_function import Command
from tsfmscope.cli.output import print_table
from tsfmscope.errors import printable
from tsfmscope.functions.forecast import SUFFIXES, ForecastResult, forecast

EXAMPLES = """
tsfmscope forecast chronos-bolt-mini mine.csv --horizon 28 --out forecast.csv
tsfmscope forecast chronos-bolt-mini mine.csv --horizon 28 --out forecast.png
tsfmscope forecast patchtst-mini mine.csv --context 128 --tz Europe/Berlin --json
"""
# Rows that the table shows; a file and JSON contain all of them.
ROWS = 8
FILES = "File: .csv or .parquet (the table), .png, .svg or .pdf (a picture of six series)"


def _forecast_json(result: ForecastResult) -> dict[str, Any]:
    rows = result.frame.assign(timestamp=result.frame["timestamp"].astype(str)).to_dict("records")
    skipped = [{"item_id": skip.series, "reason": skip.reason} for skip in result.skipped]
    return {"title": result.title, "forecasts": rows, "skipped": skipped, **result.license.columns}


def _show_forecast(result: ForecastResult) -> None:
    shown = result.frame.head(ROWS)[["item_id", "timestamp", "0.1", "mean", "0.9"]]
    rows = [[row[0], str(row[1]), *row[2:]] for row in shown.itertuples(index=False)]
    print_table(result.title, [str(name) for name in shown], rows)
    if len(result.frame) > ROWS:
        typer.echo(f"{ROWS} of {len(result.frame):,} rows; --out FILE and --json give all of them, and all quantiles")
    typer.echo("mean: the median of the forecast; 0.1 and 0.9: ends of the 80 % interval")
    typer.echo(printable(str(result.license)))


COMMAND = Command(forecast, _show_forecast, _forecast_json, EXAMPLES, files=(FILES, SUFFIXES))
