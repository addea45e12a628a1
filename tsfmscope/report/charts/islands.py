"""Projection of hidden states onto their first three principal components, and its plot in two dimensions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int

from tsfmscope.report import colorscale
from tsfmscope.report.charts import grid
from tsfmscope.report.charts.figures import apply_style, escape

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

# Name, colour and symbol of the largest clusters, in every panel. The colours are not those of models.
LARGEST = (
    ("largest cluster", "#7A6FD0", "circle"),
    ("second", "#B07D00", "square"),
    ("third", "#CC4C8B", "triangle-up"),
    ("fourth", "#1B9A9A", "diamond"),
)
OTHERS = ("all others", colorscale.set_opacity(colorscale.GREY, 0.6), "circle")
# Columns and names of the two axes of the two panels of a matrix of states.
PROJECTIONS = (("pc1", "pc2"), ("pc1", "pc3"))
COMPONENTS = {"pc1": "component 1", "pc2": "component 2", "pc3": "component 3"}
# Two matrices of states side by side on a wide page, one on a narrow one.
SHAPE = grid.Shape(columns=4, narrow=2, row=150, shared=False)


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


def draw_islands(cells: Sequence[tuple[str, pd.DataFrame]]) -> go.Figure:
    """Draw two panels per matrix of states: its tokens on components 1 and 2, and on components 1 and 3.

    cells: pairs of title and tokens: series, position, cluster, pc1, pc2, pc3. The title has at most two lines
    and stands over both panels.

    The four largest clusters of each matrix have a colour and a symbol; all others are grey. Every panel has
    ranges of its own.
    """
    import plotly.graph_objects as go

    traces = [
        grid.draw_key(name, legendgroup=name, mode="markers", marker={"size": 7, "color": colour, "symbol": symbol})
        for name, colour, symbol in (*LARGEST, OTHERS)
    ]
    titles, axes = [], {}
    for cell, (title, frame) in enumerate(cells):
        titles += [title, ""]
        for view, (x, y) in enumerate(PROJECTIONS):
            names = grid.axis_names(len(PROJECTIONS) * cell + view)
            traces += [trace.update(names) for trace in _clusters(frame, x, y)]
            for name, column in zip(names.values(), (x, y), strict=True):
                axes[f"{name[0]}axis{name[1:]}"] = {"title": grid.make_axis(COMPONENTS[column])["title"]}
    bare = grid.make_bare_axis(zeroline=False)
    layout = grid.change_axes(grid.lay_out(titles, bare, bare, SHAPE), axes)
    return apply_style(go.Figure(traces)).update_layout(layout)


def rank_clusters(clusters: pd.Series) -> dict[int, int]:
    """Return cluster -> its rank by the number of tokens, from 0; of equal clusters, the smaller number is first."""
    counts = clusters.value_counts()
    ordered = sorted(counts.index, key=lambda cluster: (-counts[cluster], cluster))
    return {int(cluster): rank for rank, cluster in enumerate(ordered)}


def _clusters(frame: pd.DataFrame, x: str, y: str) -> Iterator[go.Scatter]:
    """Yield the tokens of the largest clusters and of all others, the others first, so that they lie below."""
    import plotly.graph_objects as go

    ranks = frame["cluster"].map(rank_clusters(frame["cluster"])).clip(upper=len(LARGEST))
    for rank, (name, colour, symbol) in reversed(list(enumerate((*LARGEST, OTHERS)))):
        part = frame[ranks == rank]
        if part.empty:
            continue
        yield go.Scatter(
            x=part[x].to_numpy(np.float32),
            y=part[y].to_numpy(np.float32),
            mode="markers",
            name=name,
            legendgroup=name,
            showlegend=False,
            marker={"size": 4, "color": colour, "symbol": symbol, "line": {"width": 0}},
            customdata=[
                [escape(s), int(p), int(c)]
                for s, p, c in zip(part["series"], part["position"], part["cluster"], strict=True)
            ],
            hovertemplate="%{customdata[0]}<br>position %{customdata[1]} · cluster %{customdata[2]}<extra></extra>",
        )
