"""Command `tsfmscope compress`: a smaller checkpoint of a model, and its cost on the user's data."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

import typer

from tsfmscope.cli.certify import CODES
from tsfmscope.cli.from_function import Command
from tsfmscope.cli.output import print_table
from tsfmscope.errors import printable
from tsfmscope.files import check_new
from tsfmscope.functions.compress import CompressedModel, compress

EXAMPLES = """
tsfmscope compress chronos-bolt-mini smaller --to 0.25 --data nile --context 64
tsfmscope compress chronos-bolt-mini smaller-half --to 0.5 --data mine.csv --data nile --horizon 12 --json
tsfmscope compress chronos-bolt-mini smallest --certified 0.02 --data mine.csv

Exit codes with --certified and --data are those of `tsfmscope certify`.
"""
# Heading of the table of data sets -> column of the tasks.
COLUMNS = {
    "data set": "dataset", "series": "n_series", "WQL before": "wql_base", "WQL after": "wql_small", "ratio": "ratio",
}  # fmt: skip
LADDER = (
    "method", "share asked", "share of the file", "ratio of WQL", "upper limit", "largest", "coverage", "seconds", "",
)  # fmt: skip
Folder = Annotated[Path, typer.Argument(help="New folder for the compressed model.")]


def _save(model: CompressedModel, folder: Path) -> dict[str, Any]:
    """Save the model and return the JSON document."""
    model.save(folder)
    costs = model.costs.astype(object).where(model.costs.notna(), None).to_dict("records")
    facts: dict[str, Any] = {"costs": costs, "calibration": dict(model.windows), "folder": str(folder)}
    if model.ladder:
        facts["search"] = model.record["search"]
    if model.license is not None:
        facts |= model.license.columns
    return facts | (model.judged.facts() if model.judged else {})


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
    lines += [model.note] if model.note else []
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
    chosen = (
        f"chosen on series that are not yours: {best.method} {best.requested:g}, {best.share:.3f} of the bytes, "
        f"{size / 1000:,.0f} kB"
    )
    if judged is None:
        base = model.record["recipe"]["base_model"]
        return [chosen, f"not certified: no data; next: tsfmscope certify {base} {folder} --data YOURS.csv"]
    if search["outcome"] != "certified":
        chosen += "; recipe.json says that it is not certified, and no other size was tried on your data"
    return [chosen, f"next: tsfmscope forecast {folder} {judged.tasks[0]['data']}"]


def _show(model: CompressedModel, folder: Path) -> None:
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
    for sentence in _sentences(model, folder):
        typer.echo(printable(sentence))


COMMAND = Command(
    compress, _show, _save, EXAMPLES, extras={"folder": (Folder, Parameter.empty)}, before=check_new,
    without=("precision",),
    exit_code=lambda model: CODES[model.judged.certificate.outcome] if model.ladder and model.judged else 0,
)  # fmt: skip
