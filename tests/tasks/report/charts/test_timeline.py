"""The pictures of a run against the bars that they are made of, and what their captions say."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from tsfmscope.tasks.report.charts import timeline
from tsfmscope.tasks.report.charts.figures import COLOURS
from tsfmscope.tasks.report.tables import ReportTables

MODELS = ["a", "b", "c"]


def bars(*rows: tuple[str, str, str | None, float, float, float]) -> pd.DataFrame:
    """lane, what, subject, began, seconds and share a bar."""
    frame = pd.DataFrame(rows, columns=["lane", "what", "subject", "began", "seconds", "share"])
    return frame.assign(stage="geometry", jobs=1)


def idle(**changes: Any) -> pd.DataFrame:
    row = {"stage": "geometry", "actor": "all", "node": None, "jobs": 1, "failed": 0, "actors": 1, "span_s": 10.0}
    row |= {"busy_s": 5.0, "loading_share": None, "idle_share": 0.5, "outside_s": 90.0}
    return pd.DataFrame([row | changes])


def boxes(figure: Any) -> list[tuple[str, float, float, float, float]]:
    """Name, left, right, bottom and top of every bar that is drawn."""
    return [
        (trace.name, at - width / 2, at + width / 2, base, base + height)
        for trace in figure.data
        for at, width, base, height in zip(trace.x, trace.width, trace.base, trace.y, strict=True)
    ]


def test_a_job_stands_from_its_start_to_its_end_in_the_row_of_its_actor() -> None:
    made = timeline.draw_stage(
        bars(("actor-2", "load", "a", 0, 1, 1), ("actor-2", "job", "a", 1, 3, 1), ("actor-10", "job", "b", 2, 6, 1)),
        MODELS,
    )
    assert [pytest.approx(box) for box in sorted(box[1:] for box in boxes(made))] == [
        (0, 1, 0.6, 1.4), (1, 4, 0.6, 1.4), (2, 8, -0.4, 0.4),
    ]  # fmt: skip
    assert list(made.layout.yaxis.ticktext) == ["actor-10", "actor-2"]  # from below
    assert tuple(made.layout.xaxis.range) == (0, 8)
    shades = {(trace.name, trace.marker.color, trace.marker.opacity) for trace in made.data}
    assert shades == {("a", COLOURS[0], 1.0), ("a, loading", COLOURS[0], 0.4), ("b", COLOURS[1], 1.0)}


def test_shares_of_one_part_stand_on_each_other_and_fill_the_row_no_further() -> None:
    rows = [("n", "job", "a", 0, 5, 0.25), ("n", "job", "b", 0, 5, 0.75), ("n", "load", "b", 5, 5, 0.5)]
    found = {box[0]: box[3:] for box in boxes(timeline.draw_stage(bars(*rows), MODELS))}
    assert found == {
        "a": (pytest.approx(-0.4), pytest.approx(-0.2)),
        "b": (pytest.approx(-0.2), pytest.approx(0.4)),
        "b, loading": (pytest.approx(-0.4), pytest.approx(0.0)),
    }


def test_ten_subjects_have_colours_and_the_rest_with_the_unknown_are_others() -> None:
    names = [f"m{n:02}" for n in range(12)]
    rows = [("actor-0", "job", name, float(n), 1 + n / 100, 1.0) for n, name in enumerate([*names, None])]
    traces = timeline.draw_stage(bars(*rows), names).data
    assert [trace.name for trace in traces] == [*names[2:], "others"]
    assert len(traces[-1].x) == 3


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "geometry: 1 job, 1 actor, 10 seconds; idle 50 %; 90 seconds before and after."),
        (
            {"jobs": 1234, "failed": 2, "actors": 8, "span_s": 9000.0, "loading_share": 0.25, "outside_s": 240.0},
            "geometry: 1,234 jobs, 2 failed, 8 actors, 2.5 hours; idle 50 %; loading models 25 % of the busy time; "
            "4 minutes before and after.",
        ),
        ({"idle_share": None, "span_s": 0.0}, "geometry: 1 job, 1 actor, 0 seconds; 90 seconds before and after."),
    ],
)
def test_a_caption_says_how_many_did_what_for_how_long_and_how_idle(changes: dict[str, Any], told: str) -> None:
    (drawn,) = timeline.draw_figures(bars(("actor-0", "job", "a", 0, 5, 1)), idle(**changes), MODELS)
    assert drawn.caption == told
    assert drawn.name == "timeline-geometry"


def test_a_section_has_a_picture_a_stage_and_both_answers_behind_it(tables: ReportTables) -> None:
    made = timeline.build_section(tables, MODELS)
    assert [picture.name for picture in made.figures] == ["timeline-geometry", "timeline-forecasts"]
    assert [source.name for source in made.provenance] == ["timeline", "idle_share"]
    assert made.tables[0].table.total == len(tables.idle_share.frame)


def test_a_phone_gets_a_taller_picture_for_the_legend(tables: ReportTables) -> None:
    names = [f"a model of a longer name {n}" for n in range(8)]
    rows = [("actor-0", "job", name, float(n), 1.0, 1.0) for n, name in enumerate(names)]
    layout = timeline.draw_stage(bars(*rows), names).layout
    assert layout.meta["narrow"]["height"] > layout.height
    assert layout.height - layout.margin.t == layout.meta["narrow"]["height"] - layout.meta["narrow"]["margin"]["t"]
