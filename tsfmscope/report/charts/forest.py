"""Forest plot of the correlation of isotropy with forecast error: one row per data set, and their mean."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import altair as alt

from tsfmscope.report.charts import style
from tsfmscope.report.charts.style import GREY, Chart

if TYPE_CHECKING:
    import pandas as pd

# Height of a row and width of the plot in pixels.
ROW, WIDTH = 17, 330
# Longest name of a data set on the axis and the part of its end that is kept, in characters.
NAME, TAIL = 26, 15
LIMITS = alt.Scale(domain=[-1.1, 1.1], nice=False)


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
        for row in style.each_row(rows)
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
        style.guide(x=0),
        base.transform_filter("isValid(datum.low)").mark_rule(color=GREY, aria=False).encode(x="low:Q", x2="high:Q"),
        base.mark_point(fill=GREY, stroke=GREY).encode(
            x=x, fillOpacity=alt.condition("datum.is_filled", alt.value(1), alt.value(0)), **style.tip()
        ),
    ]  # fmt: skip
    headline, p = describe_mean(mean)
    if is_number(mean["spearman"]):
        limits = {name: float(mean[name]) for name in ("spearman", "low", "high") if is_number(mean[name])}
        row = {"dataset": mean_name, **limits, "tip": ", ".join(filter(None, (headline, p)))}
        base = alt.Chart(alt.InlineData([row])).encode(y=y)
        if is_number(mean["low"]):
            layers.append(base.mark_rule(color=GREY, strokeWidth=3, aria=False).encode(x="low:Q", x2="high:Q"))
        layers.append(base.mark_point(shape="diamond", fill=GREY, stroke=GREY, size=130).encode(x=x, **style.tip()))
    subtitle = [*filter(None, [p]), "← less error (claim)\u2003\u2003more error →"]
    title = alt.Title(headline or "ρ is undefined", subtitle=subtitle)
    return alt.layer(*layers).properties(width=WIDTH, height=alt.Step(ROW, **{"for": "position"}), title=title)


def make_rows(names: Sequence[str], *, field: str = "dataset", bold: str = "") -> alt.Y:
    """Return a vertical axis with one row per name, from the top; long names are shortened."""
    labels: Mapping[Any, str] = {name: style.shorten_name(name, NAME, TAIL) for name in names}
    weight = alt.condition(alt.datum.value == bold, alt.value("bold"), alt.value("normal"))
    axis = style.name_ticks(labels, ticks=False, domain=False, labelFontWeight=weight, grid=False)
    return alt.Y(f"{field}:N", title=None, scale=alt.Scale(domain=list(names)), axis=axis)


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


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number, neither None nor NaN."""
    return value is not None and math.isfinite(value)


def format_signed(value: float) -> str:
    """Return a number with two decimals and a true minus sign."""
    return f"{value:.2f}".replace("-", "−")
