"""Effective dimension by layer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tsfmscope.report.charts import dimension, style
from tsfmscope.report.page import verdicts
from tsfmscope.report.page.html_table import build_table
from tsfmscope.report.page.sections import Figure, TableBlock
from tsfmscope.report.plot import Plot
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


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw the models without compressed ones by layer, and the others by compression."""
    frame = study.rows("layers", COLUMNS)
    if frame.empty:
        return
    bases = frame["model"].str.partition("@")[0]
    is_compressed = bases.isin(bases[frame["model"] != bases])
    by_layer, by_compression = frame[~is_compressed], frame[is_compressed]
    if len(by_layer):
        alt, n = _alt(by_layer, "layer"), int(by_layer["n"].max())
        spread = "one data set" if n == 1 else f"median of {n} data sets and conditions; whiskers: smallest and largest"
        caption = f"{EXPLAINED}: {spread}. Layer 0 is the embedding; ′ marks the state after the final norm."
        yield Figure("layers", dimension.draw_by_layer(by_layer, models), alt, caption, "By layer")
    if len(by_compression):
        alt, n = _alt(by_compression, "compression"), int(by_compression["n"].max())
        changed, count, most = dimension.count_changes(by_compression)
        caption = (
            f"{EXPLAINED}: {'one data set' if n == 1 else f'median of {n} data sets and conditions'}. One line per "
            f"layer, from the dense model to its compressed ones. {changed} of {count} medians of compressed models "
            f"differ from the dense model's{f', by at most {most:g}' if changed else ''}."
        )
        yield Figure("layers", dimension.draw_by_compression(by_compression, models), alt, caption, "By compression")


def _alt(frame: pd.DataFrame, axis: str) -> str:
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
    return [
        TableBlock(
            f"{study.name}-layers", f"{QUANTITY} by layer, with the paper's numbers below ours", build_table(table)
        )
    ]


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
        out += [
            _our_row(model, stack, stack_rows)
            for (model, stack), stack_rows in part.groupby(["model", "stack"], sort=True)
        ]
        theirs = printed[printed["model"].isin(part["model"])]
        if len(theirs):
            out.append(_paper_row(family, dict(zip(theirs["source"], theirs["published"], strict=True))))
    frame = pd.DataFrame(out)
    numbered = sorted((name for name in frame.columns if name.isdigit()), key=int)
    return frame[[name for name in ("whose", "model", "stack", *numbered, NORMED) if name in frame]]


def _our_row(model: object, stack: object, rows: pd.DataFrame) -> dict[str, object]:
    names = [NORMED if normed else str(int(layer)) for layer, normed in zip(rows["layer"], rows["normed"], strict=True)]
    return {"whose": "ours", "model": model, "stack": stack, **dict(zip(names, rows["median"], strict=True))}


def _paper_row(family: object, numbers: Mapping[str, float]) -> dict[str, object]:
    """Return the paper's row of a family.

    numbers: source -> printed number; a source that ends in "layer N" gives the column.
    """
    matches = {TABLE_LAYER.search(source): number for source, number in numbers.items()}
    layers = {match.group(1): float(number) for match, number in matches.items() if match}
    return {"whose": "the paper", "model": family, "stack": None, **layers}


PLOT = Plot(
    "Number of principal directions that explain 80 % of the variance of the hidden states, by layer.",
    {"layers": COLUMNS},
    draw,
    tables=list_tables,
    tabled_quantity=QUANTITY,
)
