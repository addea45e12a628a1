"""Pictures and sentences on the theorems hold the tables' numbers; stills of them can be drawn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tests.tsfmscope.report.drawn import read_panels, read_scale
from tsfmscope.report import theory
from tsfmscope.report.page.page import render
from tsfmscope.report.style import GREY
from tsfmscope.report.tables import Answer, ReportTables


def test_every_section_has_its_picture_and_what_is_behind_it(tables: ReportTables) -> None:
    found = {one.name: one for one in theory.build_sections(tables)}
    assert list(found) == ["theory-compression", "theory-sketch", "theory-flow", "theory-bounds"]
    assert all(len(one.figures) == 1 and one.provenance for one in found.values())
    assert [one.name for one in found["theory-bounds"].tables] == ["theory-bounds", "theory-slopes"]


def test_fig_15_holds_the_points_and_lines_of_slope_1_and_a_half(tables: ReportTables) -> None:
    frame = tables.theory_compression.frame
    panels = read_panels(theory.draw_compression(frame))
    for panel, name, slope, text in zip(panels, ("J.1 rank", "J.1 width"), (1.0, 0.5), ("1", "½"), strict=True):
        part = frame[frame["experiment"] == name].sort_values("x")
        points, (line, _) = panel.layer("point"), panel.select("line")
        for column in ("x", "y", "low", "high"):
            assert [row[column] for row in points.rows] == part[column].tolist()
        logs = np.log([(row["x"], row["y"]) for row in line.rows])
        assert np.polyfit(*logs.T, 1)[0] == pytest.approx(slope)
        assert [row["text"] for row in panel.layer("text").rows] == [f"slope {text}"]
        assert points.encoding["y"]["title"] == f"{theory.ERROR} (log)"


def test_fig_16_maps_an_error_to_the_index_whose_singular_value_it_is(tables: ReportTables) -> None:
    frame = tables.theory_sketch.frame
    left, right = read_panels(theory.draw_sketching(frame))
    mapped = left.layer("point")
    index = frame[frame["experiment"] == "J.2 sparse"].sort_values("x")
    away = frame[frame["experiment"] == "J.2 sparse distance"].sort_values("x")["y"]
    assert (mapped.values("x"), mapped.values("y")) == (index["y"].tolist(), away.tolist())
    # The points of 1 and 4 heads are too close for two labels.
    assert [row["text"] for row in left.layer("text").rows] == ["1 head", "16 heads"]
    for kind, line in zip(("sparse", "dense"), right.select("line"), strict=True):
        part = frame[frame["experiment"] == f"J.2 {kind} distance"].sort_values("x")
        assert line.values("y") == part["y"].tolist()
        assert line.values("x") == pytest.approx(part["x"].tolist(), rel=0.06)  # moved apart sideways
        assert set(line.values("stroke")) == {f"{kind} sketch"}


def test_fig_17_has_a_named_line_for_the_input_and_each_number_of_heads(tables: ReportTables) -> None:
    colours = read_scale(theory.draw_flow(tables.theory_flow.frame), "stroke")
    assert list(colours) == ["input X", "1 head", "4 heads", "16 heads"] and colours["input X"] == GREY


def two_theorems(tables: ReportTables) -> pd.DataFrame:
    """Return a bound that holds, and one that fails as printed."""
    rows = tables.theory_violations.frame
    return rows[rows["experiment"].isin(["Theorem 2", "Theorem 3.2"])]


def test_the_picture_of_the_bounds_is_sorted_and_says_what_fails(tables: ReportTables) -> None:
    rows = two_theorems(tables)
    (panel,) = read_panels(theory.draw_ratios(rows))
    points = panel.layer("point")
    names = ["Theorem 3.2, printed: 42 of 100 fail", "Theorem 2, printed", "Theorem 3.2, repaired"]
    assert points.encoding["y"]["scale"]["domain"] == names
    largest = {row["name"]: row["ratio"] for row in points.rows if row["kind"] == "largest"}
    printed = rows[rows["form"] == "printed"]["ratio_largest"]
    assert (largest[names[0]], largest[names[1]]) == (max(printed), min(printed))


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


def test_without_rows_there_are_sections_and_no_pictures(tables: ReportTables) -> None:
    def emptied(answer: Answer) -> Answer:
        return replace(answer, frame=answer.frame.iloc[:0])

    names = ("compression", "sketch", "flow", "slopes", "violations")
    none = {f"theory_{name}": emptied(getattr(tables, f"theory_{name}")) for name in names}
    bare = replace(tables, **none)
    assert theory.draw_figures(bare) == {}
    assert 'id="theory-bounds"' in render(bare)
