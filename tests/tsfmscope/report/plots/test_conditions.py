"""Arrows lead from the first condition to the next, in isotropy and in error, and none is left out."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

from tests.tsfmscope.report.drawn import has_legend, read_panels, read_scale
from tests.tsfmscope.report.plots.test_domains import CONDITIONS, MODELS, PAIR
from tests.tsfmscope.report.recorded import find_study, with_rows
from tsfmscope.report.page import studies
from tsfmscope.report.plots import conditions
from tsfmscope.report.style import COLOURS, Chart
from tsfmscope.report.tables import ReportTables, order_models

COLUMNS = {"isotropy": "zeta_adjusted", "nmse": "nmse"}
# Model, data set, condition, column -> value.
Ends = dict[tuple[str, str, str, str], float]


def read_ends(chart: Chart) -> Ends:
    """Return every drawn end of an arrow."""
    found: Ends = {}
    for panel in read_panels(chart):
        layer = panel.layer("point")
        column = layer.encoding["x"]["field"]
        for row in layer.rows:
            key = (row["model"], row["dataset"], row["condition"], COLUMNS[column])
            assert key not in found
            found[key] = row[column]
    return found


def list_values(rows: pd.DataFrame) -> Ends:
    return {
        (row["model"], row["dataset"], row["condition"], column): abs(row[column])
        for row, column in itertools.product(rows.to_dict("records"), COLUMNS.values())
        if np.isfinite(row[column]) and row[column] != 0
    }


def test_both_ends_of_every_arrow_are_drawn_once_in_either_quantity(tables: ReportTables) -> None:
    recorded = tables.studies[0].answers["points"].frame
    for rows, order in ((PAIR, CONDITIONS), (recorded, ("context-128", "noisy"))):
        models = sorted(set(rows["model"]))
        assert read_ends(conditions.draw_pairs(rows, models, order)) == pytest.approx(list_values(rows))


@pytest.mark.parametrize(("column", "bad"), [("zeta_adjusted", np.nan), ("zeta_adjusted", 0.0), ("nmse", np.inf)])
def test_a_value_without_a_logarithm_hides_no_other(column: str, bad: float) -> None:
    rows = PAIR.copy()
    rows.loc[0, column] = bad
    drawn = read_ends(conditions.draw_pairs(rows, MODELS, CONDITIONS))
    assert drawn == list_values(rows)
    assert len(drawn) == 2 * len(PAIR) - 1


@pytest.mark.parametrize("order", [CONDITIONS, CONDITIONS[::-1]])
def test_a_ring_is_the_first_condition_and_a_triangle_points_from_it_to_the_second(order: tuple[str, ...]) -> None:
    values, seen = list_values(PAIR), set()
    for panel in read_panels(conditions.draw_pairs(PAIR, MODELS, order)):
        layer = panel.layer("point")
        column = layer.encoding["x"]["field"]
        for row in layer.rows:
            if row["condition"] == order[0]:
                assert (row["symbol"], row["place"]) == ("circle", 0)
                continue
            start = values[row["model"], row["dataset"], order[0], COLUMNS[column]]
            assert row["symbol"] == ("triangle-left" if row[column] < start else "triangle-right")
            seen.add(row["symbol"])
        assert panel.layer("line").encoding["detail"]["field"] == "dataset"
        assert layer.encoding["y"]["scale"]["domain"] == ["rain", "car", "dominick"]
    assert seen == ({"triangle-right"} if order == CONDITIONS else {"triangle-left"})


def test_a_word_tells_whether_isotropy_and_error_change_alike() -> None:
    rows = PAIR[PAIR["model"] == "m"].assign(zeta_adjusted=[0.1, 0.2, 0.2, 0.1, 0.1, 0.1], nmse=[1, 2, 1, 2, 1, 2])
    placed = conditions.pair_rows(rows)
    assert conditions.compare(placed, CONDITIONS) == {"car": "yes", "dominick": "no", "rain": ""}
    assert conditions.compare(placed, CONDITIONS[::-1]) == {"car": "yes", "dominick": "no", "rain": ""}
    words = read_panels(conditions.draw_pairs(rows, MODELS, CONDITIONS))[1].layer("text").rows
    assert {row["dataset"]: row["mark"] for row in words} == {"car": "yes", "dominick": "no", "rain": ""}


def test_a_model_has_its_colour_and_a_legend_entry_only_among_several() -> None:
    alone = conditions.draw_pairs(PAIR[PAIR["model"] == "n"], MODELS, CONDITIONS)
    assert read_scale(alone, "fill") == {"n": COLOURS[1]} and not has_legend(alone, "stroke")
    assert has_legend(conditions.draw_pairs(PAIR, MODELS, CONDITIONS), "stroke")


def test_the_caption_counts_the_words_and_the_values_that_are_not_drawn(tables: ReportTables) -> None:
    study = find_study(tables, "conditions")
    frame = study.answers["points"].frame.copy()
    frame.loc[0, "zeta_adjusted_corrected"] = 0.0
    (drawn,) = studies.draw_figures(with_rows(study, "points", frame), order_models(tables))
    words = [row["mark"] for row in read_panels(drawn.chart)[1].layer("text").rows if row["mark"]]
    assert len(words) == 2
    assert f"({words.count('yes')} of 2)" in drawn.caption and f"in {words.count('yes')} of 2 pairs" in drawn.alt
    assert "1 of 6 results lacks a positive value on one axis" in drawn.caption
