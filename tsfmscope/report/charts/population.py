"""Figures of a population of trainings: tests of isotropy against error, and the path of each training."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import altair as alt

from tsfmscope.report.charts import style
from tsfmscope.report.charts.forest import format_signed, is_number, make_rows
from tsfmscope.report.charts.style import COLOURS, GREY, Chart

if TYPE_CHECKING:
    import pandas as pd

# Groupings of the tests, in the order of their rows, and errors, in words.
GROUPINGS = {
    "across_runs": "across runs",
    "inside_families": "inside families",
    "across_seeds": "across seeds",
    "within_runs": "within runs",
}
ERRORS = {"nmse": "NMSE", "wql": "WQL"}
# Half of the data sets -> name and colour.
HALVES = {"explored": ("exploring half", COLOURS[0]), "confirmed": ("confirming half", COLOURS[1])}
# Possible ends of the horizontal axis of the tests.
ENDS = (0.2, 0.5, 1.0)
# Height of a row and width of the plot of the tests in pixels.
ROW, WIDTH = 30, 520
# Largest number of panels, one per family.
PANELS = 8
HEIGHT = 165


def describe_limit(most: int, total: int, noun: str) -> list[str]:
    """Return a sentence for a caption if only `most` of `total` families or steps (noun) are drawn, else nothing."""
    return [f"{most} of {total} {noun} are shown; the CSV has all."] if total > most else []


def draw_tests(rows: pd.DataFrame) -> Chart:
    """Draw one row per grouping and error: the correlation, its interval, and the effects that are too small to find.

    rows: half, grouping, error, rho, low, high, detectable, p, p_by, n_runs. `rho` is a number; other missing values
    are not drawn. A row has one mark per half of the data sets.
    """
    end, records = _find_end(rows), rows.to_dict("records")
    names = [name_test(*pair) for pair in order_tests(rows)]
    tests = rows.assign(
        name=[name_test(row["grouping"], row["error"]) for row in records],
        half=[HALVES[half][0] for half in rows["half"]],
        tip=["\n".join([f"ρ {describe_test(row)}", *_list_facts(row)]) for row in records],
        detectable=rows["detectable"].astype(float),
        minus=-rows["detectable"].astype(float),
    )
    halves = {name: colour for name, colour in HALVES.values() if name in set(tests["half"])}
    ticks = style.name_ticks({end * at: f"{end * at:g}".replace("-", "−") for at in (-1, -0.5, 0, 0.5, 1)})
    x = alt.X(
        "rho:Q",
        title="mean rank correlation ρ",
        scale=alt.Scale(domain=[-1.1 * end, 1.1 * end], nice=False),
        axis=ticks,
    )
    base = alt.Chart(tests).encode(y=make_rows(names, field="name"), yOffset=alt.YOffset("half:N", sort=list(halves)))
    colour = style.stroke("half", halves)
    layers = [
        base.transform_filter("isValid(datum.detectable)").mark_bar(color=GREY, opacity=0.22, aria=False).encode(
            x=style.follow(x, "minus"), x2="detectable:Q"
        ),
        style.guide(x=0),
        base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=2, aria=False).encode(
            x=style.follow(x, "low"), x2="high:Q", stroke=colour
        ),
        base.mark_point(size=75, strokeWidth=1.8).encode(
            x=x, stroke=colour, fill=style.fill("half", halves),
            fillOpacity=alt.condition(f"datum.half == '{HALVES['confirmed'][0]}'", alt.value(0), alt.value(1)),
            **style.tip(),
        ),
    ]  # fmt: skip
    words = "← less error (claim)\u2003\u2003more error →\u2003\u2003grey: too small to be found"
    title = alt.Title(words, fontWeight="normal", fontSize=11, color=style.SOFT)
    return alt.layer(*layers).properties(width=WIDTH, height=alt.Step(ROW, **{"for": "position"}), title=title)


def order_tests(rows: pd.DataFrame) -> list[tuple[str, str]]:
    """Return grouping and error of every row, from the top: in the order of GROUPINGS, then of ERRORS."""
    groupings, errors = list(GROUPINGS), list(ERRORS)

    def sort_key(pair: tuple[str, str]) -> tuple[int, str, int]:
        grouping, error = pair
        known = groupings.index(grouping) if grouping in groupings else len(groupings)
        return known, grouping, errors.index(error) if error in errors else len(errors)

    return sorted(set(zip(rows["grouping"], rows["error"], strict=True)), key=sort_key)


def name_test(grouping: str, error: str) -> str:
    """Return a row's name in words."""
    return f"{GROUPINGS.get(grouping, grouping.replace('_', ' '))}, {ERRORS.get(error, error)}"


def describe_test(row: Mapping[Hashable, Any]) -> str:
    """Return the correlation with its interval in words, such as −0.31 (−0.52 to −0.08)."""
    has_interval = is_number(row["low"]) and is_number(row["high"])
    interval = f" ({format_signed(row['low'])} to {format_signed(row['high'])})" if has_interval else ""
    return format_signed(row["rho"]) + interval


def draw_paths(frame: pd.DataFrame) -> Chart:
    """Draw NMSE against isotropy: one panel per family, one line per run through its snapshots by step.

    frame: family, size, run, step, is_final, parameters, validation_loss, isotropy, nmse, n_datasets; isotropy and
    nmse are numbers, nmse above 0. Colour and dash show the size, from the one with the fewest parameters. An open dot
    is the first snapshot of a run, a filled one its last weights. At most PANELS families are drawn.
    """
    families, sizes = list_families(frame)[:PANELS], order_sizes(frame)
    texts = [
        f"{row.run}, step {row.step}\nisotropy {row.isotropy:.3g}, NMSE {row.nmse:.3g}\n"
        f"validation loss {_format_loss(row.validation_loss)}\nmedians over {row.n_datasets} data sets"
        for row in style.each_row(frame)
    ]
    rows = frame.assign(tip=texts, size=frame["size"].astype(str)).sort_values("step", kind="stable")
    is_first = ~rows["run"].duplicated() & ~rows["is_final"].astype(bool)
    rows = rows.assign(is_first=is_first, mark=(is_first | rows["is_final"].astype(bool)).map({True: 55, False: 10}))
    rows = rows[rows["family"].isin(families)]
    colours = style.order_colours(sizes)
    y = alt.Y("nmse:Q", **style.log_axis("median NMSE", rows["nmse"]))
    columns, panels = style.choose_columns(len(families)), []
    for family in families:
        axis = alt.Axis(tickCount=3)
        x = alt.X("isotropy:Q", title="isotropy, −|ζ′ − null|", scale=alt.Scale(zero=False, padding=8), axis=axis)
        base = alt.Chart(rows[rows["family"] == family]).encode(x=x, y=y, stroke=style.stroke("size", colours))
        lines = base.mark_line(strokeWidth=1.5, opacity=0.7, aria=False).encode(
            detail="run:N", order="step:Q", strokeDash=style.dash("size", sizes)
        )
        points = base.mark_point().encode(
            fill=style.fill("size", colours), size=alt.Size("mark:Q", scale=None),
            fillOpacity=alt.condition("datum.is_first", alt.value(0), alt.value(1)), **style.tip(),
        )  # fmt: skip
        panels.append(style.name_panel(alt.layer(lines, points), family, columns, HEIGHT))
    return style.arrange(panels, columns)


def list_families(frame: pd.DataFrame) -> list[str]:
    """Return the families by name."""
    return sorted(map(str, frame["family"].unique()))


def order_sizes(frame: pd.DataFrame) -> list[str]:
    """Return the sizes by their mean number of parameters, from the smallest; those without a number come last."""
    means = frame["parameters"].astype(float).groupby(frame["size"].astype(str)).mean()
    return sorted(means.index, key=lambda size: (means[size] if is_number(means[size]) else math.inf, size))


def _find_end(rows: pd.DataFrame) -> float:
    """Return the smallest of ENDS that no mark, interval or band exceeds."""
    largest = float(rows[["rho", "low", "high", "detectable"]].astype(float).abs().max().max())
    return next((end for end in ENDS if largest <= end), ENDS[-1])


def _list_facts(row: Mapping[Hashable, Any]) -> list[str]:
    """Return p, the smallest effect that can be found and the number of runs in words, without missing ones."""
    facts = []
    if is_number(row["p"]):
        adjusted = f" (adjusted {row['p_by']:.2g})" if is_number(row["p_by"]) else ""
        facts.append(f"p = {row['p']:.2g}{adjusted}")
    if is_number(row["detectable"]):
        facts.append(f"found with a probability of 80 %: ±{row['detectable']:.2f}")
    if is_number(row["n_runs"]):
        facts.append(f"{int(row['n_runs'])} runs")
    return facts


def _format_loss(loss: float | None) -> str:
    return f"{loss:.4g}" if loss is not None and is_number(loss) else "unknown"
