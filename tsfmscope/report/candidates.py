"""Plot and page of scored candidates: error against seconds, for `tsfmscope score`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

import altair as alt
import pandas as pd

from tsfmscope.report import style
from tsfmscope.report.render import draw_inline
from tsfmscope.report.single_model import build_page, build_rows
from tsfmscope.report.style import COLOURS, GREY, Chart

# Pixels of the panel, of the list of names, and of a name's line.
WIDTH, HEIGHT, LIST_WIDTH, LINE = 460, 350, 170, 17
# Least distance of a number from marks and other numbers, and of its middle from a whisker, in pixels.
RIGHT, DOWN, WHISKER = 15, 11, 8
# Middles of a number around its mark, in pixels: the first that is free is taken.
PLACES = tuple((side * right, down) for right in (12, 20, 28) for down in (0, -9, 9, -18, 18) for side in (1, -1))
# Kind of a candidate -> colour.
KINDS = {"best": COLOURS[1], "not told from the best": COLOURS[0], "worse": GREY}
SYMBOLS = {"model": "circle", "baseline": "square"}
ERROR = {"ratio": "WQL ÷ point seasonal naive", "wql": "WQL"}


def draw_candidates(rows: pd.DataFrame) -> Chart:
    """Draw the error against the seconds per 1,000 forecasts, one numbered mark per candidate with its interval.

    rows: those of `ScoreResult`. A list at the right names the numbers, in the order of the rows. The error is the
    ratio to seasonal naive, or WQL where no candidate has one.
    """
    measure = "ratio" if rows["ratio"].notna().any() else "wql"
    points = []
    for number, row in enumerate(rows.to_dict("records"), start=1):
        kind = "best" if number == 1 else "not told from the best" if row["is_undecided"] else "worse"
        if pd.isna(row[measure]):
            continue
        interval = {} if pd.isna(row[f"{measure}_low"]) else {
            "low": row[f"{measure}_low"], "high": row[f"{measure}_high"]
        }  # fmt: skip
        error = f"{ERROR[measure]} {row[measure]:.3f}"
        points.append({
            "number": str(number), "name": f"{number}  {row['candidate']}", "kind": kind, "error": row[measure],
            "type": "baseline" if row["is_baseline"] else "model", "seconds": max(row["seconds"], 1e-3), **interval,
            "tip": f"{number} {row['candidate']}\n{error}\n{row['seconds']:.3g} s per 1,000 forecasts",
        })  # fmt: skip
    x_axis = style.make_log_axis("seconds per 1,000 forecasts", [row["seconds"] for row in points])
    ends = [value for row in points for value in (row["error"], row.get("low"), row.get("high")) if value is not None]
    room = 0.05 * (max(ends) - min(ends)) or 0.1
    domain = (min(ends) - room, max(ends) + room)
    base = alt.Chart(alt.InlineData(points)).encode(
        x=alt.X("seconds:Q", **x_axis), stroke=style.encode_stroke("kind", KINDS)
    )
    y = alt.Y("error:Q", title=ERROR[measure], scale=alt.Scale(domain=domain, nice=False))
    marks = base.mark_point(size=60).encode(
        y=y, shape=style.encode_shape("type", SYMBOLS), fill=style.encode_fill("kind", KINDS), **style.encode_tip()
    )
    is_near = measure == "ratio" and domain[0] < 1 < domain[1]
    level = alt.Chart(alt.InlineData([{"error": 1}] if is_near else []))
    guide = level.mark_rule(color=GREY, strokeDash=[4, 3], aria=False).encode(y=y)
    numbers = style.write_texts(_place_numbers(points, x_axis["scale"].domain, domain))
    panel = alt.layer(guide, style.draw_whiskers(base, y, 1.2), marks, numbers)
    names = (
        alt.Chart(alt.InlineData(points))
        .mark_text(align="left", aria=False)
        .encode(y=alt.Y("name:N", axis=None, sort=None), x=alt.value(0), text="name:N")
    )
    height = min(HEIGHT, LINE * len(points))
    chart: Chart = alt.hconcat(
        panel.properties(width=WIDTH, height=HEIGHT), names.properties(width=LIST_WIDTH, height=height), spacing=16
    )
    return chart


def _place_numbers(
    points: Sequence[dict[str, Any]], x_domain: Sequence[float], y_domain: Sequence[float]
) -> list[dict[str, Any]]:
    """Return the number of each mark, next to it and apart from other marks and numbers if there is room."""
    x_log = [math.log10(end) for end in x_domain]
    x_size, y_size = (x_log[1] - x_log[0]) / WIDTH, (y_domain[1] - y_domain[0]) / HEIGHT
    marks = [
        ((math.log10(row["seconds"]) - x_log[0]) / x_size, (y_domain[1] - row["error"]) / y_size) for row in points
    ]
    whiskers = [
        (x, (y_domain[1] - row["high"]) / y_size, (y_domain[1] - row["low"]) / y_size)
        for (x, _), row in zip(marks, points, strict=True)
        if "low" in row
    ]
    numbers: list[tuple[float, float]] = []

    def is_free(x: float, y: float, own: tuple[float, float]) -> bool:
        others = [place for place in (*marks, *numbers) if place != own]
        on_other = any(abs(x - a) < RIGHT and abs(y - b) < DOWN for a, b in others)
        on_whisker = any(abs(x - a) < WHISKER and top - DOWN / 2 < y < end + DOWN / 2 for a, top, end in whiskers)
        return not on_other and not on_whisker and 0 < x < WIDTH and 0 < y < HEIGHT

    texts = []
    for (x, y), row in zip(marks, points, strict=True):
        places = [(x + right, y + down) for right, down in PLACES]
        place = next((place for place in places if is_free(*place, (x, y))), places[0])
        numbers.append(place)
        at = {"x": 10 ** (x_log[0] + place[0] * x_size), "y": y_domain[1] - place[1] * y_size}
        texts.append({**at, "text": row["number"]})
    return texts


def render_candidates(title: str, rows: pd.DataFrame, sentences: Sequence[str], table: pd.DataFrame) -> str:
    """Return a self-contained HTML page that needs no network: the sentences, the plot and the table."""
    svg = draw_inline(draw_candidates(rows), "figure")
    parts = [
        f"<p><strong>{escape(sentences[-1])}</strong></p>",
        f'<div class="plot" role="img" tabindex="0" aria-label="error against seconds">{svg}</div>',
        build_rows(table), *(f"<p>{escape(sentence)}</p>" for sentence in sentences[:-1]),
    ]  # fmt: skip
    return build_page(title, parts)
