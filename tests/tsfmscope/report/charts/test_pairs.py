"""Arrows lead from the first condition to the next, in isotropy and in error, and none is left out."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from tests.tsfmscope.report.charts.test_panels import CONDITIONS, MODELS, PAIR
from tests.tsfmscope.report.recorded import find_study, with_rows
from tsfmscope.report.charts import pairs
from tsfmscope.report.charts.figures import COLOURS
from tsfmscope.report.page import studies
from tsfmscope.report.tables import ReportTables, order_models

AXES = {"x": "zeta_adjusted", "x2": "nmse"}
# Model, data set, condition, column -> value.
Ends = dict[tuple[str, str, str, str], float]


def read_ends(figure: go.Figure) -> Ends:
    """Return every drawn end of an arrow; a hover text belongs to ends alone."""
    found: Ends = {}
    for trace in (trace for trace in figure.data if trace.hovertemplate):
        for row, x in zip(trace.customdata, trace.x, strict=True):
            key = (row[1], row[0], row[2], AXES[trace.xaxis])
            assert key not in found
            found[key] = x
    return found


def list_values(rows: pd.DataFrame) -> Ends:
    return {
        (row["model"], row["dataset"], row["condition"], column): abs(row[column])
        for row, column in itertools.product(rows.to_dict("records"), AXES.values())
        if np.isfinite(row[column]) and row[column] != 0
    }


def test_both_ends_of_every_arrow_are_drawn_once_in_either_quantity(tables: ReportTables) -> None:
    recorded = tables.studies[0].answers["points"].frame
    for rows, conditions in ((PAIR, CONDITIONS), (recorded, ("context-128", "noisy"))):
        models = sorted(set(rows["model"]))
        assert read_ends(pairs.draw_pairs(rows, models, conditions)) == list_values(rows)


@pytest.mark.parametrize(("column", "bad"), [("zeta_adjusted", np.nan), ("zeta_adjusted", 0.0), ("nmse", np.inf)])
def test_a_value_without_a_logarithm_hides_no_other(column: str, bad: float) -> None:
    rows = PAIR.copy()
    rows.loc[0, column] = bad
    drawn = read_ends(pairs.draw_pairs(rows, MODELS, CONDITIONS))
    assert drawn == list_values(rows)
    assert len(drawn) == 2 * len(PAIR) - 1


@pytest.mark.parametrize("order", [CONDITIONS, CONDITIONS[::-1]])
def test_a_ring_is_the_first_condition_and_a_triangle_points_from_it_to_the_second(order: tuple[str, ...]) -> None:
    figure = pairs.draw_pairs(PAIR, MODELS, order)
    values = list_values(PAIR)
    seen = set()
    for trace in (trace for trace in figure.data if trace.hovertemplate):
        for position, (model_row, x) in enumerate(zip(trace.customdata, trace.x, strict=True)):
            dataset, model, condition = model_row
            if condition == order[0]:
                assert trace.marker.symbol == "circle-open"
                continue
            start = values[model, dataset, order[0], AXES[trace.xaxis]]
            assert trace.marker.symbol[position] == ("triangle-left" if x < start else "triangle-right")
            seen.add(trace.marker.symbol[position])
    assert seen == ({"triangle-right"} if order == CONDITIONS else {"triangle-left"})


def test_a_line_joins_the_two_ends_on_the_row_of_the_data_set() -> None:
    figure = pairs.draw_pairs(PAIR, MODELS, CONDITIONS)
    names = dict(zip(figure.layout.yaxis.tickvals, figure.layout.yaxis.ticktext, strict=True))
    assert [names[height] for height in sorted(names, reverse=True)] == ["rain", "car", "dominick"]
    ends = {(t.xaxis, x, y) for t in figure.data if t.hovertemplate for x, y in zip(t.x, t.y, strict=True)}
    lines = [t for t in figure.data if t.mode == "lines"]
    joined = [(t.xaxis, x, y) for t in lines for x, y in zip(t.x, t.y, strict=True) if x is not None]
    assert set(joined) == ends and len(joined) == len(ends) == 2 * len(PAIR)
    for trace in (trace for trace in figure.data if trace.hovertemplate):
        for row, y in zip(trace.customdata, trace.y, strict=True):
            assert names[min(names, key=lambda height: abs(height - y))] == row[0]


def test_rows_do_not_collide() -> None:
    heights = {y for t in pairs.draw_pairs(PAIR, MODELS, CONDITIONS).data if t.hovertemplate for y in t.y}
    assert len(heights) == 6  # data sets x models
    assert min(abs(a - b) for a, b in itertools.combinations(heights, 2)) >= pairs.ARROW


def test_a_mark_tells_whether_isotropy_and_error_change_alike() -> None:
    rows = PAIR[PAIR["model"] == "m"].assign(zeta_adjusted=[0.1, 0.2, 0.2, 0.1, 0.1, 0.1], nmse=[1, 2, 1, 2, 1, 2])
    placed = pairs.pair_rows(rows)
    assert pairs.compare(placed, CONDITIONS) == {"car": "✓", "dominick": "✗", "rain": ""}
    assert pairs.compare(placed, CONDITIONS[::-1]) == {"car": "✓", "dominick": "✗", "rain": ""}
    (marks,) = (trace for trace in pairs.draw_pairs(rows, MODELS, CONDITIONS).data if trace.mode == "text")
    assert list(marks.text) == ["✓", "✗"]


def test_the_marks_stand_right_of_every_arrow_inside_the_axis() -> None:
    figure = pairs.draw_pairs(PAIR, MODELS, CONDITIONS)
    low, high = figure.layout.xaxis2.range
    marks = [x for trace in figure.data if trace.mode == "text" for x in trace.x]
    assert len(set(marks)) == 1 and len(marks) == 6
    assert PAIR["nmse"].max() < marks[0] < 10**high and 10**low < PAIR["nmse"].min()


def test_a_model_has_its_colour_and_a_legend_entry_only_among_several() -> None:
    alone = pairs.draw_pairs(PAIR[PAIR["model"] == "n"], MODELS, CONDITIONS)
    assert {trace.marker.color for trace in alone.data if trace.hovertemplate} == {COLOURS[1]}
    for figure, names in ((alone, []), (pairs.draw_pairs(PAIR, MODELS, CONDITIONS), list(MODELS))):
        assert [trace.name for trace in figure.data if trace.showlegend is not False] == [*names, *CONDITIONS]


def test_the_caption_counts_the_marks_and_the_values_that_are_not_drawn(tables: ReportTables) -> None:
    study = find_study(tables, "conditions")
    frame = study.answers["points"].frame.copy()
    frame.loc[0, "zeta_adjusted_corrected"] = 0.0
    (drawn,) = studies.draw_figures(with_rows(study, "points", frame), order_models(tables))
    marks = [text for trace in drawn.figure.data if trace.mode == "text" for text in trace.text]
    assert len(marks) == 2
    assert f"({marks.count('✓')} of 2)" in drawn.caption and f"in {marks.count('✓')} of 2 pairs" in drawn.alt
    assert "1 of 6 results lacks a positive value on one axis" in drawn.caption
