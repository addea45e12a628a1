"""Figures of several panels, one a domain: NMSE against |ζ′|, as in isotropy.md, Figs. 3 and 5 to 8."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tasks.report import places
from tasks.report.figures import COLOURS, DASHES, SYMBOLS, calm, drawable, escape

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

COLUMNS, NARROW_COLUMNS = 3, 2  # panels side by side, and on a phone
ROW, GAP, HEAD, FOOT = 175, 46, 92, 60  # heights in pixels: a panel, between two, legend and title, axis
FILLS = ("", "-open", "-open-dot", "-dot")  # of the first, second ... data set or condition
GREY = "#7f7f7f"


class _Chain(NamedTuple):
    """Points that a line joins, in order, and how each is filled."""

    model: str
    condition: str
    rows: list[dict[str, Any]]
    fills: list[int]


def by_domain(frame: pd.DataFrame, models: Sequence[str], conditions: Sequence[str]) -> go.Figure:
    """A point a (model, data set): Dataset 1 of a domain filled, Dataset 2 open, joined by a line.

    frame: model, dataset, domain, paper, condition, zeta_adjusted, nmse; rows that log axes cannot show are left out. models
    gives colours and symbols: those of the whole page, so that a model looks the same everywhere. More than one
    condition: a dash each.
    """
    rows = placed(frame)
    chains = []
    for (panel, model, condition), part in rows.groupby(["panel", "model", "condition"], sort=False):
        points = part.sort_values("number").to_dict("records")
        chains.append((panel, _Chain(model, condition, points, [point["number"] - 1 for point in points])))
    shown = [name for name in conditions if name in set(rows["condition"])]
    fills = [f"Dataset {number}" for number in sorted(rows["number"].unique())]
    return _figure(rows, chains, models, shown, fills, [int(n) - 1 for n in sorted(rows["number"].unique())])


def by_condition(frame: pd.DataFrame, models: Sequence[str], conditions: Sequence[str]) -> go.Figure:
    """A point a (model, data set, condition): the first condition filled, the next open, an arrow from one to the next.

    conditions: in the study's order. A number beside the first point says which data set of the domain it is.
    """
    rows = placed(frame)
    shown = [name for name in conditions if name in set(rows["condition"])]
    chains = []
    for (panel, model, _), part in rows.groupby(["panel", "model", "number"], sort=False):
        points = sorted(part.to_dict("records"), key=lambda point: shown.index(point["condition"]))
        chains.append((panel, _Chain(model, "", points, [shown.index(point["condition"]) for point in points])))
    return _figure(rows, chains, models, [], list(shown), list(range(len(shown))), arrows=True)


def placed(frame: pd.DataFrame) -> pd.DataFrame:
    """Drawable rows, sorted by panel, with `panel` (letter and domain) and `number` (of the data set in its domain).

    Letters and numbers are those of all rows, so that a panel keeps its letter where points cannot be drawn.
    """
    named = frame.assign(domain=frame["domain"].fillna("").replace("", places.NO_DOMAIN))
    letters = places.panels(named["domain"])
    facts = named.drop_duplicates("dataset").set_index("dataset")
    papers = {name: paper if isinstance(paper, str) else None for name, paper in facts["paper"].items()}
    number = places.numbers(facts["domain"].to_dict(), papers)
    rows = drawable(named)
    panel = [f"{letters[domain]} · {domain}" for domain in rows["domain"]]
    order = rows["domain"].map({domain: place for place, domain in enumerate(letters)})
    rows = rows.assign(panel=panel, number=rows["dataset"].map(number), order=order)
    return rows.sort_values(["order", "model", "dataset", "condition"])


def _figure(
    rows: pd.DataFrame,
    chains: Sequence[tuple[str, _Chain]],
    models: Sequence[str],
    dashed: Sequence[str],
    fills: Sequence[str],
    fill_places: Sequence[int],
    *,
    arrows: bool = False,
) -> go.Figure:
    import plotly.graph_objects as go

    titles = rows["panel"].unique().tolist()
    figure = go.Figure()
    used = [model for model in models if model in set(rows["model"])]
    for model in used:
        figure.add_trace(_key(escape(model), _marker(models.index(model), [0]), group=model))
    for name, place in zip(fills, fill_places, strict=True):
        figure.add_trace(_key(escape(name), {**_marker(0, [place]), "color": GREY, "line": {"color": GREY, "width": 1.5}}))
    for name in dashed if len(dashed) > 1 else ():
        figure.add_trace(_key(escape(name), None, dash=DASHES[dashed.index(name) % len(DASHES)]))
    for panel, grouped in itertools.groupby(chains, key=lambda pair: pair[0]):
        for (model, condition), parts in itertools.groupby(grouped, key=lambda pair: (pair[1].model, pair[1].condition)):
            lines = [chain for _, chain in parts]
            axes = _axes(titles.index(panel))
            dash = DASHES[dashed.index(condition) % len(DASHES)] if condition in dashed else "solid"
            figure.add_traces([*_traces(lines, models.index(model), axes, dash, arrows=arrows)])
    ranges = {"x": _range(rows["isotropy"]), "y": _range(rows["nmse"])}
    wide, narrow = (_grid(titles, columns, ranges) for columns in (COLUMNS, NARROW_COLUMNS))
    figure.update_layout(**wide, meta={"narrow": narrow}, annotations=[_title(n, t) for n, t in enumerate(titles)])
    height, head = wide["height"], wide["margin"]
    calm(figure).update_layout(height=height, margin=head)
    return figure.update_layout(legend={"y": 1 + 26 / (height - HEAD - FOOT), "itemsizing": "constant"})


def _traces(
    chains: Sequence[_Chain], place: int, axes: Mapping[str, str], dash: str, *, arrows: bool
) -> Iterator[go.Scatter]:
    """The points of one model in one panel, and the arrows between them."""
    import plotly.graph_objects as go

    colour = COLOURS[place % len(COLOURS)]
    x, y, fills, told, text = [], [], [], [], []
    for chain in chains:
        for row, fill in zip(chain.rows, chain.fills, strict=True):
            x.append(row["isotropy"]), y.append(row["nmse"]), fills.append(fill)
            told.append([escape(row[name]) for name in ("dataset", "model", "condition")])
            text.append(str(row["number"]) if row is chain.rows[0] and arrows else "")
        x.append(None), y.append(None), fills.append(0), told.append(["", "", ""]), text.append("")
    yield go.Scatter(
        x=x,
        y=y,
        mode="lines+markers+text" if arrows else "lines+markers",
        text=text if arrows else None,
        textposition="top center",
        legendgroup=chains[0].model,
        showlegend=False,
        name=escape(chains[0].model),
        line={"width": 1, "color": _faint(colour), "dash": dash},
        marker=_marker(place, fills),
        customdata=told,
        hovertemplate="<b>%{customdata[0]}</b><br>%{customdata[1]} · %{customdata[2]}"
        "<br>|ζ′| %{x:.3g}<br>NMSE %{y:.3g}<extra></extra>",
        **axes,
    )
    if arrows and (heads := [*_heads(chains)]):
        yield go.Scatter(
            x=[at for ends in heads for at in (ends[0][0], ends[1][0], None)],
            y=[at for ends in heads for at in (ends[0][1], ends[1][1], None)],
            mode="markers",
            marker={"symbol": "arrow", "angleref": "previous", "size": [0, 9, 0] * len(heads), "color": colour},
            legendgroup=chains[0].model,
            showlegend=False,
            hoverinfo="skip",
            name=escape(chains[0].model),
            **axes,
        )


def _heads(chains: Sequence[_Chain]) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
    """Start and middle, on log axes, of every step from one condition to the next."""
    for chain in chains:
        for one, other in itertools.pairwise(chain.rows):
            start = one["isotropy"], one["nmse"]
            yield start, (math.sqrt(start[0] * other["isotropy"]), math.sqrt(start[1] * other["nmse"]))


def _marker(place: int, fills: Sequence[int]) -> dict[str, Any]:
    colour, symbol = COLOURS[place % len(COLOURS)], SYMBOLS[place % len(SYMBOLS)]
    symbols = [f"{symbol}{FILLS[fill % len(FILLS)]}" for fill in fills]
    one = symbols[0] if len(symbols) == 1 else symbols
    return {"color": colour, "symbol": one, "size": 9, "line": {"width": 1.5, "color": colour}}


def _key(name: str, marker: Mapping[str, Any] | None, *, group: str | None = None, dash: str = "solid") -> go.Scatter:
    """An entry of the legend, without points."""
    import plotly.graph_objects as go

    mode = "markers" if marker else "lines"
    line = {"width": 1.5, "color": GREY, "dash": dash}
    return go.Scatter(x=[None], y=[None], mode=mode, name=name, marker=marker, line=line, legendgroup=group)


def _axes(place: int) -> dict[str, str]:
    number = "" if place == 0 else str(place + 1)
    return {"xaxis": f"x{number}", "yaxis": f"y{number}"}


def _title(place: int, text: str) -> dict[str, Any]:
    axes = _axes(place)
    where = {"xref": f"{axes['xaxis']} domain", "yref": f"{axes['yaxis']} domain", "x": 0, "y": 1}
    return {**where, "text": f"<b>{escape(text)}</b>", "showarrow": False, "xanchor": "left", "yanchor": "bottom"}


def _grid(titles: Sequence[str], columns: int, ranges: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Axes of panels in rows of `columns`, the same range in all; labels at the left and below only."""
    count = len(titles)
    columns = min(columns, max(count, 1))
    rows = -(-count // columns) or 1
    inner = rows * ROW + (rows - 1) * GAP
    out: dict[str, Any] = {"height": inner + HEAD + FOOT, "margin": {"l": 64, "r": 16, "t": HEAD, "b": FOOT}}
    between = 0.05
    wide = (1 - between * (columns - 1)) / columns
    for place in range(count):
        row, column = divmod(place, columns)
        left, top = column * (wide + between), 1 - row * (ROW + GAP) / inner
        axes, lowest = _axes(place), place + columns >= count
        x = {"domain": [left, left + wide], "showticklabels": lowest, "anchor": axes["yaxis"], **ranges["x"]}
        y = {"domain": [top - ROW / inner, top], "showticklabels": column == 0, "anchor": axes["xaxis"], **ranges["y"]}
        x["title"] = {"text": "|ζ′|" if lowest else "", "standoff": 4}
        y["title"] = {"text": "NMSE" if column == 0 else "", "standoff": 6}
        for axis, name in ((x, "x"), (y, "y")):
            axis |= {"matches": name} if place else {}
            axis["domain"] = [round(max(0.0, min(1.0, at)), 4) for at in axis["domain"]]
        out |= {axes["xaxis"].replace("x", "xaxis"): x, axes["yaxis"].replace("y", "yaxis"): y}
    return out


def _range(values: pd.Series) -> dict[str, Any]:
    """A log axis that holds all values, with about four labels."""
    if not len(values):
        return {"type": "log"}
    low, high = float(np.log10(values.min())), float(np.log10(values.max()))
    room = max(0.08 * (high - low), 0.08)
    step = math.ceil((high - low + 2 * room) / 4)
    ticks = {"dtick": step, "tick0": 0} if high - low > 1 else {"nticks": 4}
    return {"type": "log", "range": [round(low - room, 3), round(high + room, 3)], "exponentformat": "power", **ticks}


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.45)"
