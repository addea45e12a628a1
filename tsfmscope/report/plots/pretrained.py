"""Accuracy of models pretrained with narrow heads, growing with depth and flat."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import altair as alt
import numpy as np

from tsfmscope.report import style
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plots import Plot
from tsfmscope.report.style import COLOURS, GREY, Chart, is_number
from tsfmscope.report.tables import StudyTables

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("whose", "family", "line", "model", "schedule", "size", "quantity", "value")
INTERVALS = (
    "model", "base_model", "line", "schedule", "kinds", "is_reused", "is_shared", "quantity", "n_models", "n", "ratio",
    "low", "high",
)  # fmt: skip
# Schedule of head widths -> colour.
SCHEDULES = {"flow": COLOURS[0], "flat": COLOURS[1]}
# Quantities of the panels. The paper's Fig. 7 has two scores and does not tell which is WQL.
SCORES, UNNAMED = ("WQL", "MASE"), "score "
UNNAMED_TITLE = "printed, WQL or MASE"
# Height of a row in pixels, and shift of its seeds below its mean in rows.
ROW, BELOW = 24, 0.27
RATIO = "ratio to the dense model"


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw one panel per score and one row per line of models."""
    frame, intervals = study.rows("pretrained", COLUMNS), study.rows("pretrained_intervals", INTERVALS)
    ours = frame[frame["whose"] == "measured"]
    if ours.empty:
        return
    n_models = ours["model"].nunique()
    words = f"Dot plots of scores relative to the dense model, one row per line of models, {n_models} models."
    caption = (
        "Size: share of the attention's parameters. Flow: head widths grow with depth; flat: all layers have one head "
        f"width.{_describe_intervals(intervals)}"
    )
    if frame["quantity"].str.startswith(UNNAMED).any():
        caption += " The headings of the paper's two columns do not tell WQL from MASE: each row has both numbers."
    yield Figure("pretrained", draw_pretrained(frame, intervals), words, caption)


def _describe_intervals(intervals: pd.DataFrame) -> str:
    """Return sentences on what the intervals are over, with n; empty without intervals."""
    tested = intervals[intervals["low"].notna()]
    texts = []
    for is_over_seeds, units in ((True, "seeds"), (False, "data sets, for lines of one seed")):
        part = tested[(tested["n_models"] > 1) == is_over_seeds]
        if len(part):
            texts.append(f"{style.format_range(part['n'])} {units}")
    return f" 95 % intervals: Student's t over {'; over '.join(texts)}." if texts else ""


def draw_pretrained(frame: pd.DataFrame, intervals: pd.DataFrame) -> Chart:
    """Draw scores relative to the dense model of the same seed, one panel per score.

    frame: COLUMNS. intervals: INTERVALS. Printed values: Yu et al. 2026, Fig. 7 and Tables 3 and 4.

    Open circles are seeds, diamonds their geometric means, with 95 % intervals where the tests have them. Thin
    lines join seeds of models that differ in the schedule only. Printed numbers are grey, in rows of their own.
    """
    ours, printed = join_intervals(frame, intervals), frame[frame["whose"] == "published"]
    rows = list_rows(ours, printed)
    is_unnamed = printed["quantity"].str.startswith(UNNAMED)
    ours = _place_rows(ours, rows, ["family", "line"])
    seed_texts = [f"{row.model}\n{row.value:.3g}" for row in style.iterate_rows(ours)]
    tips = [
        f"{row.text}\n{row.ratio:.3g}"
        + (f"\n95 % interval {row.low:.3g} to {row.high:.3g}, n = {int(row.n)}" if is_number(row.low) else "")
        for row in style.iterate_rows(ours)
    ]
    ours = ours.assign(tip=tips, seed=seed_texts)
    printed = _place_rows(printed, rows, ["line", "size"])
    tips = [f"{row.text}\n{row.value:.3g}" for row in style.iterate_rows(printed)]
    printed = printed.assign(panel=printed["quantity"].mask(is_unnamed, UNNAMED_TITLE), tip=tips)
    columns = ["value", "ratio", "low", "high"]
    values = np.concatenate([ours[columns].to_numpy(float).ravel(), printed["value"].to_numpy(float), [0.9, 1.1]])
    x = alt.X("value:Q", **style.make_log_axis(RATIO, values))
    names = style.name_ticks(dict(enumerate(rows.values())), grid=False, ticks=False, domain=False)
    y_scale = alt.Scale(domain=[-0.6, len(rows) - 0.4], reverse=True, nice=False, zero=False)
    y = alt.Y("position:Q", title=None, scale=y_scale, axis=names)
    stroke, fill = style.encode_stroke("schedule", SCHEDULES), style.encode_fill("schedule", SCHEDULES)
    panels = [name for name in SCORES if name in set(frame["quantity"])] + [UNNAMED_TITLE] * bool(is_unnamed.any())
    charts = []
    for at, panel in enumerate(panels):
        part = ours[ours["quantity"] == panel]
        lines = part.drop_duplicates("position")
        seeds = part[part.groupby("position")["model"].transform("size") > 1]
        mean = alt.Chart(lines).encode(y=y)
        drawn = alt.layer(
            style.draw_guide(x=1),
            alt.Chart(_pair_seeds(part, len(rows))).mark_line(color=GREY, strokeWidth=0.8, aria=False).encode(
                x=x, y=y, detail="pair:N"
            ),
            style.draw_whiskers(mean.encode(stroke=stroke), x, 2.4),
            alt.Chart(seeds.assign(position=seeds["position"] + BELOW)).mark_point(size=40, strokeWidth=1.2).encode(
                x=x, y=y, stroke=stroke, **style.encode_tip("seed")
            ),
            mean.mark_point(shape="diamond", size=90).encode(
                x=style.copy_axis(x, "ratio"), stroke=stroke, fill=fill, **style.encode_tip()
            ),
            alt.Chart(printed[printed["panel"] == panel]).mark_point(shape="square", fill=GREY, stroke=GREY).encode(
                x=x, y=y, **style.encode_tip()
            ),
        )  # fmt: skip
        if at:
            for layer in (layer for layer in drawn.layer if layer.encoding.y is not alt.Undefined):
                layer.encoding.y.axis = alt.Axis(labels=False, ticks=False, domain=False, grid=False)
        charts.append(style.name_panel(drawn, panel, len(panels), ROW * len(rows) + 8))
    return style.arrange_panels(charts, len(charts))


def _place_rows(frame: pd.DataFrame, rows: dict[tuple[Any, ...], str], key: list[str]) -> pd.DataFrame:
    """Return the frame with the position and the text of each row."""
    keys = list(frame[key].itertuples(index=False, name=None))
    return frame.assign(position=[[*rows].index(one) for one in keys], text=[rows[one] for one in keys])


def join_intervals(frame: pd.DataFrame, intervals: pd.DataFrame) -> pd.DataFrame:
    """Return one row per model and score: its value, the key of its line, and the line's mean and interval.

    Without a test, the mean is the geometric mean of the line's models, without an interval.
    """
    ours = frame[frame["whose"] == "measured"].drop(columns=["schedule"])
    keys = ["model", "quantity"]
    lines = intervals.drop_duplicates("model").drop(columns=["quantity", "n", "ratio", "low", "high"])
    rows = ours.drop(columns=["line"]).merge(lines, on="model")
    rows = rows.merge(intervals[[*keys, "n", "ratio", "low", "high"]], on=keys, how="left")
    rows = rows.assign(log=np.log(rows["value"].astype(float).where(rows["value"] > 0)))
    means = np.exp(rows.groupby(["family", "line", "quantity"])["log"].transform("mean"))
    return rows.assign(ratio=rows["ratio"].astype(float).fillna(means)).drop(columns="log")


def list_rows(ours: pd.DataFrame, printed: pd.DataFrame) -> dict[tuple[Any, ...], str]:
    """Return the texts of the rows: the largest models first, flow above flat, printed numbers last.

    The key is family and line of measured models, or line and size of a printed number.
    """
    several, rows = ours["family"].nunique() > 1, dict[tuple[Any, ...], str]()
    ours, printed = (
        frame.sort_values(["size", "schedule", "line"], ascending=[False, False, True]) for frame in (ours, printed)
    )
    for row in ours.to_dict("records"):
        family = f"{row['family']}: " if several else ""
        rows.setdefault((row["family"], row["line"]), f"{family}{name_line(row)}, size {row['size']:.2g}")
    for row in printed.to_dict("records"):
        text = f"paper: {row['line'].removeprefix('printed, ')}, size {row['size']:.2g}"
        rows.setdefault((row["line"], row["size"]), text)
    return rows


def name_line(row: Mapping[Hashable, Any]) -> str:
    """Return what tells a line of models from others: schedule, reused embedding, shared factors, attention."""
    parts = [
        str(row["schedule"]),
        "embedding reused" if row["is_reused"] else "",
        "factors shared by heads" if row["is_shared"] else "",
        f"{row['kinds']}-attention alone" if isinstance(row["kinds"], str) else "",
    ]
    return ", ".join(filter(None, parts))


def _pair_seeds(part: pd.DataFrame, n_rows: int) -> pd.DataFrame:
    """Return the ends of lines between the seeds of two neighbouring rows that differ in the schedule only.

    Lines of a single model have no seeds to join. Columns: pair, value, position.
    """
    import pandas as pd

    ends: list[tuple[int, float, float]] = []
    for at in range(n_rows - 1):
        first, second = (part[part["position"] == position] for position in (at, at + 1))
        if min(len(first), len(second)) < 2 or name_line_without_schedule(first) != name_line_without_schedule(second):
            continue
        both = first.merge(second, on="base_model", suffixes=("", "_second"))
        for start, end in zip(both["value"], both["value_second"], strict=True):
            pair = len(ends) // 2
            ends += [(pair, float(start), at + BELOW), (pair, float(end), at + 1 + BELOW)]
    return pd.DataFrame(ends, columns=["pair", "value", "position"])


def name_line_without_schedule(part: pd.DataFrame) -> tuple[Any, ...]:
    """Return what two lines of models must share to be a pair: size, embedding, factors and attention."""
    row = part.iloc[0]
    kinds = row["kinds"] if isinstance(row["kinds"], str) else None
    return round(float(row["size"]), 2), bool(row["is_reused"]), bool(row["is_shared"]), kinds


PLOT = Plot(
    "Models pretrained from random weights with narrow heads, relative to the dense model of the same seed: below 1 "
    "the narrow model has less error. Head widths either grow with depth (flow) or are equal in all layers (flat).",
    {"pretrained": COLUMNS, "pretrained_intervals": INTERVALS},
    draw,
    topic="compression",
)
