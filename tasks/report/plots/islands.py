"""Hidden states of single tokens on three principal components."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tsfmscope.tasks.report.charts import figures
from tsfmscope.tasks.report.page.sections import Figure
from tsfmscope.tasks.report.plot import Plot
from tsfmscope.tasks.report.tables import StudyTables

CELL = ("model", "stack", "layer", "dataset", "condition")
COLUMNS = (*CELL, "series", "position", "cluster", "pc1", "pc2", "pc3", "explained", "n_tokens")


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw one figure per cell, in the study's order of conditions."""
    if study.answers["islands"].frame.empty:
        return
    frame = study.rows("islands", COLUMNS)
    order = {name: position for position, name in enumerate(study.conditions)}
    varying = [column for column in ("dataset", "condition") if frame[column].nunique() > 1]
    cells = sorted(frame.groupby(list(CELL)), key=lambda cell: (cell[0][:4], order.get(str(cell[0][4]), -1)))
    for names, part in cells:
        model, stack, layer, dataset, condition = names
        percent = f"{100 * float(part['explained'].iloc[0]):.0f} %"
        cell = f"{model}, {stack} layer {layer}, {dataset}, {condition}"
        share = f"the three components explain {percent} of the variance"
        count = f"{len(part):,} of {int(part['n_tokens'].iloc[0]):,} tokens"
        alt = f"Three-dimensional scatter plot of {count} of {cell}; {share}."
        title = ", ".join([str(model), f"{stack} {layer}", *(str(part[column].iloc[0]) for column in varying)])
        caption = f"{cell}: {count}; {share}."
        yield Figure("islands", figures.draw_islands(part), alt, caption, f"{title}: {percent}", tall=True)


PLOT = Plot(
    "Hidden states of single tokens on their first three principal components. Drag to rotate.",
    {"islands": COLUMNS},
    draw,
)
