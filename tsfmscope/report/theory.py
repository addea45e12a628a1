"""Sections on the theorems of Yu et al. 2026: their statements, random instances and fitted slopes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import altair as alt

from tsfmscope.report import style
from tsfmscope.report.page import sections
from tsfmscope.report.page.sections import ClaimSentence, Figure, Section, TableBlock, build_table
from tsfmscope.report.page.texts import TEXTS
from tsfmscope.report.page.verdicts import format_number, is_present
from tsfmscope.report.style import COLOURS, GREY, SYMBOLS, Chart
from tsfmscope.report.tables import ReportTables, require

if TYPE_CHECKING:
    import pandas as pd

POINTS = ("experiment", "heads", "x", "y", "low", "high", "n")
SLOPES = ("experiment", "n_seeds", "slope", "low", "high", "claimed", "verdict")
BOUNDS = (
    "experiment", "form", "kind", "n", "violations", "ratio_median", "ratio_largest", "worst_seed", "worst_instance",
    "worst_x", "worst_y", "worst_bound", "worst_setting",
)  # fmt: skip
RATE = "Corollary 2 rate"
# Height of a panel, and of one statement in the plot of the bounds, in pixels.
HEIGHT, ROW = 260, 19
# Factor between the sparse and the dense sketch at one number of heads.
DODGE = 1.05
# Least distance of labelled points in the left panel, as a share of its width.
APART = 0.05
ERROR, MISSED = "error of the attention output", "share of the row space missed"
X_TITLES = ("first dropped singular value", "width of the model")
INDEX = "index of the singular value, largest first"
# Smaller ratios are drawn at this value.
LOWEST = 1e-3


def build_sections(tables: ReportTables) -> list[Section]:
    """Build the sections on Figs. 15 to 17 and on the bounds."""
    slopes, figures = require(tables.theory_slopes, SLOPES), draw_figures(tables)
    answers = {"theory-bounds": tables.theory_violations, "theory-slopes": tables.theory_slopes}
    bounds = (*describe_failures(tables.theory_violations.frame), *describe_slopes(slopes, "Theorem"))
    parts = {
        "theory-compression": (tables.theory_compression, describe_slopes(slopes, "J.1")),
        "theory-sketch": (tables.theory_sketch, describe_slopes(slopes, "J.2")),
        "theory-flow": (tables.theory_flow, describe_slopes(slopes, "J.3")),
        "theory-bounds": (tables.theory_violations, (*bounds, *describe_slopes(slopes, "Corollary"))),
    }
    built = []
    for name, (answer, claims) in parts.items():
        texts, drawn = TEXTS["theory"][name], (figures[name],) if name in figures else ()
        section = sections.build_section(name, answer, texts["lead"], figures=drawn)
        built.append(replace(section, title=texts["title"], kicker=texts["kicker"], claims=claims))
    provenance = (*built[-1].provenance, sections.make_provenance("theory_slopes", tables.theory_slopes))
    shown = {name: answer for name, answer in answers.items() if len(answer.frame)}
    blocks = (TableBlock(name, answer.title, build_table(answer.frame)) for name, answer in shown.items())
    return [*built[:-1], replace(built[-1], provenance=provenance, tables=tuple(blocks))]


def draw_figures(tables: ReportTables) -> dict[str, Figure]:
    """Return section name -> its figure, without sections that have no rows."""
    bounds = require(tables.theory_violations, BOUNDS)
    parts: dict[str, tuple[Callable[[pd.DataFrame], Chart], pd.DataFrame]] = {
        "theory-compression": (draw_compression, require(tables.theory_compression, POINTS)),
        "theory-sketch": (draw_sketching, require(tables.theory_sketch, POINTS)),
        "theory-flow": (draw_flow, require(tables.theory_flow, POINTS)),
        "theory-bounds": (draw_ratios, bounds[bounds["kind"] == "instance"]),
    }
    return {
        name: Figure(name, draw(frame), TEXTS["theory"][name]["alt"], TEXTS["theory"][name]["caption"])
        for name, (draw, frame) in parts.items()
        if len(frame)
    }


def describe_slopes(slopes: pd.DataFrame, prefix: str) -> tuple[ClaimSentence, ...]:
    """Return one sentence per slope whose experiment begins with the prefix."""
    rows = slopes[slopes["experiment"].str.startswith(prefix)].to_dict("records")
    return tuple(_describe_slope(row) for row in rows)


def describe_failures(bounds: pd.DataFrame) -> tuple[ClaimSentence, ...]:
    """Return one sentence on all bounds that hold as printed, and one for each bound that fails somewhere."""
    instances = bounds[bounds["kind"] == "instance"]
    whole = instances[(instances["form"] == "printed") & (instances["violations"] == 0)]
    sentences = []
    if len(whole):
        names, n = ", ".join(map(str, whole["experiment"])), f"{int(whole['n'].min()):,}"
        text = f"Bounds that hold as printed at every one of {n} or more random instances: {names}: agrees."
        sentences.append(ClaimSentence("agrees", text))
    for row in instances[instances["violations"] > 0].to_dict("records"):
        repaired = instances[(instances["experiment"] == row["experiment"]) & (instances["form"] == "repaired")]
        sentences.append(ClaimSentence("differs", _describe_failure(row, repaired)))
    return tuple(sentences)


def _describe_slope(row: Mapping[Hashable, Any]) -> ClaimSentence:
    name, claimed = str(row["experiment"]), format_number(row["claimed"])
    claim = TEXTS["slopes"].get(name, f"slope {claimed}")
    if name.startswith(RATE):
        claim = f"for {name.partition(', ')[2]} singular values fall by {claimed} or more per step of j"
    text = f"Yu et al. 2026 ({name}): {claim}. Here: slope {format_number(row['slope'])}"
    if is_present(row["low"]):
        text += f", 95 % interval {format_number(row['low'])} to {format_number(row['high'])}"
    return ClaimSentence(str(row["verdict"]), f"{text}, {int(row['n_seeds'])} seeds: {row['verdict']}.")


def _describe_failure(row: Mapping[Hashable, Any], repaired: pd.DataFrame) -> str:
    name = str(row["experiment"])
    text = f"{name}, {row['form']}: fails at {int(row['violations']):,} of {int(row['n']):,} random instances"
    text += f", at worst {format_number(row['worst_y'])} against a bound of {format_number(row['worst_bound'])} "
    text += f"(seed {int(row['worst_seed'])}, instance {int(row['worst_instance'])}): differs."
    if name in TEXTS["repairs"]:
        text += f" Where: {TEXTS['repairs'][name]}."
    if len(repaired):
        repair = repaired.iloc[0]
        text += f" Repaired, it fails at {int(repair['violations']):,} of {int(repair['n']):,} and uses up at most "
        text += f"{format_number(repair['ratio_largest'])} of the bound."
    return text


def draw_compression(frame: pd.DataFrame) -> Chart:
    """Draw Fig. 15: error against the first dropped singular value and against the width, with slopes 1 and ½."""
    panels = []
    for name, position, slope in (("J.1 rank", 0, 1.0), ("J.1 width", 1, 0.5)):
        part = frame[frame["experiment"] == name].sort_values("x")
        at = part.iloc[len(part) // 2 :][:1]
        # The line of the slope stands below the points.
        line = part.assign(y=0.4 * at["y"].sum() * (part["x"] / at["x"].sum()) ** slope)
        ticks = sorted(set(part["x"])) if position else ()
        x = alt.X("x:Q", **style.make_log_axis(X_TITLES[position], part["x"], ticks))
        y = alt.Y("y:Q", **style.make_log_axis(ERROR, [*part["low"], *part["high"], *line["y"]]))
        label = line.loc[at.index].assign(text=f"slope {'1' if slope == 1 else '½'}")
        drawn = alt.layer(
            alt.Chart(line).mark_line(color=GREY, strokeWidth=1.5, strokeDash=[6, 4], aria=False).encode(x=x, y=y),
            alt.Chart(label).mark_text(dx=8, dy=10, align="left", color=GREY, aria=False).encode(
                x=x, y=y, text="text:N"
            ),
            *_draw_medians(part, x, y, COLOURS[position], SYMBOLS[position]),
        )  # fmt: skip
        panels.append(style.name_panel(drawn, ("error by rank", "error by width")[position], 2, HEIGHT))
    return alt.concat(*panels, columns=2)


def draw_sketching(frame: pd.DataFrame) -> Chart:
    """Draw Fig. 16: singular values of X with the errors of sketches, and these errors against the number of heads.

    On the left, the median error of h heads stands at the index whose singular value it equals.
    """
    names = ("J.2 spectrum", "J.2 sparse distance", "J.2 sparse")
    spectrum, sparse, index = (frame[frame["experiment"] == name].sort_values("x") for name in names)
    points = sparse.assign(x=index["y"].to_numpy(), text=[f"{int(h)} head{'' if h == 1 else 's'}" for h in index["x"]])
    last = float(spectrum["x"].max()) if len(spectrum) else 1.0
    # The first points lie close together: those nearer than APART to the last labelled one have no label.
    free, is_named = -1.0, []
    for at in points["x"]:
        is_named.append(at >= free)
        free = at + APART * last if at >= free else free
    x = alt.X("x:Q", title=INDEX, scale=alt.Scale(domain=[0, 1.15 * last], nice=False))
    y = alt.Y("y:Q", **style.make_log_axis("singular value of X", [*spectrum["y"], *sparse["y"]]))
    marks = alt.Chart(points.assign(tip=points["text"])).encode(x=x, y=y)
    left = alt.layer(
        alt.Chart(spectrum).mark_line(color=GREY, aria=False).encode(x=x, y=y),
        marks.mark_point(fill=COLOURS[0], stroke=COLOURS[0]).encode(**style.encode_tip()),
        alt.Chart(points[is_named]).mark_text(dx=8, dy=-5, align="left", color=COLOURS[0], aria=False).encode(
            x=x, y=y, text="text:N"
        ),
    )  # fmt: skip
    both = frame[frame["experiment"].isin(["J.2 sparse distance", "J.2 dense distance"])]
    kinds = {f"{kind} sketch": COLOURS[position] for position, kind in enumerate(("sparse", "dense"))}
    x = alt.X("x:Q", **style.make_log_axis("number of heads", both["x"], sorted({float(at) for at in both["x"]})))
    y = alt.Y("y:Q", **style.make_log_axis(MISSED, [*both["low"], *both["high"]]))
    layers = []
    for position, kind in enumerate(("sparse", "dense")):
        away = frame[frame["experiment"] == f"J.2 {kind} distance"].sort_values("x")
        # The two coincide, so they stand side by side.
        away = away.assign(x=away["x"].astype(float) * DODGE ** (2 * position - 1), kind=f"{kind} sketch")
        drawn = _draw_medians(away, x, y, COLOURS[position], SYMBOLS[position])
        layers += [drawn[0], drawn[1].encode(stroke=style.encode_stroke("kind", kinds)), drawn[2]]
    panels = [
        style.name_panel(left, "errors as singular values of X", 2, HEIGHT),
        style.name_panel(alt.layer(*layers), "errors by number of heads", 2, HEIGHT),
    ]
    return alt.concat(*panels, columns=2)


def draw_flow(frame: pd.DataFrame) -> Chart:
    """Draw Fig. 17: relative singular values of X, and of MH-Attention(X) + X for every number of heads."""
    spectra = frame[frame["experiment"] == "J.3 spectrum"].sort_values(["heads", "x"])
    numbers = sorted({int(heads) for heads in spectra["heads"]})
    names = {heads: f"{heads} head{'' if heads == 1 else 's'}" if heads else "input X" for heads in numbers}
    colours = style.order_colours([names[heads] for heads in numbers if heads])
    colours = {name: colours.get(name, GREY) for name in names.values()}
    rows = spectra.assign(name=spectra["heads"].astype(int).map(names), is_input=spectra["heads"] == 0)
    line = alt.Chart(rows).mark_line().encode(
        x=alt.X("x:Q", title=INDEX),
        y=alt.Y("y:Q", **style.make_log_axis("singular value ÷ largest", rows["y"])),
        stroke=style.encode_stroke("name", colours),
        strokeDash=alt.condition("datum.is_input", alt.value([6, 4]), alt.value([1, 0])), **style.encode_tip("name"),
    )  # fmt: skip
    return line.properties(width=400, height=HEIGHT)


def draw_ratios(frame: pd.DataFrame) -> Chart:
    """Draw the share of each bound that random instances use up: median and largest ratio, with a line at 1.

    frame: experiment, form, n, violations, ratio_median, ratio_largest. One row per statement and form,
    sorted by the largest ratio. Filled: printed; open: repaired.
    """
    rows = frame.sort_values(["ratio_largest", "experiment"], ascending=[False, True])
    names, texts = [], []
    for row in style.iterate_rows(rows):
        failed = f": {row.violations:,} of {row.n:,} fail" if row.violations else ""
        names.append(f"{row.experiment}, {row.form}{failed}")
        texts.append(f"{row.experiment}, {row.form}\n{row.violations:,} of {row.n:,} instances fail")
    rows = rows.assign(name=names, text=texts)
    both = rows.melt(["name", "text", "form"], ["ratio_median", "ratio_largest"], "kind", "ratio")
    both = both.assign(
        kind=both["kind"].str.removeprefix("ratio_"),
        tip=[f"{text}\n{ratio:.3g} of the bound" for text, ratio in zip(both["text"], both["ratio"], strict=True)],
        ratio=both["ratio"].astype(float).clip(lower=LOWEST),
    )
    kinds = {"median": COLOURS[0], "largest": COLOURS[1]}
    x_axis = style.make_log_axis("share of the bound that is used up; beyond 1 it fails", both["ratio"])
    axis = alt.Axis(ticks=False, domain=False, grid=False)
    points = alt.Chart(both).mark_point().encode(
        x=alt.X("ratio:Q", **x_axis),
        y=alt.Y("name:N", title=None, scale=alt.Scale(domain=names), axis=axis),
        stroke=style.encode_stroke("kind", kinds), fill=style.encode_fill("kind", kinds),
        fillOpacity=style.fill_if("datum.form == 'printed'"),
        size=alt.condition("datum.kind == 'median'", alt.value(30), alt.value(80)), **style.encode_tip(),
    )  # fmt: skip
    return alt.layer(style.draw_guide(x=1, dashes=(6, 4)), points).properties(width=430, height=alt.Step(ROW))


def _draw_medians(part: pd.DataFrame, x: alt.X, y: alt.Y, colour: str, symbol: str) -> Sequence[alt.Chart]:
    """Draw the median over seeds as a line with marks, and the range as whiskers."""
    texts = [f"{row.x:.3g}\n{row.y:.3g} ({row.low:.3g} to {row.high:.3g})" for row in style.iterate_rows(part)]
    base = alt.Chart(part.assign(tip=texts)).encode(x=x)
    return (
        base.mark_rule(color=colour, aria=False).encode(y=style.copy_axis(y, "low"), y2="high:Q"),
        base.mark_line(color=colour, aria=False).encode(y=y),
        base.mark_point(shape=symbol, fill=colour, stroke=colour).encode(y=y, **style.encode_tip()),
    )  # fmt: skip
