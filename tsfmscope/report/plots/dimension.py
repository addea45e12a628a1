"""Effective dimension by layer."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import altair as alt

from tsfmscope.report import style
from tsfmscope.report.page import verdicts
from tsfmscope.report.page.sections import Figure, TableBlock, build_table
from tsfmscope.report.plots import Plot
from tsfmscope.report.style import Chart
from tsfmscope.report.tables import StudyTables, require

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("model", "family", "stack", "layer", "normed", "median", "low", "high", "n")
QUANTITY = "d(0.8)"
# Start of a caption.
EXPLAINED = "d(0.8), the number of principal directions that explain 80 % of the variance"
# Column of the state after the final norm, which is not a numbered layer.
NORMED = "n′"
# Matches the layer in `source` of the rows of Shelim et al. 2025, Table 1.
TABLE_LAYER = re.compile(r"layer (\d+)$")
TITLE = "effective dimension d(0.8)"
LAYERS = "layer (′: normed)"
# Name of the model without compression on the axis.
DENSE = "dense"
# Largest number of labels below a panel.
TICKS = 13
# Free positions between the layers of two stacks.
APART = 2
# Space right of the last compressed model for the names of the layers, in positions.
NAMES = 1.6
HEIGHT = 170
WHOLE = alt.Axis(tickMinStep=1, format="d")


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw the models without compressed ones by layer, and the others by compression."""
    frame = study.rows("layers", COLUMNS)
    if frame.empty:
        return
    bases = frame["model"].str.partition("@")[0]
    is_compressed = bases.isin(bases[frame["model"] != bases])
    by_layer, by_compression = frame[~is_compressed], frame[is_compressed]
    if len(by_layer):
        words, n = _describe(by_layer, "layer"), int(by_layer["n"].max())
        spread = "one data set" if n == 1 else f"median of {n} data sets and conditions; whiskers: smallest and largest"
        caption = f"{EXPLAINED}: {spread}. Layer 0 is the embedding; ′ marks the state after the final norm."
        yield Figure("layers", draw_by_layer(by_layer, models), words, caption, "By layer")
    if len(by_compression):
        words, n = _describe(by_compression, "compression"), int(by_compression["n"].max())
        changed, count, most = count_changes(by_compression)
        caption = (
            f"{EXPLAINED}: {'one data set' if n == 1 else f'median of {n} data sets and conditions'}. One line per "
            f"layer, from the dense model to its compressed ones. {changed} of {count} medians of compressed models "
            f"differ from the dense model's{f', by at most {most:g}' if changed else ''}."
        )
        yield Figure("layers", draw_by_compression(by_compression, models), words, caption, "By compression")


def _describe(frame: pd.DataFrame, axis: str) -> str:
    """Return the text of a figure for readers who do not see it."""
    low, high = frame["median"].min(), frame["median"].max()
    names = ", ".join(style.distinct_values(frame, "model"))
    return f"Line charts of effective dimension by {axis}, of {names}; between {low:g} and {high:g} dimensions."


def list_tables(study: StudyTables) -> list[TableBlock]:
    """Return Shelim et al. 2025, Table 1, with our numbers."""
    frame = study.rows("layers", COLUMNS)
    if frame.empty:
        return []
    table = paper_table(frame, require(study.published, verdicts.COLUMNS))
    title = f"{QUANTITY} by layer, with the paper's numbers below ours"
    return [TableBlock(f"{study.name}-layers", title, build_table(table))]


def paper_table(layers: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """Return d(0.8) in the layout of Shelim et al. 2025, Table 1: one column per layer.

    There is one row per model and stack. Layers are numbered from 1. Below the rows of a family stands the
    paper's row, where the paper prints one. Column n′ is the state after the final norm, which the paper does
    not report. Layer 0, the embedding's output, is left out of the table but is in the section's data.
    """
    import pandas as pd

    rows = layers[layers["layer"] >= 1]
    printed = published[(published["quantity"] == QUANTITY) & published["published"].notna()]
    out: list[dict[str, object]] = []
    for family, part in rows.groupby("family", sort=True):
        for (model, stack), ours in part.groupby(["model", "stack"], sort=True):
            layer = ours["layer"].astype(int).astype(str).mask(ours["normed"].astype(bool), NORMED)
            medians = dict(zip(layer, ours["median"], strict=True))
            out.append({"whose": "ours", "model": model, "stack": stack, **medians})
        theirs = printed[printed["model"].isin(part["model"])]
        if len(theirs):
            layer = theirs["source"].str.extract(TABLE_LAYER)[0].dropna()
            numbers = dict(zip(layer, theirs.loc[layer.index, "published"].astype(float), strict=True))
            out.append({"whose": "the paper", "model": family, "stack": None, **numbers})
    frame = pd.DataFrame(out)
    numbered = sorted((name for name in frame.columns if name.isdigit()), key=int)
    return frame[[name for name in ("whose", "model", "stack", *numbered, NORMED) if name in frame]]


def draw_by_layer(frame: pd.DataFrame, models: Sequence[str]) -> Chart:
    """Draw one panel per model: the median of each layer as a point, and the range as a whisker.

    frame: model, stack, layer, normed, median, low, high, n.
    models: the models of the whole page, which determine the colours.

    Layers stand in the order of computation: those of the encoder, then those of the decoder. A line joins the
    layers of a stack.
    """
    names = sorted(frame["model"].unique().tolist())
    y = alt.Y("median:Q", title=TITLE, axis=WHOLE, scale=alt.Scale(domain=[0, 1.22 * _top(frame["high"])], nice=False))
    columns, panels = style.choose_columns(len(names), 3), []
    for model in names:
        rows = _place_layers(frame[frame["model"] == model])
        kept = rows.iloc[:: -(-len(rows) // TICKS)]
        axis = style.name_ticks(dict(zip(kept["position"].tolist(), kept["name"], strict=True)), grid=False)
        ends = alt.Scale(domain=[-0.7, max(int(rows["position"].max()), 3) + 0.7], nice=False)
        base = alt.Chart(rows).encode(x=alt.X("position:Q", title=LAYERS, scale=ends, axis=axis), y=y)
        colour = style.choose_colour(model, models)
        stacks = rows.groupby("stack", sort=False)["position"].mean().items()
        titles = [{"x": x, "y": 1.12 * _top(frame["high"]), "text": stack} for stack, x in stacks]
        drawn = alt.layer(
            base.mark_rule(color=colour, strokeWidth=1, aria=False).encode(y=style.copy_axis(y, "low"), y2="high:Q"),
            base.mark_line(color=colour, aria=False).encode(detail="stack:N"),
            base.mark_point(stroke=colour, fill=colour, size=40).encode(**style.encode_tip()),
            style.write_texts(titles),
        )  # fmt: skip
        panels.append(style.name_panel(drawn, model, columns, HEIGHT))
    return style.arrange_panels(panels, columns)


def draw_by_compression(frame: pd.DataFrame, models: Sequence[str]) -> Chart:
    """Draw one panel per model and stack: the median against the compression, one line per layer.

    frame, models: as in `draw_by_layer`; the name of a compressed model is BASE@METHOD. The dense model is on
    the left. Layers with the same last value share a name at the right end of their lines.
    """
    rows = _name_bases(frame)
    cells = sorted(set(zip(rows["base"], rows["stack"], strict=True)), key=lambda c: (c[0], c[1] == "decoder", c[1]))
    methods = order_methods(rows["method"].unique().tolist())
    title, labels = label_methods(methods)
    names = [name_layer(layer, normed) for layer, normed in zip(rows["layer"], rows["normed"], strict=True)]
    rows = rows.assign(name=names, position=rows["method"].map(methods.index))
    texts = [
        f"layer {row.name} · {row.method or DENSE}\nd(0.8) median {row.median:g}" for row in style.iterate_rows(rows)
    ]
    rows = rows.assign(tip=texts).sort_values(["layer", "normed", "position"])
    axis = style.name_ticks(dict(enumerate(labels)), grid=False)
    x_scale = alt.Scale(domain=[-0.3, len(methods) - 1 + NAMES], nice=False)
    x = alt.X("position:Q", title=title, scale=x_scale, axis=axis)
    y = alt.Y("median:Q", title=TITLE, axis=WHOLE, scale=alt.Scale(domain=[0, 1.1 * _top(rows["median"])], nice=False))
    columns, panels = min(2, len(cells)), []
    for base_name, stack in cells:
        part = rows[(rows["base"] == base_name) & (rows["stack"] == stack)]
        ends: dict[tuple[int, float], list[str]] = {}
        for name, line in part.groupby("name", sort=False):
            ends.setdefault((int(line["position"].iloc[-1]), float(line["median"].iloc[-1])), []).append(str(name))
        written = [
            {"x": x_end, "y": y_end, "text": f"layer{'s' if len(layers) > 1 else ''} {list_layers(layers)}"}
            for (x_end, y_end), layers in ends.items()
        ]
        colour, base = style.choose_colour(base_name, models), alt.Chart(part).encode(x=x, y=y)
        drawn = alt.layer(
            base.mark_line(color=colour, strokeWidth=1.5, aria=False).encode(detail="name:N"),
            base.mark_point(stroke=colour, fill=colour, size=30).encode(**style.encode_tip()),
            style.write_texts(written, dx=8, align="left"),
        )
        panels.append(style.name_panel(drawn, f"{base_name}\n{stack}", columns, HEIGHT))
    return style.arrange_panels(panels, columns)


def order_methods(methods: Sequence[str]) -> list[str]:
    """Return the methods with the dense model ("") first, then by name, and by their number from large to small."""

    def sort_key(method: str) -> tuple[bool, str, float, str]:
        name, number = _split(method)
        return (method != "", name, -number if number is not None else math.inf, method)

    return sorted(methods, key=sort_key)


def label_methods(methods: Sequence[str]) -> tuple[str, list[str]]:
    """Return the title of the axis and one label per method, the number alone if methods differ only in it."""
    parts = [_split(method) for method in methods if method]
    if len({name for name, _ in parts}) == 1 and all(number is not None for _, number in parts):
        return f"compressed model ({parts[0][0]}-…)", [f"{_split(m)[1]:g}" if m else DENSE for m in methods]
    return "compression", [method or DENSE for method in methods]


def count_changes(frame: pd.DataFrame) -> tuple[int, int, float]:
    """Return how many medians of compressed models differ from the dense model's, of how many, and by how much most.

    frame: as in `draw_by_compression`. A median without one of the dense model is not counted.
    """
    rows = _name_bases(frame)
    keys = ["base", "stack", "layer", "normed"]
    dense = rows[rows["model"] == rows["base"]][[*keys, "median"]]
    pairs = rows[rows["model"] != rows["base"]].merge(dense, on=keys, suffixes=("", "_dense"))
    changes = (pairs["median"] - pairs["median_dense"]).abs()
    return int((changes > 0).sum()), len(changes), float(changes.max()) if len(changes) else 0.0


def name_layer(layer: int, normed: bool) -> str:
    """Return the number of a layer, with ′ for the state after the final norm."""
    return f"{layer}′" if normed else str(layer)


def list_layers(names: Sequence[str]) -> str:
    """Return names of layers as text, with runs of three or more numbers as a range: 0, 2–4, 4′."""
    texts: list[list[str]] = []
    for name in names:
        follows = texts and name.isdigit() and texts[-1][-1].isdigit() and int(name) == int(texts[-1][-1]) + 1
        if follows:
            texts[-1].append(name)
        else:
            texts.append([name])
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 2 else ", ".join(run) for run in texts)


def _name_bases(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that have a median, with the base and the method of each model."""
    parts = frame["model"].str.partition("@")
    rows: pd.DataFrame = frame.assign(base=parts[0], method=parts[2], median=frame["median"].astype(float))
    return rows[rows["median"].notna()]


def _place_layers(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the layers of a model in the order of computation, with position, name and tip.

    Free positions stand between stacks.
    """
    rows = rows.assign(is_decoder=rows["stack"] == "decoder").sort_values(["is_decoder", "stack", "layer", "normed"])
    new_stack = (rows["stack"] != rows["stack"].shift()).cumsum() - 1
    names = [name_layer(int(layer), bool(normed)) for layer, normed in zip(rows["layer"], rows["normed"], strict=True)]
    texts = [
        f"{row.model} · {row.stack} · layer {name}\nd(0.8) median {row.median:g} over {row.n}"
        for row, name in zip(style.iterate_rows(rows), names, strict=True)
    ]
    return rows.assign(position=range(len(rows)) + new_stack * (APART - 1), name=names, tip=texts)


def _top(values: pd.Series) -> float:
    return float(values.max()) if len(values) and math.isfinite(values.max()) else 1.0


def _split(method: str) -> tuple[str, float | None]:
    """Return the name and the number of a method such as svd-0.25; None without a number."""
    name, _, number = method.rpartition("-")
    try:
        return name, float(number)
    except ValueError:
        return method, None


PLOT = Plot(
    "Number of principal directions that explain 80 % of the variance of the hidden states, by layer.",
    {"layers": COLUMNS},
    draw,
    tables=list_tables,
    tabled_quantity=QUANTITY,
)
