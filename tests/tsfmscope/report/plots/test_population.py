"""Figures of a population show the tests as SQL has them, and each training's path through medians."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

from tests.population import is_confirming
from tests.tsfmscope.report.conftest import HOSTILE
from tests.tsfmscope.report.drawn import read_panels, read_scale, read_tips
from tests.tsfmscope.report.recorded import answer_study
from tsfmscope.report.page import run_page, studies
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plots.population import PATHS, TESTS
from tsfmscope.report.render import draw_svg
from tsfmscope.report.tables import Answer, ReportTables, StudyTables

MEASURE = "zeta_adjusted_corrected"


def make_test(**changes: Any) -> dict[str, Any]:
    """A row of the tests."""
    names = {"half": "explored", "measure": MEASURE, "grouping": "across_runs", "error": "nmse"}
    numbers = {"rho": -0.3, "low": -0.5, "high": -0.1, "detectable": 0.25, "p": 0.01, "p_by": 0.03, "n_runs": 32}
    return {**names, **numbers, "reason": None, **changes}


def make_path(run: str = "f-small-0", steps: int = 3, **changes: Any) -> list[dict[str, Any]]:
    """Rows of the snapshots of one training, which becomes less isotropic and better."""
    facts = {"family": "f", "size": "small", "run": run, "parameters": 10, "validation_loss": 1.0, "n_datasets": 18}
    return [
        facts
        | {"step": 10**step, "is_final": step == steps - 1, "isotropy": -0.1 * (step + 1), "nmse": 1 / (step + 1)}
        | changes
        for step in range(steps)
    ]


def make_study(tests: list[dict[str, Any]], paths: list[dict[str, Any]]) -> StudyTables:
    """A study with these answers."""
    frames = {"population_tests": pd.DataFrame(tests, columns=TESTS)}
    frames |= {"population_paths": pd.DataFrame(paths, columns=PATHS)}
    answers = {name: Answer(name, "select 1", frame) for name, frame in frames.items()}
    return StudyTables("s", "Title?", None, "population", ("c500",), Answer("p", "", pd.DataFrame()), answers)


def draw(tests: list[dict[str, Any]], paths: list[dict[str, Any]]) -> tuple[Figure, ...]:
    """Draw a study, and each figure as SVG."""
    figures = studies.draw_figures(make_study(tests, paths), [])
    for figure in figures:
        assert "<svg" in draw_svg(figure.chart)
    return figures


def read_marks(figure: Figure) -> list[tuple[float, str, str]]:
    """Return ρ, row and half of each test, as drawn."""
    (panel,) = read_panels(figure.chart)
    return [(row["rho"], row["name"], row["half"]) for row in panel.layer("point").rows]


def read_paths(figure: Figure) -> dict[str, list[dict[str, Any]]]:
    """Return run -> its snapshots, as drawn."""
    found: dict[str, list[dict[str, Any]]] = {}
    for panel in read_panels(figure.chart):
        for row in panel.layer("point").rows:
            found.setdefault(row["run"], []).append(row)
    return found


def test_the_tests_are_those_of_the_views(population: duckdb.DuckDBPyConnection) -> None:
    study = answer_study(population, "s", "population")
    frame = study.answers["population_tests"].frame
    columns = '"grouping", error, estimate, low, high, p, p_by, detectable'
    views = {"explored": "population_correlation", "confirmed": "hypothesis_tests"}
    for half, view in views.items():
        wanted = population.sql(f"select {columns} from {view} where measure = '{MEASURE}' order by all").df()
        rows = frame[(frame["half"] == half) & (frame["measure"] == MEASURE)]
        found = rows.rename(columns={"rho": "estimate"})[[*wanted]].sort_values(["grouping", "error"])
        pd.testing.assert_frame_equal(found.reset_index(drop=True), wanted, check_dtype=False)
    drawn = studies.draw_figures(study, [])[0]
    estimates = frame.loc[(frame["measure"] == MEASURE), "rho"].dropna()
    assert sorted(x for x, _, _ in read_marks(drawn)) == sorted(estimates)
    assert "1 hypothesis about other measures is in the CSV only." in drawn.caption


def test_the_paths_are_medians_over_the_exploring_half(population: duckdb.DuckDBPyConnection) -> None:
    study = answer_study(population, "s", "population")
    units = population.sql(
        f"select model, dataset, step, {MEASURE} as z, nmse from population join geometry using (model) "
        "join forecasts using (model, dataset, condition)"
    ).df()
    units = units[~units["dataset"].map(is_confirming)]
    paths = read_paths(studies.draw_figures(study, [])[1])
    assert set(paths) == {f"r{run}" for run in range(6)}
    for run, path in paths.items():
        assert [row["step"] for row in path] == [1, 2, 3, 4]
        for row in path:
            part = units[units["model"] == (run if row["step"] == 4 else f"{run}-step-{row['step']}")]
            assert row["isotropy"] == pytest.approx(np.median(-part["z"].abs()))
            assert row["nmse"] == pytest.approx(np.exp(np.median(np.log(part["nmse"]))))
        assert [row["is_first"] for row in path] == [True, False, False, False]
        sizes = [row["mark"] for row in path]
        assert sizes[0] == sizes[-1] > sizes[1] == sizes[2]


def test_rows_stand_in_the_order_of_the_groupings_with_whisker_and_band() -> None:
    tests = [
        make_test(grouping=grouping, error=error)
        for grouping in ("within_runs", "across_seeds", "inside_families", "across_runs")
        for error in ("wql", "nmse")
    ]
    (figure,) = draw(tests, [])
    (panel,) = read_panels(figure.chart)
    names = panel.layer("point").encoding["y"]["scale"]["domain"]
    assert names[:3] == ["across runs, NMSE", "across runs, WQL", "inside families, NMSE"]
    assert names[-1] == "within runs, WQL"
    bands, whiskers = panel.layer("bar"), panel.select("rule")[1]
    assert [(row["minus"], row["detectable"]) for row in bands.rows] == [(-0.25, 0.25)] * 8
    assert [(row["low"], row["high"]) for row in whiskers.rows] == [(-0.5, -0.1)] * 8
    (text,) = set(read_tips(figure.chart))
    assert text.startswith("ρ −0.30 (−0.50 to −0.10)\np = 0.01 (adjusted 0.03)\n") and "±0.25" in text
    assert "with a probability of 80 %" in figure.caption and "no estimate" not in figure.caption


def test_both_halves_of_a_test_share_a_row_and_have_own_marks() -> None:
    (figure,) = draw([make_test(), make_test(half="confirmed", rho=0.2), make_test(error="wql", rho=0.1)], [])
    row = "across runs, NMSE"
    assert {(-0.3, row, "exploring half"), (0.2, row, "confirming half")} < set(read_marks(figure))
    assert list(read_scale(figure.chart, "stroke")) == ["exploring half", "confirming half"]
    assert "Open: the data sets that were kept" in figure.caption


@pytest.mark.parametrize("missing", [None, np.nan])
def test_missing_numbers_are_not_drawn_and_tests_without_estimate_are_counted(missing: float | None) -> None:
    bare = make_test(**dict.fromkeys(("low", "high", "detectable", "p", "p_by", "n_runs"), missing))
    undefined = make_test(error="wql", rho=missing, reason="too few runs")
    (figure,) = draw([bare, undefined], [])
    assert read_marks(figure) == [(-0.3, "across runs, NMSE", "exploring half")]
    (row,) = read_panels(figure.chart)[0].layer("point").rows
    assert row["low"] is row["detectable"] is None
    assert "1 test has no estimate and no row" in figure.caption and "Grey" not in figure.caption
    assert draw([undefined], []) == ()


@pytest.mark.parametrize(("detectable", "end"), [(0.05, 0.2), (0.3, 0.5), (0.999, 1.0)])
def test_the_axis_of_the_tests_contains_every_mark_interval_and_band(detectable: float, end: float) -> None:
    (figure,) = draw([make_test(rho=0.1, low=-0.05, high=0.15, detectable=detectable)], [])
    domain = read_panels(figure.chart)[0].layer("point").encoding["x"]["scale"]["domain"]
    assert domain == pytest.approx([-1.1 * end, 1.1 * end])


def test_sizes_differ_in_dash_and_colour_and_seeds_in_neither() -> None:
    paths = [
        *make_path("f-large-0", size="large", parameters=99),
        *make_path("f-small-0"),
        *make_path("f-small-1"),
        *make_path("g-small-0", family="g"),
    ]
    (figure,) = draw([], paths)
    assert [panel.title for panel in read_panels(figure.chart)] == ["f", "g"]
    assert list(read_paths(figure)) == ["f-large-0", "f-small-0", "f-small-1", "g-small-0"]
    for channel in ("stroke", "strokeDash"):
        scale = read_scale(figure.chart, channel)
        assert list(scale) == ["small", "large"] and scale["small"] != scale["large"]


def test_a_family_with_one_run_of_one_snapshot_without_losses_is_drawn() -> None:
    for loss in (None, np.nan):
        (figure,) = draw([], make_path(steps=1, validation_loss=loss, parameters=None))
        (row,) = read_panels(figure.chart)[0].layer("point").rows
        assert not row["is_first"] and "validation loss unknown" in row["tip"]


def test_snapshots_without_values_are_left_out_and_counted() -> None:
    path = make_path(steps=4)
    path[0] |= {"isotropy": None}
    path[3] |= {"nmse": np.nan, "n_datasets": 0}
    path[1] |= {"n_datasets": 17}
    (figure,) = draw([], path)
    (path,) = read_paths(figure).values()
    # The first snapshot that is drawn has the open dot, and the end of the training is missing.
    assert [row["is_first"] for row in path] == [True, False] and path[0]["mark"] > path[1]["mark"]
    assert "2 snapshots have no values." in figure.caption and "medians over the 17 to 18 data sets" in figure.caption


def test_a_page_with_snapshots_counts_them_once(tables: ReportTables) -> None:
    frame = tables.checkpoints.frame
    assert frame["snapshots"].eq(0).all() and "snapshots of the population" not in run_page.render(tables)
    answer = replace(tables.checkpoints, frame=frame.assign(snapshots=[7, 0, 5]))
    assert "The 12 snapshots of the population" in run_page.render(replace(tables, checkpoints=answer))


def test_hostile_names_stay_text() -> None:
    names = {name: f"{name} {HOSTILE}" for name in ("run", "family", "size")}
    for figure in draw([make_test(grouping=HOSTILE, error=HOSTILE)], make_path(**names)):
        assert "<img" not in draw_svg(figure.chart) and HOSTILE in str(read_panels(figure.chart))
