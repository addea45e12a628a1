"""Hidden states of single tokens on their first three principal components, in two projections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import altair as alt
import numpy as np
from jaxtyping import Float, Int

from tsfmscope.report import style
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plots import Plot
from tsfmscope.report.style import Chart
from tsfmscope.report.tables import StudyTables

if TYPE_CHECKING:
    import pandas as pd

CELL = ("model", "stack", "layer", "dataset", "condition")
COLUMNS = (*CELL, "series", "position", "cluster", "pc1", "pc2", "pc3", "explained", "n_tokens")
# Name, colour and symbol of the largest clusters, in every panel. The colours are not those of models.
LARGEST = (
    ("largest cluster", "#7A6FD0", "circle"),
    ("second", "#B07D00", "square"),
    ("third", "#CC4C8B", "triangle-up"),
    ("fourth", "#1B9A9A", "diamond"),
)
OTHERS = ("all others", "#b2b2b2", "circle")
# Columns and names of the two axes of the two panels of a matrix of states.
PROJECTIONS = (("pc1", "pc2"), ("pc1", "pc3"))
COMPONENTS = {"pc1": "component 1", "pc2": "component 2", "pc3": "component 3"}


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
    words = "Scatter plots of tokens on principal components, two per matrix of states. Variance in three components: "
    caption = (
        f"Each point is a token{dataset}{condition} ({tokens} tokens). Left: principal components 1 and 2 of the "
        "hidden states; right: 1 and 3. The percentage is the share of variance that the three components explain. "
        "Colours: the four largest clusters of each matrix of states, by number of tokens, alike in both of its "
        "panels; the same colour in another matrix is another cluster. Each panel is scaled to its points."
    )
    yield Figure("islands", draw_islands(drawn), f"{words}{'; '.join(shares)}.", caption)


def project(
    states: Float[np.ndarray, "token width"],
    clusters: Int[np.ndarray, " token"],
    series: Sequence[str],
    positions: Int[np.ndarray, " token"],
    identity: Mapping[str, object],
) -> pd.DataFrame:
    """Project the centred states onto their first three principal components; one row per token.

    Source: Shelim et al. 2025, Fig. 2 and section 4.3.

    identity: model, stack, layer, dataset, condition; written into every row.

    Column `explained` is the share of variance that the three components hold; NaN for constant states. Each
    component's sign makes its entry of largest magnitude positive, so that the plot does not flip between
    machines. With fewer than three dimensions the missing components are zero; constant states have only
    zeros. Raises ValueError if there are no rows or if a value is not finite.
    """
    import pandas as pd

    matrix = np.asarray(states, dtype=np.float64)
    if not len(matrix) or not np.isfinite(matrix).all():
        raise ValueError(f"states: got shape {matrix.shape}, expected at least one row and only finite values")
    centred = matrix - matrix.mean(axis=0)
    left, scale, right = np.linalg.svd(centred, full_matrices=False)
    kept = min(3, len(scale))
    sign = np.sign(right[np.arange(kept), np.abs(right[:kept]).argmax(axis=1)])
    points = np.zeros((len(matrix), 3))
    points[:, :kept] = left[:, :kept] * scale[:kept] * np.where(sign == 0, 1.0, sign)
    total = float((scale**2).sum())
    explained = float((scale[:kept] ** 2).sum() / total) if total > 0 else float("nan")
    tokens = {"series": list(series), "position": np.asarray(positions), "cluster": np.asarray(clusters)}
    components = dict(zip(COMPONENTS, points.T, strict=True))
    return pd.DataFrame({**identity, **tokens, **components, "explained": explained})


def draw_islands(cells: Sequence[tuple[str, pd.DataFrame]]) -> Chart:
    """Draw two panels per matrix of states: its tokens on components 1 and 2, and on components 1 and 3.

    cells: pairs of title and tokens: series, position, cluster, pc1, pc2, pc3. The title has at most two lines
    and stands over both panels.

    The four largest clusters of each matrix have a colour and a symbol; all others are grey. Every panel has
    ranges of its own.
    """
    kinds = (*LARGEST, OTHERS)
    colours, symbols = ({kind[0]: kind[at] for kind in kinds} for at in (1, 2))
    axes = {
        name: alt.Axis(labels=False, ticks=False, grid=False, title=title, titleAnchor="start")
        for name, title in COMPONENTS.items()
    }
    scale = alt.Scale(zero=False, padding=6)
    panels, columns = [], 4 if len(cells) > 1 else 2
    for title, frame in cells:
        ranks = frame["cluster"].map(rank_clusters(frame["cluster"])).clip(upper=len(LARGEST))
        texts = [
            f"{series}\nposition {position} · cluster {cluster}"
            for series, position, cluster in zip(frame["series"], frame["position"], frame["cluster"], strict=True)
        ]
        # Tokens of the largest clusters are drawn last, on top of the others.
        rows = frame.assign(kind=ranks.map([kind[0] for kind in kinds].__getitem__), tip=texts, rank=ranks)
        rows = rows.sort_values("rank", ascending=False, kind="stable")[["kind", "tip", "pc1", "pc2", "pc3"]]
        for x, y in PROJECTIONS:
            points = alt.Chart(rows).mark_point(size=16, strokeWidth=0).encode(
                x=alt.X(f"{x}:Q", axis=axes[x], scale=scale),
                y=alt.Y(f"{y}:Q", axis=axes[y], scale=scale),
                fill=style.encode_fill("kind", colours), stroke=style.encode_stroke("kind", colours),
                shape=style.encode_shape("kind", symbols), **style.encode_tip(),
            )  # fmt: skip
            panels.append(style.name_panel(points, title if y == "pc2" else "", columns, 150))
    return style.arrange_panels(panels, columns)


def rank_clusters(clusters: pd.Series) -> dict[int, int]:
    """Return cluster -> its rank by the number of tokens, from 0; of equal clusters, the smaller number is first."""
    counts = clusters.value_counts()
    ordered = sorted(counts.index, key=lambda cluster: (-counts[cluster], cluster))
    return {int(cluster): rank for rank, cluster in enumerate(ordered)}


PLOT = Plot(
    "Hidden states of single tokens on their first three principal components. Each point is a token.",
    {"islands": COLUMNS},
    draw,
)
