"""Projection of hidden states onto their first three principal components, and its plot in two dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import altair as alt
import numpy as np
from jaxtyping import Float, Int

from tsfmscope.report.charts import style
from tsfmscope.report.charts.style import Chart

if TYPE_CHECKING:
    import pandas as pd

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
    return pd.DataFrame(
        {
            **identity,
            "series": list(series),
            "position": np.asarray(positions),
            "cluster": np.asarray(clusters),
            "pc1": points[:, 0],
            "pc2": points[:, 1],
            "pc3": points[:, 2],
            "explained": explained,
        }
    )


def draw_islands(cells: Sequence[tuple[str, pd.DataFrame]]) -> Chart:
    """Draw two panels per matrix of states: its tokens on components 1 and 2, and on components 1 and 3.

    cells: pairs of title and tokens: series, position, cluster, pc1, pc2, pc3. The title has at most two lines
    and stands over both panels.

    The four largest clusters of each matrix have a colour and a symbol; all others are grey. Every panel has
    ranges of its own.
    """
    kinds = (*LARGEST, OTHERS)
    colours, symbols = ({kind[0]: kind[at] for kind in kinds} for at in (1, 2))
    shape = alt.Shape("kind:N", scale=style.map_values(symbols), title=None, legend=style.make_legend(colours))
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
            axes = [
                alt.Axis(labels=False, ticks=False, grid=False, title=COMPONENTS[column], titleAnchor="start")
                for column in (x, y)
            ]
            scale = alt.Scale(zero=False, padding=6)
            points = alt.Chart(rows).mark_point(size=16, strokeWidth=0).encode(
                x=alt.X(f"{x}:Q", axis=axes[0], scale=scale),
                y=alt.Y(f"{y}:Q", axis=axes[1], scale=scale),
                fill=style.fill("kind", colours),
                stroke=style.stroke("kind", colours),
                shape=shape,
                **style.tip(),
            )  # fmt: skip
            panels.append(style.name_panel(points, title if y == "pc2" else "", columns, 150))
    return style.arrange(panels, columns)


def rank_clusters(clusters: pd.Series) -> dict[int, int]:
    """Return cluster -> its rank by the number of tokens, from 0; of equal clusters, the smaller number is first."""
    counts = clusters.value_counts()
    ordered = sorted(counts.index, key=lambda cluster: (-counts[cluster], cluster))
    return {int(cluster): rank for rank, cluster in enumerate(ordered)}
