"""Tables and picture of bench/compression_race.py."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.race_removals import ROUNDED
from stages.config.compression import METHOD as OURS
from tsfmscope.statistics import means

# Method -> size -> geometric mean of the errors, and its 95 % interval.
Table = dict[str, dict[float, tuple[float, float, float]]]


class Cell(NamedTuple):
    """One compressed model: the logarithms of its errors over the dense model's, by data set."""

    model: str
    method: str
    size: float
    seed: int
    logs: dict[str, float]


def mean_table(cells: Sequence[Cell]) -> Table:
    """Return by method and size the geometric mean of the errors, and its 95 % interval over models."""
    found: dict[str, dict[float, dict[str, list[float]]]] = {}
    for cell in cells:
        if cell.logs:
            by_model = found.setdefault(cell.method, {}).setdefault(cell.size, {})
            by_model.setdefault(cell.model, []).append(float(np.mean(list(cell.logs.values()))))
    table: Table = {}
    for method, by_size in found.items():
        for size, by_model in by_size.items():
            interval = means.mean(np.array([np.mean(logs) for logs in by_model.values()]))
            limits = np.exp([interval.estimate, interval.low, interval.high])
            table.setdefault(method, {})[size] = (float(limits[0]), float(limits[1]), float(limits[2]))
    return table


def with_mean_sizes(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells with one size, the mean, for each way of rounding, whose scales take other shares by model."""
    sizes = {name: [cell.size for cell in cells if cell.method == name] for name in ROUNDED}
    means_of = {name: round(float(np.mean(found)), 3) for name, found in sizes.items() if found}
    return [cell._replace(size=means_of.get(cell.method, cell.size)) for cell in cells]


def paired_cells(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells of the other methods with the logarithms of our error over theirs, on the same data sets."""
    ours = {(cell.model, cell.size, cell.seed): cell.logs for cell in cells if cell.method == OURS}
    return [
        cell._replace(
            logs={name: ours[cell.model, cell.size, cell.seed][name] - log for name, log in cell.logs.items()}
        )
        for cell in cells
        if cell.method != OURS and (cell.model, cell.size, cell.seed) in ours
    ]


def compare_by_size(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return per size the means of our error and of each model's best other method, and their ratio.

    rows: of `compare_cells`. The best other method is chosen on the scored data sets, which favours it. ratio: ours
    over the other, with Student's 95 % interval over models. least: number of models in which ours is smaller.
    """
    table = []
    for size in sorted({row["size"] for row in rows}, reverse=True):
        pairs = [(row["ours"], row["other"]) for row in rows if row["size"] == size]
        ours, others = np.log(np.array(pairs)).T
        interval = means.mean(ours - others)
        limits = [round(float(np.exp(value)), 3) for value in (interval.estimate, interval.low, interval.high)]
        table.append(
            {"size": size, "ours": round(float(np.exp(ours.mean())), 3),
             "other": round(float(np.exp(others.mean())), 3), "ratio": limits[0], "low": limits[1], "high": limits[2],
             "least": sum(own < other for own, other in pairs), "models": len(pairs)}
        )  # fmt: skip
    return table


def compare_cells(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Return for each model and size our error, the best other method, and the significantly better ones."""
    by_cell: dict[tuple[str, float], dict[str, dict[str, list[float]]]] = {}
    for cell in cells:
        if cell.logs and cell.method not in ROUNDED:
            by_method = by_cell.setdefault((cell.model, cell.size), {})
            for dataset, log in cell.logs.items():
                by_method.setdefault(cell.method, {}).setdefault(dataset, []).append(log)
    rows = []
    for (model, size), by_method in by_cell.items():
        logs = {name: np.array([np.mean(parts[key]) for key in sorted(parts)]) for name, parts in by_method.items()}
        if OURS not in logs:
            continue
        others = {name: values for name, values in logs.items() if name != OURS}
        better = sorted(name for name, values in others.items() if means.mean(logs[OURS] - values).low > 0)
        best = min(others, key=lambda name: float(others[name].mean()))
        rows.append(
            {"model": model, "size": size, "ours": round(float(np.exp(logs[OURS].mean())), 4), "best_other": best,
             "other": round(float(np.exp(others[best].mean())), 4), "better": better}
        )  # fmt: skip
    return rows


def draw(table: Table, path: Path) -> None:
    """Draw the means against the size, as PNG: our method in black with its interval, the others as thin lines."""
    import altair as alt

    from tsfmscope.report.charts import style
    from tsfmscope.report.render import convert_svg, draw_svg

    order = sorted(table, key=lambda method: -np.mean([one[0] for one in table[method].values()]))
    colours = {name: "black" if name == OURS else style.COLOURS[n % len(style.COLOURS)] for n, name in enumerate(order)}
    symbols = {name: style.SYMBOLS[n % len(style.SYMBOLS)] for n, name in enumerate(order)}
    rows: list[dict[str, Any]] = [
        {"method": method, "size": size, "mean": mean, "low": low, "high": high}
        for method in order
        for size, (mean, low, high) in sorted(table[method].items())
    ]
    means_of_all = [row["mean"] for row in rows]
    y = alt.Y("mean:Q", **style.make_log_axis("WQL over the dense model's, geometric mean", [*means_of_all, 1.0]))
    base = alt.Chart(alt.InlineData(rows)).encode(
        x=alt.X(
            "size:Q",
            **style.make_log_axis("share of the attention's bytes that is left", table[OURS], sorted(table[OURS])),
        )
    )
    of_ours = base.transform_filter(alt.datum.method == OURS)
    shape = alt.Shape("method:N", scale=style.map_values(symbols), title=None, legend=style.make_legend(order))
    colour = style.encode_stroke("method", colours)
    chart = alt.layer(
        style.draw_guide(y=1),
        base.mark_line(strokeWidth=1.1).encode(y=y, stroke=colour),
        of_ours.mark_line(strokeWidth=2.5, color="black").encode(y=y),
        of_ours.mark_area(opacity=0.12, color="black", clip=True).encode(y=style.copy_axis(y, "low"), y2="high:Q"),
        base.mark_point().encode(y=y, stroke=colour, fill=style.encode_fill("method", colours), shape=shape),
    ).properties(width=640, height=420)
    path.write_bytes(convert_svg(draw_svg(chart), ".png"))


def read_cells(path: Path | None) -> list[Cell]:
    """Return the cells of a file of JSON lines; a line that a stopped run broke off is left out."""
    cells = []
    for line in path.read_text().splitlines() if path and path.exists() else []:
        try:
            cells.append(Cell(**json.loads(line)))
        except json.JSONDecodeError:
            continue
    return cells
