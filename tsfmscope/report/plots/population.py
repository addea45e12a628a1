"""Tests of isotropy against error in a population of trainings, and the path of each training."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import altair as alt
import numpy as np

from tsfmscope.report import style
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plots import Plot
from tsfmscope.report.scatter import CORRECTED, NOT_EVENNESS
from tsfmscope.report.style import COLOURS, GREY, Chart, format_signed, is_number, make_rows
from tsfmscope.report.tables import StudyTables

if TYPE_CHECKING:
    import pandas as pd

TESTS = (
    "half", "measure", "grouping", "error", "rho", "low", "high", "detectable", "p", "p_by", "n_runs", "reason",
)  # fmt: skip
PATHS = (
    "family", "size", "run", "step", "is_final", "parameters", "validation_loss", "isotropy", "nmse", "n_datasets",
)  # fmt: skip
MEASURE = "ζ′ minus its null mean, in the last layer"
# Groupings of the tests, in the order of their rows, and errors, in words.
GROUPINGS = {
    "across_runs": "across runs", "inside_families": "inside families", "across_seeds": "across seeds",
    "within_runs": "within runs",
}  # fmt: skip
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


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw the tests, then the paths; each is left out if it has no value."""
    frame = study.rows("population_tests", TESTS)
    about_headline = frame[frame["measure"] == CORRECTED]
    tests = about_headline[np.isfinite(about_headline["rho"].to_numpy(dtype=float))]
    if len(tests):
        texts = [
            f"{name_test(row['grouping'], row['error'])}, {HALVES[row['half']][0]} {describe_test(row)}"
            for row in tests.to_dict("records")
        ]
        words = f"Mean rank correlations of isotropy and error: {'; '.join(texts)}."
        others = frame.loc[(frame["measure"] != CORRECTED) & (frame["half"] == "confirmed")]
        caption = _describe_tests(tests, len(about_headline) - len(tests), len(others))
        yield Figure("population_tests", draw_tests(tests), words, caption, "Tests")
    frame = study.rows("population_paths", PATHS)
    values = frame[["isotropy", "nmse"]].to_numpy(dtype=float)
    paths = frame[np.isfinite(values).all(axis=1) & (values[:, 1] > 0)]
    if len(paths):
        families = list_families(paths)
        shown = ", ".join(families[:PANELS])
        words = f"Line charts of NMSE against isotropy in training, one panel per family: {shown}; "
        words += f"{paths['run'].nunique()} trainings with {len(paths)} snapshots."
        caption = _describe_paths(paths, len(frame) - len(paths), len(families))
        yield Figure("population_paths", draw_paths(paths), words, caption, "Paths of the trainings")


def _describe_tests(tests: pd.DataFrame, n_undefined: int, n_others: int) -> str:
    """Return the caption of the tests.

    n_undefined: number of tests without estimate. n_others: number of tests of hypotheses about other measures.
    """
    parts = [
        f"Mean rank correlation of isotropy ({MEASURE}) and error over data sets, with its 95 % interval. Left of 0: "
        f"more isotropic models have less error, as Shelim et al. 2025 claim.{NOT_EVENNESS}",
        "Across runs: the last weights of all trainings. Inside families, across seeds: differences between families, "
        "or between architectures, do not count. Within runs: the snapshots of a training at equal validation loss.",
    ]
    if (tests["half"] == "confirmed").any():
        parts.append("Open: the data sets that were kept for confirming hypotheses.")
    if tests["detectable"].notna().any():
        parts.append(
            "Grey: effects that are too small for the test. It finds an effect at the ends of the grey band with a "
            "probability of 80 %, and smaller ones less often; if it finds none, smaller effects remain possible."
        )
    if n_undefined:
        noun, verb = ("test", "has") if n_undefined == 1 else ("tests", "have")
        parts.append(f"{n_undefined} {noun} {verb} no estimate and no row; the CSV has the reasons.")
    if n_others:
        noun, verb = ("hypothesis", "is") if n_others == 1 else ("hypotheses", "are")
        parts.append(f"{n_others} {noun} about other measures {verb} in the CSV only.")
    return " ".join(parts)


def _describe_paths(paths: pd.DataFrame, n_undefined: int, n_families: int) -> str:
    """Return the caption of the paths.

    n_undefined: number of snapshots without values. n_families: number of families with values.
    """
    parts = [
        "A line is one training, from its first snapshot (open dot) to its end (filled dot); small dots are snapshots "
        f"in between. Right: more isotropic ({MEASURE}); down: less error. Values are medians over the "
        f"{style.format_range(paths['n_datasets'])} data sets of the exploring half. Horizontal axes differ between "
        "panels."
    ]
    parts += describe_limit(PANELS, n_families, "families")
    if n_undefined:
        noun, verb = ("snapshot", "has") if n_undefined == 1 else ("snapshots", "have")
        parts.append(f"{n_undefined} {noun} {verb} no values.")
    return " ".join(parts)


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
    x_scale = alt.Scale(domain=[-1.1 * end, 1.1 * end], nice=False)
    x = alt.X("rho:Q", title="mean rank correlation ρ", scale=x_scale, axis=ticks)
    base = alt.Chart(tests).encode(y=make_rows(names, field="name"), yOffset=alt.YOffset("half:N", sort=list(halves)))
    colour = style.encode_stroke("half", halves)
    layers = [
        base.transform_filter("isValid(datum.detectable)").mark_bar(color=GREY, opacity=0.22, aria=False).encode(
            x=style.copy_axis(x, "minus"), x2="detectable:Q"
        ),
        style.draw_guide(x=0),
        style.draw_whiskers(base.encode(stroke=colour), x, 2),
        base.mark_point(size=75, strokeWidth=1.8).encode(
            x=x, stroke=colour, fill=style.encode_fill("half", halves),
            fillOpacity=style.open_if(f"datum.half == '{HALVES['confirmed'][0]}'"), **style.encode_tip(),
        ),
    ]  # fmt: skip
    words = "← less error (claim)\u2003\u2003more error →\u2003\u2003grey: too small to be found"
    title = alt.Title(words, fontWeight="normal", fontSize=11, color=style.SOFT)
    return alt.layer(*layers).properties(width=WIDTH, height=alt.Step(ROW, **{"for": "position"}), title=title)


def order_tests(rows: pd.DataFrame) -> list[tuple[str, str]]:
    """Return grouping and error of every row, from the top: in the order of GROUPINGS, then of ERRORS."""

    def sort_key(pair: tuple[str, str]) -> tuple[int, str, int]:
        grouping, error = pair
        return style.find_position(grouping, [*GROUPINGS]), grouping, style.find_position(error, [*ERRORS])

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
    losses = [f"{loss:.4g}" if is_number(loss) else "unknown" for loss in frame["validation_loss"]]
    texts = [
        f"{row.run}, step {row.step}\nisotropy {row.isotropy:.3g}, NMSE {row.nmse:.3g}\n"
        f"validation loss {loss}\nmedians over {row.n_datasets} data sets"
        for row, loss in zip(style.iterate_rows(frame), losses, strict=True)
    ]
    rows = frame.assign(tip=texts, size=frame["size"].astype(str)).sort_values("step", kind="stable")
    is_first = ~rows["run"].duplicated() & ~rows["is_final"].astype(bool)
    rows = rows.assign(is_first=is_first, mark=(is_first | rows["is_final"].astype(bool)).map({True: 55, False: 10}))
    rows = rows[rows["family"].isin(families)]
    colours = style.order_colours(sizes)
    y = alt.Y("nmse:Q", **style.make_log_axis("median NMSE", rows["nmse"]))
    columns, panels = style.choose_columns(len(families)), []
    axis, scale = alt.Axis(tickCount=3), alt.Scale(zero=False, padding=8)
    for family in families:
        x = alt.X("isotropy:Q", title="isotropy, −|ζ′ − null|", scale=scale, axis=axis)
        base = alt.Chart(rows[rows["family"] == family]).encode(x=x, y=y, stroke=style.encode_stroke("size", colours))
        lines = base.mark_line(strokeWidth=1.5, opacity=0.7, aria=False).encode(
            detail="run:N", order="step:Q", strokeDash=style.encode_dash("size", sizes)
        )
        points = base.mark_point().encode(
            fill=style.encode_fill("size", colours), size=alt.Size("mark:Q", scale=None),
            fillOpacity=style.open_if("datum.is_first"), **style.encode_tip(),
        )  # fmt: skip
        panels.append(style.name_panel(alt.layer(lines, points), family, columns, HEIGHT))
    return style.arrange_panels(panels, columns)


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


PLOT = Plot(
    "Does isotropy go with the error over many trainings, and how do both change in a training? Tables of single "
    "models list only the last weights of each training.",
    {"population_tests": TESTS, "population_paths": PATHS},
    draw,
)
