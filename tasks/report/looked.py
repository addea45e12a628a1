"""Pictures of one model on one data set, and the page that holds them; rows as of `tsfm-lens look`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tasks.report.figures import COLOURS, DASHES, SYMBOLS, calm, escape

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

PANELS: tuple[tuple[str, str, dict[str, str]], ...] = (  # title, y axis, column -> name
    ("Isotropy", "cosine (0: every direction alike)", {"zeta": "ζ", "zeta_adjusted": "ζ′, inside clusters"}),
    ("Dimensions", "directions", {"effective_dimension": "d({share:g})", "numerical_rank": "rank({epsilon:g})"}),
)
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;color:#1c2126;background:#fff;"
    "max-width:60rem;margin:2rem auto;padding:0 1rem}"
)
HEIGHT = 380  # pixels of a figure


def drawn(rows: pd.DataFrame) -> list[tuple[str, go.Figure]]:
    """Title and figure of isotropy and of dimensions by layer, a line a stack and measure.

    rows: stack, layer, normed, share, epsilon and the columns of PANELS, None where there is no value. The state after
    the final norm stands at n + ½ and is called n′.
    """
    return [(title, _panel(rows, label, columns)) for title, label, columns in PANELS]


def page(title: str, figures: Sequence[tuple[str, go.Figure]]) -> str:
    """One HTML page that needs no other file and no network."""
    parts = []
    for place, (heading, figure) in enumerate(figures):
        html = figure.to_html(
            full_html=False, include_plotlyjs=place == 0, div_id=f"figure-{place}", config={"displayModeBar": False}
        )
        parts.append(f"<h2>{escape(heading)}</h2>\n{html}")
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style>'
    body = "\n".join([f"<h1>{escape(title)}</h1>", *parts])
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>{body}</body></html>\n'


def _panel(rows: pd.DataFrame, label: str, columns: dict[str, str]) -> go.Figure:
    import plotly.graph_objects as go

    figure = go.Figure()
    at = rows["layer"] + 0.5 * rows["normed"]
    names = [f"{layer}{'′' if normed else ''}" for layer, normed in zip(rows["layer"], rows["normed"], strict=True)]
    values: dict[str, Any] = {"share": rows["share"].iloc[0], "epsilon": rows["epsilon"].iloc[0]}
    for place, stack in enumerate(dict.fromkeys(rows["stack"])):
        for which, (column, name) in enumerate(columns.items()):
            part = rows[(rows["stack"] == stack) & rows[column].notna()]
            if part.empty:
                continue
            figure.add_trace(
                go.Scatter(
                    x=at[part.index].to_numpy(float),
                    y=part[column].to_numpy(float),
                    mode="lines+markers",
                    name=f"{escape(stack)} · {name.format(**values)}",
                    line={"color": COLOURS[which], "dash": DASHES[place % len(DASHES)], "width": 2},
                    marker={"symbol": SYMBOLS[place % len(SYMBOLS)], "size": 8, "color": COLOURS[which]},
                    customdata=[names[row] for row in part.index],
                    hovertemplate="layer %{customdata}: %{y:.3g}",
                )
            )
    ticks = dict(sorted(zip(at, names, strict=True)))
    figure.update_xaxes(
        title_text="layer (0: embedding, ′: after final norm)", tickvals=list(ticks), ticktext=list(ticks.values())
    )
    figure.update_yaxes(title_text=label, rangemode="tozero")
    return calm(figure).update_layout(height=HEIGHT, margin={"t": 48})
