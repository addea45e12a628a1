"""Figures of a population show the tests as SQL has them, and each training's path through medians."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from tests.population import is_confirming
from tests.tsfmscope.report.conftest import HOSTILE
from tests.tsfmscope.report.recorded import answer_study, with_rows
from tsfmscope.report.charts import population as charts
from tsfmscope.report.charts.grid import choose_round_ticks
from tsfmscope.report.page import run_page, studies
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plots.population import PATHS, TESTS
from tsfmscope.report.render.mpl_render import render
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
    """Draw a study, and draw each figure as PNG, which fails for what the renderer does not know."""
    figures = studies.draw_figures(make_study(tests, paths), [])
    for figure in figures:
        assert render([("", figure.figure)])["png"].startswith(b"\x89PNG")
    return figures


def read_marks(figure: go.Figure) -> list[tuple[float, float, str]]:
    """Return x, y and name of each test, as drawn."""
    return [(t.x[0], t.y[0], t.name) for t in figure.data if t.customdata is not None]


def read_paths(figure: go.Figure) -> dict[str, go.Scatter]:
    """Return run -> its line."""
    return {trace.name: trace for trace in figure.data if trace.customdata is not None}


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
    assert sorted(x for x, _, _ in read_marks(drawn.figure)) == sorted(estimates)
    assert "1 hypothesis about other measures is in the CSV only." in drawn.caption


def test_the_paths_are_medians_over_the_exploring_half(population: duckdb.DuckDBPyConnection) -> None:
    study = answer_study(population, "s", "population")
    units = population.sql(
        f"select model, dataset, step, {MEASURE} as z, nmse from population join geometry using (model) "
        "join forecasts using (model, dataset, condition)"
    ).df()
    units = units[~units["dataset"].map(is_confirming)]
    lines = read_paths(studies.draw_figures(study, [])[1].figure)
    assert set(lines) == {f"r{run}" for run in range(6)}
    for run, line in lines.items():
        assert [facts[1] for facts in line.customdata] == [1, 2, 3, 4]
        for step, x, y in zip((1, 2, 3, 4), line.x, line.y, strict=True):
            part = units[units["model"] == (run if step == 4 else f"{run}-step-{step}")]
            assert x == pytest.approx(np.median(-part["z"].abs()))
            assert y == pytest.approx(np.exp(np.median(np.log(part["nmse"]))))
        assert line.marker.symbol == ("circle-open", "circle", "circle", "circle")
        assert line.marker.size == (charts.END, charts.BETWEEN, charts.BETWEEN, charts.END)


def test_rows_stand_in_the_order_of_the_groupings_with_whisker_and_band() -> None:
    tests = [
        make_test(grouping=grouping, error=error)
        for grouping in ("within_runs", "across_seeds", "inside_families", "across_runs")
        for error in ("wql", "nmse")
    ]
    (figure,) = draw(tests, [])
    labels = figure.figure.layout.yaxis.ticktext
    assert list(labels[::-1])[:3] == ["across runs, NMSE", "across runs, WQL", "inside families, NMSE"]
    assert labels[0] == "within runs, WQL"
    assert [list(t.x) for t in figure.figure.data if t.fill] == [[-0.25, 0.25, 0.25, -0.25]] * 8
    assert [list(t.x) for t in figure.figure.data if t.line.width == 2] == [[-0.5, -0.1]] * 8
    (text,) = {t.customdata[0][0].partition("<br>")[2] for t in figure.figure.data if t.customdata is not None}
    assert text.startswith("ρ −0.30 (−0.50 to −0.10)<br>p = 0.01 (adjusted 0.03)<br>") and "±0.25" in text
    assert "with a probability of 80 %" in figure.caption and "no estimate" not in figure.caption
    assert {t.text[0] for t in figure.figure.data if t.mode == "text"} == {"less error (claim)", "more error"}


def test_both_halves_of_a_test_share_a_row_and_have_own_marks() -> None:
    (figure,) = draw([make_test(), make_test(half="confirmed", rho=0.2), make_test(error="wql", rho=0.1)], [])
    marks = {name: (x, y) for x, y, name in read_marks(figure.figure) if x != 0.1}
    assert marks["exploring half"] == (-0.3, 1 + charts.SHIFT)
    assert marks["confirming half"] == (0.2, 1 - charts.SHIFT)
    assert (0.1, 0, "exploring half") in read_marks(figure.figure)
    legend = [t.name for t in figure.figure.data if t.showlegend is not False]
    assert legend == ["exploring half", "confirming half", charts.BAND]
    assert "Open: the data sets that were kept" in figure.caption


@pytest.mark.parametrize("missing", [None, np.nan])
def test_missing_numbers_are_not_drawn_and_tests_without_estimate_are_counted(missing: float | None) -> None:
    bare = make_test(**dict.fromkeys(("low", "high", "detectable", "p", "p_by", "n_runs"), missing))
    undefined = make_test(error="wql", rho=missing, reason="too few runs")
    (figure,) = draw([bare, undefined], [])
    assert read_marks(figure.figure) == [(-0.3, 0, "exploring half")]
    assert not [t for t in figure.figure.data if t.fill or t.line.width == 2]
    assert "1 test has no estimate and no row" in figure.caption and "Grey" not in figure.caption
    assert draw([undefined], []) == ()


@pytest.mark.parametrize(("detectable", "end"), [(0.05, 0.2), (0.3, 0.5), (0.999, 1.0)])
def test_the_axis_of_the_tests_contains_every_mark_interval_and_band(detectable: float, end: float) -> None:
    (figure,) = draw([make_test(rho=0.1, low=-0.05, high=0.15, detectable=detectable)], [])
    assert figure.figure.layout.xaxis.range == pytest.approx((-1.1 * end, 1.1 * end))


def test_nothing_is_drawn_without_rows(empty: duckdb.DuckDBPyConnection) -> None:
    assert draw([], []) == ()
    assert studies.draw_figures(answer_study(empty, "s", "population"), []) == ()


def test_sizes_differ_in_dash_and_colour_and_seeds_in_neither() -> None:
    paths = [
        *make_path("f-large-0", size="large", parameters=99),
        *make_path("f-small-0"),
        *make_path("f-small-1"),
        *make_path("g-small-0", family="g"),
    ]
    (figure,) = draw([], paths)
    lines = read_paths(figure.figure)
    style = {run: (line.line.dash, line.line.color) for run, line in lines.items()}
    assert style["f-small-0"] == style["f-small-1"] == style["g-small-0"]
    assert style["f-small-0"][0] != style["f-large-0"][0] and style["f-small-0"][1] != style["f-large-0"][1]
    legend = [t.name for t in figure.figure.data if t.showlegend is not False]
    assert legend == ["small", "large", "first snapshot", "end of training"]
    assert [note.text for note in figure.figure.layout.annotations] == ["<b>f</b>", "<b>g</b>"]
    assert {lines["f-small-0"].xaxis, lines["g-small-0"].xaxis} == {"x", "x2"}


def test_a_family_with_one_run_of_one_snapshot_without_losses_is_drawn() -> None:
    for loss in (None, np.nan):
        (figure,) = draw([], make_path(steps=1, validation_loss=loss, parameters=None))
        (line,) = read_paths(figure.figure).values()
        assert list(line.marker.symbol) == ["circle"] and line.customdata[0][2] == "unknown"


def test_snapshots_without_values_are_left_out_and_counted() -> None:
    path = make_path(steps=4)
    path[0] |= {"isotropy": None}
    path[3] |= {"nmse": np.nan, "n_datasets": 0}
    path[1] |= {"n_datasets": 17}
    (figure,) = draw([], path)
    (line,) = read_paths(figure.figure).values()
    # The first snapshot that is drawn has the open dot, and the end of the training is missing.
    assert line.marker.symbol == ("circle-open", "circle") and line.marker.size == (charts.END, charts.BETWEEN)
    assert "2 snapshots have no values." in figure.caption and "medians over the 17 to 18 data sets" in figure.caption


@pytest.mark.parametrize(("low", "high"), [(0.61, 0.62), (0.5, 0.9), (1e-3, 2e6), (0.7, 0.7)])
def test_an_axis_has_labels_however_large_the_errors(low: float, high: float) -> None:
    path = make_path(steps=2)
    path[0] |= {"nmse": low}
    path[1] |= {"nmse": high, "isotropy": -0.1}
    (figure,) = draw([], path)
    axes = figure.figure.layout
    assert 3 <= len(axes.yaxis.tickvals) <= 6 and 2 <= len(axes.xaxis.tickvals) <= 3
    assert axes.yaxis.range[0] < np.log10(low) <= np.log10(high) < axes.yaxis.range[1]


def test_eight_families_are_drawn_at_most() -> None:
    paths = [row for n in range(10) for row in make_path(f"f{n}-small-0", family=f"f{n}")]
    (figure,) = draw([], paths)
    assert len(figure.figure.layout.annotations) == len(read_paths(figure.figure)) == charts.PANELS
    assert "8 of 10 families are shown" in figure.caption


def test_hostile_names_are_escaped() -> None:
    names = {name: f"{name} {HOSTILE}" for name in ("run", "family", "size")}
    test = make_test(grouping=HOSTILE, error=HOSTILE)
    for figure in draw([test], make_path(**names)):
        assert "<img" not in figure.figure.to_json()
        assert "&lt;img" in str(figure.figure.to_plotly_json())


def test_a_page_with_snapshots_counts_them_once(tables: ReportTables) -> None:
    frame = tables.checkpoints.frame
    assert frame["snapshots"].eq(0).all() and "snapshots of the population" not in run_page.render(tables)
    answer = replace(tables.checkpoints, frame=frame.assign(snapshots=[7, 0, 5]))
    assert "The 12 snapshots of the population" in run_page.render(replace(tables, checkpoints=answer))


def test_a_query_without_a_column_is_an_error(population: duckdb.DuckDBPyConnection) -> None:
    study = answer_study(population, "s", "population")
    frame = study.answers["population_paths"].frame.drop(columns="nmse")
    with pytest.raises(ValueError, match="expected columns nmse"):
        studies.draw_figures(with_rows(study, "population_paths", frame), [])


@pytest.mark.parametrize(("low", "high"), [(-0.31, -0.02), (0.0, 1.0), (1e-5, 2.1e-5), (-3e4, 7e6), (0.999, 1.001)])
def test_round_ticks_are_two_to_four_inside_the_limits(low: float, high: float) -> None:
    ticks = choose_round_ticks(low, high)
    assert 2 <= len(ticks) <= 4 and low <= min(ticks) and max(ticks) <= high
    steps = np.diff(ticks)
    assert steps == pytest.approx(np.full(len(steps), steps[0]))
    assert float(f"{steps[0]:e}".partition("e")[0]) == pytest.approx(1) or f"{steps[0]:e}"[:3] in {"2.0", "2.5", "5.0"}
