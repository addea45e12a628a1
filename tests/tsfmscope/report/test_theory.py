"""Pictures and sentences on the theorems hold the tables' numbers; stills of them can be drawn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from tsfmscope.report import theory
from tsfmscope.report.charts import theory as theory_figures
from tsfmscope.report.page.page import render
from tsfmscope.report.render.mpl_render import render as still
from tsfmscope.report.tables import Answer, ReportTables


def test_every_section_has_its_picture_and_what_is_behind_it(tables: ReportTables) -> None:
    found = {one.name: one for one in theory.build_sections(tables, {"theory-flow": b"png"})}
    assert list(found) == ["theory-compression", "theory-sketch", "theory-flow", "theory-bounds"]
    assert all(len(one.figures) == 1 and one.provenance for one in found.values())
    assert found["theory-flow"].png.startswith("data:image/png;base64,")
    assert [one.name for one in found["theory-bounds"].tables] == ["theory-bounds", "theory-slopes"]


def test_fig_15_holds_the_points_and_lines_of_slope_1_and_a_half(tables: ReportTables) -> None:
    frame = tables.theory_compression.frame
    figure = theory_figures.draw_compression(frame)
    for name, axis, slope in (("J.1 rank", "x", 1.0), ("J.1 width", "x2", 0.5)):
        part = frame[frame["experiment"] == name].sort_values("x")
        traces = {trace.name: trace for trace in figure.data if trace.xaxis == axis and trace.name}
        points, line = traces["error"], traces["reference"]
        assert (list(points.x), list(points.y)) == (part["x"].tolist(), part["y"].tolist())
        assert list(points.error_y.array) == pytest.approx((part["high"] - part["y"]).tolist())
        assert list(points.error_y.arrayminus) == pytest.approx((part["y"] - part["low"]).tolist())
        found = np.polyfit(np.log(np.array(line.x, dtype=float)), np.log(np.array(line.y, dtype=float)), 1)[0]
        assert found == pytest.approx(slope)
    assert texts(figure) == ["slope 1", "slope ½"]
    assert figure.layout.yaxis.title.text == figure.layout.yaxis2.title.text == f"{theory_figures.ERROR} (log)"


def test_fig_16_maps_an_error_to_the_index_whose_singular_value_it_is(tables: ReportTables) -> None:
    frame = tables.theory_sketch.frame
    figure = theory_figures.draw_sketching(frame)
    (mapped,) = (one for one in figure.data if one.name == "error of a sketch")
    index = frame[frame["experiment"] == "J.2 sparse"].sort_values("x")
    away = frame[frame["experiment"] == "J.2 sparse distance"].sort_values("x")["y"]
    assert (list(mapped.x), list(mapped.y)) == (index["y"].tolist(), away.tolist())
    # The points of 1 and 4 heads are too close for two labels.
    assert set(texts(figure)) == {"1 head", "16 heads", "sparse sketch", "dense sketch"}
    for kind in ("sparse", "dense"):
        (line,) = (one for one in figure.data if one.name == f"{kind} sketch")
        part = frame[frame["experiment"] == f"J.2 {kind} distance"].sort_values("x")
        assert list(line.y) == part["y"].tolist()
        assert list(line.x) == pytest.approx(part["x"].tolist(), rel=0.06)  # moved apart sideways


def test_fig_17_has_a_labelled_line_for_the_input_and_each_number_of_heads(tables: ReportTables) -> None:
    figure = theory_figures.draw_flow(tables.theory_flow.frame)
    names = [trace.name for trace in figure.data if trace.name]
    assert names == ["input X", "1 head", "4 heads", "16 heads"]
    assert sorted(texts(figure)) == sorted(names)


def texts(figure: go.Figure) -> list[str]:
    """Return the direct labels of a figure."""
    return [text for trace in figure.data if trace.mode == "text" for text in trace.text]


def two_theorems(tables: ReportTables) -> pd.DataFrame:
    """Return a bound that holds, and one that fails as printed."""
    rows = tables.theory_violations.frame
    return rows[rows["experiment"].isin(["Theorem 2", "Theorem 3.2"])]


def test_the_picture_of_the_bounds_is_sorted_and_says_what_fails(tables: ReportTables) -> None:
    rows = two_theorems(tables)
    figure = theory_figures.draw_ratios(rows)
    labels = list(figure.layout.yaxis.ticktext)
    assert labels == ["Theorem 3.2, repaired", "Theorem 2, printed", "Theorem 3.2, printed: 42 of 100 fail"]
    largest = {trace.name: trace for trace in figure.data}["largest, printed"]
    printed = rows[rows["form"] == "printed"]["ratio_largest"]
    assert dict(zip(largest.y, largest.x, strict=True)) == {1: min(printed), 2: max(printed)}


def test_sentences_say_claim_slope_interval_and_verdict(tables: ReportTables) -> None:
    changed = {"n_seeds": 20, "slope": 0.99, "low": 0.94, "high": 1.04, "verdict": "agrees"}
    slopes = tables.theory_slopes.frame.assign(**changed)
    slopes.loc[slopes["experiment"].str.startswith("J.3"), ["low", "high"]] = np.nan
    slopes.loc[slopes["experiment"].str.startswith("Corollary"), "claimed"] = -0.9
    (said, *_) = theory.describe_slopes(slopes, "J.1")
    assert said.verdict == "agrees"
    assert said.text.endswith("slope 1. Here: slope 0.99, 95 % interval 0.94 to 1.04, 20 seeds: agrees.")
    assert "interval" not in theory.describe_slopes(slopes, "J.3")[0].text
    assert "fall by −0.9 or more" in theory.describe_slopes(slopes, "Corollary")[0].text


def test_a_bound_that_fails_is_told_with_its_instance_its_cause_and_its_repair(tables: ReportTables) -> None:
    holding, failing = theory.describe_failures(two_theorems(tables))
    assert (holding.verdict, failing.verdict) == ("agrees", "differs")
    assert "Theorem 2" in holding.text and "Theorem 3.2" not in holding.text
    for words in ("42 of 100", "against a bound of", "seed 0, instance", "4d + 1", "0 of 100"):
        assert words in failing.text


def test_every_picture_can_be_drawn_without_a_browser(tables: ReportTables) -> None:
    for name, one in theory.draw_figures(tables).items():
        assert still([("", one.figure)])["png"].startswith(b"\x89PNG"), name


def test_without_rows_there_are_sections_and_no_pictures(tables: ReportTables) -> None:
    def emptied(answer: Answer) -> Answer:
        return replace(answer, frame=answer.frame.iloc[:0])

    names = ("compression", "sketch", "flow", "slopes", "violations")
    none = {f"theory_{name}": emptied(getattr(tables, f"theory_{name}")) for name in names}
    bare = replace(tables, **none)
    assert theory.draw_figures(bare) == {}
    assert 'id="theory-bounds"' in render(bare)
