"""The section of advice: a point a rule and choice with its interval, in words what it shows, nothing of nothing."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from tests.tsfmscope.report.drawn import read_panels, read_scale
from tsfmscope.report.advice import CHOICES, MEASURE, RULES, build_section, draw_regrets
from tsfmscope.report.tables import ReportTables


def test_every_rule_of_every_choice_is_drawn_with_its_interval(tables: ReportTables) -> None:
    frame = tables.advice.frame
    recorded = frame[frame["measure"] == MEASURE].set_index("rule").loc[list(RULES)].reset_index()
    rows = pd.concat([recorded.assign(grouping=choice, times=[1.6, 1.2, 3.0, 2.5]) for choice in CHOICES])
    rows = rows.assign(low=rows["times"] / 1.3, high=rows["times"] * 1.3)
    chart = draw_regrets(rows)
    assert list(read_scale(chart, "stroke")) == list(RULES.values())
    points = read_panels(chart)[0].layer("point")
    assert points.encoding["x"]["sort"] == list(CHOICES.values())
    drawn = {(row["choice"], row["name"]): (row["low"], row["times"], row["high"]) for row in points.rows}
    assert drawn == {
        (CHOICES[row.grouping], RULES[row.rule]): (row.low, row.times, row.high) for row in rows.itertuples()
    }
    (drawn,) = build_section(replace(tables.advice, frame=rows)).figures
    assert "3 choices and 4 rules; at most 3.00, by largest context" in drawn.alt


def test_where_nothing_could_be_chosen_there_is_no_figure(tables: ReportTables) -> None:
    empty = build_section(replace(tables.advice, frame=tables.advice.frame.iloc[:0]))
    assert not empty.figures and not empty.tables and "There was no choice" in empty.empty
