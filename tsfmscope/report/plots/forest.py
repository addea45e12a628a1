"""Correlation of isotropy with error in each data set, and its mean with an interval."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import altair as alt

from tsfmscope.report import style
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plots import Plot
from tsfmscope.report.scatter import NOT_EVENNESS
from tsfmscope.report.style import GREY, Chart, format_signed, is_number, make_rows
from tsfmscope.report.tables import StudyTables

if TYPE_CHECKING:
    import pandas as pd

ROWS = ("dataset", "condition", "n_models", "spearman", "low", "high")
MEAN = ("n", "n_blocks", "spearman", "low", "high", "p", "p_smallest", "reason")
# Height of a row and width of the plot in pixels.
ROW, WIDTH = 17, 330
LIMITS = alt.Scale(domain=[-1.1, 1.1], nice=False)


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw the forest plot; nothing if no data set has a correlation."""
    frame, means = study.rows("dataset_correlations", ROWS), study.rows("mean_correlation", MEAN)
    rows = frame[frame["spearman"].notna()]
    if rows.empty:
        return
    mean = {str(name): value for name, value in means.iloc[0].items()} if len(means) else dict.fromkeys(MEAN)
    names = [name for name in study.conditions if name in set(rows["condition"])]
    words = f"Forest plot of {len(rows)} correlations in {rows['dataset'].nunique()} data sets. "
    words += (", ".join(filter(None, describe_mean(mean))) or "The mean is undefined") + "."
    caption = (
        f"Each mark is Spearman's ρ of isotropy (ζ′ minus its null mean, in the last layer) and log NMSE over "
        f"{style.format_range(rows['n_models'])} models on one data set. Left of 0, shaded: more isotropic "
        f"models have less error, as Shelim et al. 2025 claim.{NOT_EVENNESS}"
    )
    if is_number(mean["spearman"]):
        interval = ", with its 95 % interval" if is_number(mean["low"]) else ", without an interval"
        caption += f" Diamond: mean of the {len(rows)} correlations{interval}."
    if len(names) > 1:
        caption += f" Filled: {names[0]}; open: {', '.join(names[1:])}."
    if is_number(mean["p_smallest"]):
        caption += f" With so few models p is at least {mean['p_smallest']:.2g}."
    if len(frame) > len(rows):
        caption += f" {len(frame) - len(rows)} more correlations are undefined: too few models, or equal values."
    yield Figure("dataset_correlations", draw_forest(rows, mean, study.conditions), words, caption)


def draw_forest(rows: pd.DataFrame, mean: Mapping[str, Any], conditions: Sequence[str]) -> Chart:
    """Draw one row per data set, from agreement with the claim to disagreement, and their mean at the bottom.

    rows: dataset, condition, n_models, spearman, low, high. A data set has one mark per condition; missing
    limits are not drawn.
    mean: spearman, low, high, p of the mean over all rows; missing values are not drawn.
    conditions: in the study's order; the first is filled, the others are open.
    """
    names, mean_name = order_datasets(rows), f"mean of {len(rows)}"
    shown = [name for name in conditions if name in set(rows["condition"])]
    texts = [
        f"{row.dataset}\n{row.condition}, {row.n_models} models\nρ {format_signed(row.spearman)}"
        for row in style.iterate_rows(rows)
    ]
    ticks = style.name_ticks({-1: "−1", -0.5: "−0.5", 0: "0", 0.5: "0.5", 1: "1"})
    x = alt.X("spearman:Q", title="Spearman ρ over models", scale=LIMITS, axis=ticks)
    y = make_rows([*names, mean_name], bold=mean_name)
    base = alt.Chart(rows.assign(tip=texts, is_filled=rows["condition"].isin(shown[:1]))).encode(
        y=y, yOffset=alt.YOffset("condition:N", sort=shown)
    )
    layers = [
        alt.Chart(alt.InlineData([{}])).mark_rect(color=GREY, opacity=0.13, aria=False).encode(
            x=alt.X(datum=-1.1, scale=LIMITS), x2=alt.X2Datum(0)
        ),
        style.draw_guide(x=0),
        base.transform_filter("isValid(datum.low)").mark_rule(color=GREY, aria=False).encode(x="low:Q", x2="high:Q"),
        base.mark_point(fill=GREY, stroke=GREY).encode(
            x=x, fillOpacity=style.fill_if("datum.is_filled"), **style.encode_tip()
        ),
    ]  # fmt: skip
    headline, p = describe_mean(mean)
    if is_number(mean["spearman"]):
        limits = {name: float(mean[name]) for name in ("spearman", "low", "high") if is_number(mean[name])}
        row = {"dataset": mean_name, **limits, "tip": ", ".join(filter(None, (headline, p)))}
        base = alt.Chart(alt.InlineData([row])).encode(y=y)
        if is_number(mean["low"]):
            layers.append(base.mark_rule(color=GREY, strokeWidth=3, aria=False).encode(x="low:Q", x2="high:Q"))
        layers.append(
            base.mark_point(shape="diamond", fill=GREY, stroke=GREY, size=130).encode(x=x, **style.encode_tip())
        )
    subtitle = [*filter(None, [p]), "← less error (claim)\u2003\u2003more error →"]
    title = alt.Title(headline or "ρ is undefined", subtitle=subtitle)
    return alt.layer(*layers).properties(width=WIDTH, height=alt.Step(ROW, **{"for": "position"}), title=title)


def order_datasets(rows: pd.DataFrame) -> list[str]:
    """Return the data sets by their mean correlation over conditions, the most negative first."""
    means = rows.groupby("dataset")["spearman"].mean()
    return sorted(map(str, means.index), key=lambda name: (means[name], name))


def describe_mean(mean: Mapping[str, Any]) -> tuple[str, str]:
    """Return the mean with its interval, and its p; a text is empty without its number."""
    if not is_number(mean["spearman"]):
        return "", ""
    words = f"Mean ρ = {format_signed(mean['spearman'])}"
    if is_number(mean["low"]):
        words += f" (95 % interval {format_signed(mean['low'])} to {format_signed(mean['high'])})"
    return words, f"p = {mean['p']:.2g}, permuting models" if is_number(mean["p"]) else ""


PLOT = Plot(
    "One row per data set. Left of 0, models with more isotropic states have less error.",
    {"dataset_correlations": ROWS, "mean_correlation": MEAN},
    draw,
)
