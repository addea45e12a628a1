"""The section on the run: a timeline of the actors for each stage, and their idle shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tsfmscope.tasks.report.charts.figures import COLOURS, apply_style, escape
from tsfmscope.tasks.report.page.html_table import build_table
from tsfmscope.tasks.report.page.sections import Figure, Section, TableBlock, embed_figure, make_provenance
from tsfmscope.tasks.report.tables import ReportTables, require

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

BARS = ("stage", "lane", "what", "subject", "began", "seconds", "share", "jobs")
IDLE = ("stage", "actor", "jobs", "failed", "actors", "span_s", "loading_share", "idle_share", "outside_s")
LEAD = (
    "Last run of each stage that had any job, from the start of the first job to the end of the last one. One row per "
    "actor; gaps are idle time, faint bars are loads of a model. Times are wall-clock times, which differ between "
    "runs."
)
TABLE = (
    "Idle share: 1 minus the busy share of all actors' time; loading a model counts as busy. The idle share of one "
    "actor covers the time from its first job to its last. Outside: seconds of the run before the first and after the "
    "last job."
)
EMPTY = "No job was timed in this run."
# Value of `actor` in the row for all actors of a stage together.
ALL = "all"
# Number of subjects that have their own colour in a figure.
NAMED = 10
OTHERS, GREY = "others", "#8a8a8a"
# Opacity of model loads and of jobs.
FAINT, SOLID = 0.4, 1.0
# Height of a full bar, as a share of its row.
FULL = 0.8
# Pixels: height of a row; width of a legend entry without its name.
ROW, ENTRY = 22, 46
# Heights in pixels: the title, the axis, one line of the legend.
HEAD, FOOT, LINE = 34, 50, 20
# Widths in pixels of the legend and of one letter in it, on a desktop and on a phone.
WIDE, NARROW = (820, 6.6), (270, 5.9)
# Smallest number of units for which the unit is used, its name, its seconds.
UNITS = ((2.0, "hours", 3600.0), (3.0, "minutes", 60.0), (0.0, "seconds", 1.0))


class _Subject(NamedTuple):
    name: str
    colour: str


def build_section(tables: ReportTables, models: Sequence[str]) -> Section:
    """Build the section. models: the models of the whole page, which determine the colours."""
    bars, idle = require(tables.timeline, BARS), require(tables.idle_share, IDLE)
    blocks = (TableBlock("idle_share", tables.idle_share.title, build_table(idle)),) if len(idle) else ()
    return Section(
        "timeline",
        tables.timeline.title,
        LEAD,
        (make_provenance("timeline", tables.timeline), make_provenance("idle_share", tables.idle_share)),
        len(bars),
        tuple(map(embed_figure, draw_figures(bars, idle, models))),
        blocks,
        EMPTY,
        notes=(TABLE,) if len(idle) else (),
    )


def draw_figures(bars: pd.DataFrame, idle: pd.DataFrame, models: Sequence[str]) -> list[Figure]:
    """Draw one figure per stage, in the order of the runs.

    idle: one row per stage, whose actor is `all`, and one row per actor.
    """
    together = idle[idle["actor"] == ALL]
    order = [*models, *sorted(set(bars["subject"].dropna()) - set(models))]
    figures = []
    for row in together.to_dict("records"):
        part = bars[bars["stage"] == row["stage"]]
        text = _describe_stage({str(name): value for name, value in row.items()})
        alt = f"Timeline of stage {row['stage']}, one row per actor, one bar per job: {text}"
        name, caption = f"timeline-{row['stage']}", f"{row['stage']}: {text}"
        figures.append(Figure(name, draw_stage(part, order), alt, caption, source="timeline"))
    return figures


def draw_stage(bars: pd.DataFrame, order: Sequence[str]) -> go.Figure:
    """Draw the jobs of one stage as bars, one row per lane. order: all subjects; determines their colours.

    The length of a bar is its duration, its height the share of that time that was used. Bars of one lane
    that begin at the same time are stacked, unless every bar is a whole job.
    """
    import plotly.graph_objects as go

    span = float((bars["began"] + bars["seconds"]).max())
    unit, per = _unit(span)
    # Reversed, so that the first lane is on top: the y axis counts from below.
    lanes = sorted(bars["lane"].unique(), key=_natural)[::-1]
    subjects = _subjects(bars, order)
    rows = bars.assign(subject=bars["subject"].where(bars["subject"].isin(list(subjects)), OTHERS))
    rows = rows.sort_values(["lane", "began", "what", "subject"], ascending=[True, True, False, True])
    below = rows.groupby(["lane", "began"])["share"].cumsum() - rows["share"]
    if bool((rows["seconds"] > 0).all() and (rows["share"] >= 1).all()):
        # Each bar is a whole job, so that none is stacked on another.
        below *= 0
    rows = rows.assign(base=rows["lane"].map({lane: position for position, lane in enumerate(lanes)}) - FULL / 2)
    rows = rows.assign(base=rows["base"] + FULL * below, middle=(rows["began"] + rows["seconds"] / 2) / per)
    traces = [
        _bar(part, subject, kind, per)
        for subject in [*subjects.values(), _Subject(OTHERS, GREY)]
        for kind in ("job", "load")
        if len(part := rows[(rows["subject"] == subject.name) & (rows["what"] == kind)])
    ]
    return _lay_out(go.Figure(traces), str(bars["stage"].iloc[0]), unit, span / per, lanes)


def _bar(part: pd.DataFrame, subject: _Subject, kind: str, per: float) -> go.Bar:
    import plotly.graph_objects as go

    return go.Bar(
        x=part["middle"].tolist(),
        y=(FULL * part["share"]).tolist(),
        base=part["base"].tolist(),
        width=(part["seconds"] / per).tolist(),
        name=escape(subject.name) + (", loading" if kind == "load" else ""),
        legendgroup=escape(subject.name),
        showlegend=kind == "job",
        marker={"color": subject.colour, "opacity": SOLID if kind == "job" else FAINT, "line": {"width": 0}},
        customdata=[
            [escape(lane), int(jobs), f"{share * seconds:.3g}", f"{began:.4g}"]
            for lane, jobs, share, seconds, began in zip(
                part["lane"], part["jobs"], part["share"], part["seconds"], part["began"], strict=True
            )
        ],
        hovertemplate=f"<b>{escape(subject.name)}</b>, {'loading' if kind == 'load' else 'jobs'}: %{{customdata[1]}}"
        "<br>%{customdata[0]}<br>%{customdata[2]} s from second %{customdata[3]} on<extra></extra>",
    )


def _lay_out(figure: go.Figure, stage: str, unit: str, span: float, lanes: Sequence[str]) -> go.Figure:
    names = [str(trace.name) for trace in figure.data if trace.showlegend]
    heights = []
    for width, letter in (WIDE, NARROW):
        heights.append(HEAD + LINE * _lines(names, width, letter) + ROW * len(lanes) + FOOT)
    figure = apply_style(figure)
    figure.update_xaxes(title_text=f"{unit} since the first job began", range=[0, span])
    figure.update_yaxes(
        tickvals=list(range(len(lanes))), ticktext=list(map(escape, lanes)), range=[-0.6, len(lanes) - 0.4],
        showgrid=False,
    )  # fmt: skip
    top = {margin: heights[position] - ROW * len(lanes) - FOOT for position, margin in enumerate(("wide", "narrow"))}
    return figure.update_layout(
        title={
            "text": f"<b>{escape(stage)}</b>",
            "x": 0.01,
            "y": 1,
            "yanchor": "top",
            "pad": {"t": 8},
            "font_size": 14,
        },
        barmode="overlay",
        bargap=0,
        showlegend=True,
        legend={"tracegroupgap": 0, "maxheight": LINE * (1 + len(names))},
        height=heights[0],
        margin={"l": 120, "r": 16, "t": top["wide"], "b": FOOT},
        meta={"narrow": {"height": heights[1], "margin": {"t": top["narrow"]}}},
    )


def _lines(names: Sequence[str], width: float, letter: float) -> int:
    """Return the number of lines of a legend of this width in pixels; letter: width of one letter."""
    lines, at = 1, 0.0
    for name in names:
        entry = letter * len(name) + ENTRY
        lines, at = (lines, at + entry) if at + entry <= width else (lines + 1, entry)
    return lines


def _subjects(bars: pd.DataFrame, order: Sequence[str]) -> dict[str, _Subject]:
    """Return the subjects that took the most time, with their colours, in the given order."""
    spent = (bars["share"] * bars["seconds"]).groupby(bars["subject"]).sum()
    most = set(spent.sort_values(ascending=False, kind="stable").index[:NAMED])
    return {
        name: _Subject(name, COLOURS[position % len(COLOURS)]) for position, name in enumerate(order) if name in most
    }


def _describe_stage(row: Mapping[str, Any]) -> str:
    """Return the caption of a stage: jobs, failures, actors, duration and shares of time."""
    jobs, actors, failed = (int(row[name]) for name in ("jobs", "actors", "failed"))
    text = f"{jobs:,} job{'s' * (jobs != 1)}{f', {failed:,} failed' if failed else ''}, "
    text += f"{actors} actor{'s' * (actors != 1)}, {_clock(float(row['span_s']))}"
    if row["idle_share"] == row["idle_share"] and row["idle_share"] is not None:
        text += f"; idle {100 * float(row['idle_share']):.0f} %"
    if row["loading_share"] and row["loading_share"] > 0:
        text += f"; loading models {100 * float(row['loading_share']):.0f} % of the busy time"
    return f"{text}; {_clock(float(row['outside_s']))} before and after."


def _clock(seconds: float) -> str:
    unit, per = _unit(seconds)
    return f"{seconds / per:.3g} {unit if seconds / per != 1 else unit[:-1]}"


def _unit(seconds: float) -> tuple[str, float]:
    return next((name, per) for least, name, per in UNITS if seconds >= least * per)


def _natural(lane: str) -> tuple[Any, ...]:
    """Return a sort key that puts actor-2 before actor-10."""
    head, _, number = lane.partition(" · ")[0].rpartition("-")
    return (head, int(number), lane) if number.isdigit() else (lane, 0, lane)
