"""Command `tsfmscope compress`: a smaller checkpoint of a model, and its cost on the user's data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from tsfmscope.cli.certify import CODES
from tsfmscope.cli.from_function import Command
from tsfmscope.cli.output import print_lines, print_table
from tsfmscope.files import check_new
from tsfmscope.functions.compress import CompressedModel, compress
from tsfmscope.functions.faster import FasterModel

EXAMPLES = """
tsfmscope compress chronos-bolt-mini smaller --to 0.25 --data nile --context 64
tsfmscope compress chronos-bolt-mini smaller-half --to 0.5 --data mine.csv --data nile --horizon 12 --json
tsfmscope compress chronos-bolt-mini smallest --certified 0.02 --data mine.csv
tsfmscope compress chronos-bolt-mini fast --faster --data mine.csv

Exit codes with --certified or --faster and --data are those of `tsfmscope certify`.
"""
# Heading of the table of data sets -> column of the tasks.
COLUMNS = {
    "data set": "dataset", "series": "n_series", "WQL before": "wql_base", "WQL after": "wql_small", "ratio": "ratio",
}  # fmt: skip
LADDER = ("share asked", "share of the file", "ratio of WQL", "upper limit", "largest", "coverage", "seconds", "")
# Heading of the table of ways -> column, and the unit that it is shown in.
WAYS = {
    "of all settings": ("ratio", 1), "start, s": ("start_seconds", 1), "memory, MB": ("memory_bytes", 1e6),
    "file, kB": ("file_bytes", 1e3), "WQL": ("wql_ratio", 1), "limit": ("wql_limit", 1),
}  # fmt: skip
Folder = Annotated[Path, typer.Argument(help="New folder for the compressed model.")]


def _save(model: CompressedModel | FasterModel, folder: Path) -> dict[str, Any]:
    """Save the model and return the JSON document."""
    model.save(folder)
    if isinstance(model, FasterModel):
        tables = {"ways": _records(model.ways), "seconds": _records(model.seconds)}
        chosen = {"ratios_over": model.base, "chosen": model.chosen, **tables, "folder": str(folder)}
        return chosen | model.license.columns | (model.judged.facts() if model.judged else {})
    costs = _records(model.costs)
    facts: dict[str, Any] = {"costs": costs, "calibration": dict(model.windows), "folder": str(folder)}
    if model.ladder:
        facts["search"] = model.record["search"]
    if model.license is not None:
        facts |= model.license.columns
    return facts | (model.judged.facts() if model.judged else {})


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table; missing and infinite values are None."""
    finite = table.replace([math.inf, -math.inf], math.nan)
    rows = finite.astype(object).where(finite.notna(), None).to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in rows]


def _ratio(row: Mapping[str, Any]) -> Any:
    """Return the cell of a ratio; one with an interval that contains 1 is not printed."""
    low, high = row["ratio_low"], row["ratio_high"]
    if low is None:
        return row["ratio"]
    interval = f"{low:.2f} to {high:.2f}"
    return f"not distinguishable from 1 ({interval})" if low <= 1 <= high else f"{row['ratio']:.2f} ({interval})"


def _sentences(model: CompressedModel, folder: Path) -> list[str]:
    lines = [
        "wql (pooled) and mase (mean): over windows in the last fifth of the series, lower is better; bytes: of the "
        "weights in memory; file_bytes: of the files of weights in the saved checkpoint",
        "seconds: of the fastest forecast; its ratio: median of forecasts of both models in turn, and interval",
    ]
    if model.windows:
        lines.append(f"calibration windows: {', '.join(f'{name} {n}' for name, n in model.windows.items())}")
    lines += [str(model.license), f"saved: {folder}; `tsfmscope inspect {folder} DATA` measures it"]
    if (judged := model.judged) is not None:
        seasons = ", ".join(dict.fromkeys(f"{row['dataset']} {row['season']}" for row in judged.tasks))
        lines.insert(1, f"mase: over the error of repeating the last season, in steps: {seasons}")
        lines += [*judged.notes(), judged.describe_scope(), judged.describe_exclusion(), judged.describe_outcome()]
    if model.ladder:
        lines += _search_sentences(model, folder)
    return lines


def _search_sentences(model: CompressedModel, folder: Path) -> list[str]:
    """Return what was chosen, and the next command."""
    search, judged = model.record["search"], model.judged
    best = [rung for rung in model.ladder if rung.passes][-1]
    (size,) = model.costs.loc[model.costs["quantity"] == "file_bytes", "after"]
    chosen = f"chosen on series that are not yours: {best.share:.3f} of the bytes, {size / 1000:,.0f} kB"
    if judged is None:
        base = model.record["recipe"]["base_model"]
        return [chosen, f"not certified: no data; next: tsfmscope certify {base} {folder} --data YOURS.csv"]
    if search["outcome"] != "certified":
        chosen += "; recipe.json says that it is not certified, and no other size was tried on your data"
    return [chosen, f"next: tsfmscope forecast {folder} {judged.tasks[0]['data']}"]


def _in_unit(value: float | None, unit: float) -> float | None:
    """Return a value in a unit; rounded to a whole number unless the unit is 1."""
    return value if value is None or unit == 1 else round(value / unit)


def _show_ways(model: FasterModel) -> None:
    """Print the seconds of all ways by number of threads, and what they take and lose."""
    measured = [row for row in _records(model.ways) if row["reason"] is None]
    cells = {
        (row["way"], row["threads"], row["batch"]): f"{row['ratio']:.2f} ({row['low']:.2f} to {row['high']:.2f})"
        for row in _records(model.seconds)
    }
    batches = list(dict.fromkeys(batch for _, _, batch in cells))
    for threads in dict.fromkeys(threads for _, threads, _ in cells):
        title = f"{model.name}: seconds over those of {model.base}, {threads} thread{'s' if threads > 1 else ''}"
        print_table(title, ["", *(f"{batch} series" for batch in batches)], [
            [row["way"], *(cells[row["way"], threads, batch] for batch in batches)] for row in measured
        ])  # fmt: skip
    print_table("", ["", *WAYS], [
        [row["way"], *(_in_unit(row[name], unit) for name, unit in WAYS.values())] for row in measured
    ])  # fmt: skip
    missing = [row for row in _records(model.ways) if row["reason"] is not None]
    print_lines(f"not measured: {row['way']}: {row['reason']}" for row in missing)


def _ways_sentences(model: FasterModel, folder: Path) -> list[str]:
    """Return the choice in words, what a user could run instead, and the certificate."""
    lines = [
        "seconds: median of forecasts in turn, and its interval; start: loading and the first forecast; memory: peak "
        "of the process; WQL: over torch's on series that are not yours, and the upper 95 % limit of the mean"
    ]
    rows = {row["way"]: row for row in _records(model.ways)}
    assert model.chosen is not None, "a model without a chosen way is not saved"
    chosen = rows[model.chosen]
    lines.append(
        f"chosen: {model.chosen}, {chosen['ratio']:.2f} ({chosen['low']:.2f} to {chosen['high']:.2f}) of the seconds "
        f"of {model.base}, geometric mean of all settings"
    )
    if others := [name for name, row in rows.items() if row["close"] and name != model.chosen]:
        lines.append(f"not distinguishable from it in seconds: {', '.join(others)}")
    faster = [row for row in rows.values() if row["usage"] and row["ratio"] < chosen["ratio"] and not row["close"]]
    lines += [f"faster, but no file: {row['way']} ({row['ratio']:.2f}): {row['usage']}" for row in faster]
    if (judged := model.judged) is not None:
        lines += [*judged.notes(), judged.describe_scope(), judged.describe_exclusion(), judged.describe_outcome()]
    data = model.judged.tasks[0]["data"] if model.judged else "YOURS.csv"
    return [*lines, str(model.license), f"saved: {folder}; next: tsfmscope forecast {folder} {data}"]


def _show(model: CompressedModel | FasterModel, folder: Path) -> None:
    if isinstance(model, FasterModel):
        _show_ways(model)
        model.save(folder)
        print_lines(_ways_sentences(model, folder))
        return
    costs = _save(model, folder)["costs"]
    if model.ladder:
        margin = model.record["search"]["margin"]
        print_table(f"search for an upper 95 % limit below {margin:g}; the first failure ends it", [*LADDER], [
            [*rung[:-1], "pass" if rung.passes else "fail"] for rung in model.ladder
        ])  # fmt: skip
    print_table(model.name, ["", "before", "after", "ratio"], [
        [row["quantity"], row["before"], row["after"], _ratio(row)] for row in costs
    ])  # fmt: skip
    if model.judged is not None and len(model.judged.tasks) > 1:
        print_table("", [*COLUMNS], [[row[name] for name in COLUMNS.values()] for row in model.judged.tasks])
        typer.echo("wql and mase of several data sets: geometric mean")
    print_lines(_sentences(model, folder))


def _exit_code(model: CompressedModel | FasterModel) -> int:
    """Return the exit code of the certificate of a search, 0 without one."""
    is_search = isinstance(model, FasterModel) or bool(model.ladder)
    return CODES[model.judged.certificate.outcome] if is_search and model.judged else 0


COMMAND = Command(
    compress, _show, _save, EXAMPLES, extras={"folder": (Folder, Parameter.empty)}, before=check_new,
    without=("precision",),
    exit_code=_exit_code,
)  # fmt: skip
