"""Hidden states of single tokens on their first three principal components, in two projections."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tsfmscope.report.charts import islands
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plot import Plot
from tsfmscope.report.tables import StudyTables

CELL = ("model", "stack", "layer", "dataset", "condition")
COLUMNS = (*CELL, "series", "position", "cluster", "pc1", "pc2", "pc3", "explained", "n_tokens")


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw two panels per cell, in the study's order of conditions."""
    if study.answers["islands"].frame.empty:
        return
    frame = study.rows("islands", COLUMNS)
    order = {name: position for position, name in enumerate(study.conditions)}
    varying = [column for column in ("dataset", "condition") if frame[column].nunique() > 1]
    drawn, shares, counts = [], [], []
    cells = sorted(frame.groupby(list(CELL)), key=lambda cell: (cell[0][:4], order.get(str(cell[0][4]), -1)))
    for names, part in cells:
        model, stack, layer, *_ = names
        share = f"{100 * float(part['explained'].iloc[0]):.0f} %"
        name = ", ".join([str(model), *(str(part[column].iloc[0]) for column in varying)])
        drawn.append((f"{name}\n{stack} layer {layer}, {share} of the variance", part))
        shares.append(f"{name}, {stack} layer {layer}: {share}")
        counts.append(f"{len(part):,} of {int(part['n_tokens'].iloc[0]):,}")
    tokens = ", ".join(dict.fromkeys(counts))
    dataset, condition = (
        "" if name in varying else f" {word} {frame[name].iloc[0]}"
        for name, word in (("dataset", "of"), ("condition", "under"))
    )
    alt = "Scatter plots of tokens on principal components, two per matrix of states. Variance in three components: "
    caption = (
        f"Each point is a token{dataset}{condition} ({tokens} tokens). Left: principal components 1 and 2 of the "
        "hidden states; right: 1 and 3. The percentage is the share of variance that the three components explain. "
        "Colours: the four largest clusters of each matrix of states, by number of tokens, alike in both of its "
        "panels; the same colour in another matrix is another cluster. Each panel is scaled to its points."
    )
    yield Figure("islands", islands.draw_islands(drawn), f"{alt}{'; '.join(shares)}.", caption)


PLOT = Plot(
    "Hidden states of single tokens on their first three principal components. Each point is a token.",
    {"islands": COLUMNS},
    draw,
)
