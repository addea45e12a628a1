"""The figures of ranks in training show the means that the tables of singular values have."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from tests.population import population_tables
from tests.store.conftest import open_results, valid_row
from tests.tsfmscope.report.conftest import HOSTILE
from tests.tsfmscope.report.recorded import answer_study, with_rows
from tsfmscope.report import colorscale
from tsfmscope.report.charts import rank_steps as charts
from tsfmscope.report.page import studies
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plots.rank_steps import COLUMNS
from tsfmscope.report.render.mpl_render import render
from tsfmscope.report.tables import Answer, StudyTables

TOLERANCES = (0.1, 0.01)
WIDTH = 8
STEPS = (1, 2, 3, 4)
# Snapshot of which the input of one layer on one data set has no rows, and thus no rank.
UNDEFINED = "r4-step-2"


def count_layers(run: int) -> int:
    """The last layer of a training's stack: two trainings of a family have 2 layers, one has 3."""
    return 3 if run % 3 == 2 else 2


def make_values(run: int, step: int, layer: int, dataset: str) -> list[float]:
    """Descending singular values, whose ranks differ between runs, steps, layers and data sets."""
    slope = 0.2 + 0.1 * run + 0.17 * step + 0.23 * layer + (0.4 if dataset == "set-1" else 0.0)
    return [math.exp(-slope * position) for position in range(WIDTH)]


def rank_tables() -> dict[str, list[dict[str, Any]]]:
    """The small population with the inputs of each layer on two data sets, in study `ranks`."""
    tables = population_tables()
    tables["spectra"] = []
    facts = {"what": "input", "tokens": "valued", "matrix": None, "attention": None, "n_rows": 20, "n_columns": WIDTH}
    for row, dataset in itertools.product(tables["population"], ("set-0", "set-1")):
        run, step = int(row["run"][1:]), row["step"]
        key = f"spectra {row['model']} {dataset}"
        where = {"model": row["model"], "dataset": dataset, "condition": "c500", "job_key": key}
        tables["study_jobs"].append({"study": "ranks", "stage": "spectra", "job_key": key})
        for layer in range(count_layers(run) + 1):
            values = make_values(run, step, layer, dataset)
            spectrum = {"layer": layer, "normed": False, "singular_values": values}
            if (row["model"], layer, dataset) == (UNDEFINED, 1, "set-1"):
                spectrum |= {"n_rows": 0, "singular_values": []}
            tables["spectra"].append(valid_row("spectra") | facts | where | spectrum)
    return tables


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    with open_results(tmp_path_factory.mktemp("ranks"), rank_tables()) as opened:
        yield opened


def make_line(run: str = "a", step: int = 30, shares: tuple[float | None, ...] = (0.5, 0.7), **changes: Any) -> Any:
    """Rows of one snapshot, with its shares at evenly spaced depths."""
    facts = {"family": "f", "size": "small", "run": run, "step": step, "stack": "encoder", "epsilon": 0.01}
    facts |= {"below_noise_floor": False, "n": 1, **changes}
    depths = np.linspace(0, 1, len(shares)).tolist()
    return [{**facts, "depth": depth, "share": share} for depth, share in zip(depths, shares, strict=True)]


def make_study(rows: list[dict[str, Any]]) -> StudyTables:
    answers = {"rank_steps": Answer("rank_steps", "select 1", pd.DataFrame(rows, columns=COLUMNS))}
    return StudyTables("s", "Title?", None, "rank_steps", ("c500",), Answer("p", "", pd.DataFrame()), answers)


def draw(*lines: list[dict[str, Any]]) -> tuple[Figure, ...]:
    """Draw a study, and draw each figure as PNG, which fails for what the renderer does not know."""
    figures = studies.draw_figures(make_study([row for line in lines for row in line]), [])
    for figure in figures:
        assert render([("", figure.figure)])["png"].startswith(b"\x89PNG")
    return figures


def read_lines(figure: go.Figure) -> dict[tuple[str, str], go.Scatter]:
    """Return (horizontal axis, name) -> its line."""
    return {(trace.xaxis, trace.name): trace for trace in figure.data if trace.customdata is not None}


def interpolate(values: list[float], depth: float) -> float:
    """The value of a straight line between two neighbours of `values`, which stand at even distances from 0 to 1."""
    position = depth * (len(values) - 1)
    left = min(int(position + 1e-9), len(values) - 2)
    return values[left] + (position - left) * (values[left + 1] - values[left])


def test_the_lines_are_means_of_the_ranks_in_the_tables(ranks: duckdb.DuckDBPyConnection) -> None:
    figures = studies.draw_figures(answer_study(ranks, "ranks", "rank_steps"), [])
    assert [figure.title for figure in figures] == ["Tolerance 10⁻¹", "Tolerance 10⁻²"]
    for figure, epsilon in zip(figures, TOLERANCES, strict=True):
        lines = read_lines(figure.figure)
        assert set(lines) == {(axis, f"step {step}") for axis in ("x", "x2") for step in STEPS}
        for (axis, name), line in lines.items():
            step = int(name.removeprefix("step "))
            runs = [0, 1, 2] if axis == "x" else [3, 5] if step == 2 else [3, 4, 5]
            shares = []
            for run in runs:
                spectra = [
                    [make_values(run, step, layer, name) for name in ("set-0", "set-1")]
                    for layer in range(count_layers(run) + 1)
                ]
                ranks_by_layer = [[sum(s > epsilon * max(v) for s in v) / WIDTH for v in layer] for layer in spectra]
                shares.append([sum(pair) / 2 for pair in ranks_by_layer])
            assert line.x == pytest.approx([0, 1 / 3, 1 / 2, 2 / 3, 1])
            means = [100 * np.mean([interpolate(share, depth) for share in shares]) for depth in line.x]
            assert line.y == pytest.approx(means)
            assert f"mean over {len(runs)} trainings" in line.customdata[0][0]
        assert "1 snapshot is left out because it lacks a rank in a layer or on a data set." in figure.caption
        assert "(3)" in figure.caption
        assert len({line.y for line in lines.values()}) == len(lines)


def test_steps_differ_in_colour_and_width_and_stand_in_the_legend(ranks: duckdb.DuckDBPyConnection) -> None:
    figure = studies.draw_figures(answer_study(ranks, "ranks", "rank_steps"), [])[0].figure
    keys = [trace for trace in figure.data if trace.customdata is None]
    assert [key.name for key in keys] == ["step 1", "2", "3", "4"]
    assert [key.line.color for key in keys] == [colorscale.interpolate_colour(at, 4) for at in range(4)]
    widths = [key.line.width for key in keys]
    assert widths == sorted(widths) and (widths[0], widths[-1]) == (charts.THIN, charts.THICK)
    lines = read_lines(figure)
    for step, key in zip(STEPS, keys, strict=True):
        assert lines["x", f"step {step}"].line == lines["x2", f"step {step}"].line
        assert lines["x", f"step {step}"].line.color == key.line.color
    assert [note.text for note in figure.layout.annotations] == ["<b>f0</b><br>encoder", "<b>f1</b><br>encoder"]


@pytest.mark.parametrize("missing", [None, np.nan])
def test_a_snapshot_without_a_rank_in_one_layer_is_left_out_and_counted(missing: float | None) -> None:
    whole = [make_line(step=step) for step in (30, 60)]
    (figure,) = draw(*whole)
    assert "left out" not in figure.caption
    (figure,) = draw(*whole, make_line("b", 30, (0.1, missing)), make_line("b", 60, (0.1, 0.3)))
    lines = read_lines(figure.figure)
    assert lines["x", "step 30"].y == pytest.approx((50, 70)) and lines["x", "step 60"].y == pytest.approx((30, 50))
    assert "1 snapshot is left out" in figure.caption
    # A snapshot that has no rows at all is counted too.
    (figure,) = draw(*whole, make_line("b", 30, (0.1, missing)), make_line("c", 30, (0.5, 0.7)))
    assert "3 snapshots are left out because they lack" in figure.caption
    # So are one without the row of a layer, and one that has fewer data sets than others of its training.
    for fewer in (make_line("b", 60)[:1], make_line("b", 60, n=1)):
        (figure,) = draw(*whole, make_line("b", 30, (0.1, 0.3), n=2), fewer)
        assert "1 snapshot is left out" in figure.caption
        assert read_lines(figure.figure)["x", "step 60"].y == pytest.approx((50, 70))
    assert draw(make_line(shares=(0.1, missing))) == ()


def test_layers_that_a_training_lacks_at_an_end_have_no_mean() -> None:
    frame = pd.DataFrame([*make_line(shares=(0.2, 0.4, 0.6)), *make_line("b", shares=(0.4, 0.6, 0.8))[1:]])
    means = charts.average_shares(frame)
    assert means["depth"].tolist() == [0.5, 1.0] and means["share"].tolist() == pytest.approx([0.5, 0.7])
    assert means["n"].tolist() == [2, 2]


def test_the_second_stack_of_a_family_is_dashed_and_its_title_names_both() -> None:
    lines = [make_line(stack=stack, shares=(share, share)) for stack, share in (("decoder", 0.1), ("encoder", 0.4))]
    (figure,) = draw(*lines, make_line(family="g", stack="decoder"))
    dashes = {(trace.xaxis, trace.y[0]): trace.line.dash for trace in figure.figure.data if trace.customdata}
    assert dashes == {("x", 10): "dash", ("x", 40): "solid", ("x2", 50): "solid"}
    titles = [note.text for note in figure.figure.layout.annotations]
    assert titles == ["<b>f</b><br>encoder; dashed: decoder", "<b>g</b><br>decoder"]
    assert "f decoder 10 at step 30, 10 at step 30; f encoder 40" in figure.alt


def test_panels_and_steps_are_limited_and_the_caption_has_their_numbers() -> None:
    families = [make_line(family=f"f{number}") for number in range(10)]
    (figure,) = draw(*families, *(make_line(family="f0", step=step) for step in range(100, 2000, 100)))
    assert len(figure.figure.layout.annotations) == charts.PANELS
    names = [name for axis, name in read_lines(figure.figure) if axis == "x"]
    assert len(names) == charts.STEPS and names[0] == "step 30" and names[-1] == "step 1,900"
    assert "8 of 10 families are shown" in figure.caption and "10 of 20 steps are shown" in figure.caption


@pytest.mark.parametrize("largest", [0.0, 1e-3, 0.023, 0.15, 1.0])
def test_a_vertical_axis_starts_at_0_and_contains_every_mean(largest: float) -> None:
    (figure,) = draw(make_line(shares=(0.0, largest)))
    axis = figure.figure.layout.yaxis
    assert axis.range[0] == 0 and axis.range[1] > 100 * largest and axis.tickvals[0] == 0
    assert 2 <= len(axis.tickvals) <= 5


def test_the_caption_states_trainings_sizes_and_rounding_errors() -> None:
    (figure,) = draw(make_line(), make_line("b", size="large"), make_line("c", family="g", below_noise_floor=True))
    assert "(1 to 2 of up to 2 sizes)" in figure.caption and "below the rounding error" in figure.caption
    (figure,) = draw(make_line())
    assert "(1)" in figure.caption and "below the rounding error" not in figure.caption


def test_hostile_names_are_escaped() -> None:
    (figure,) = draw(make_line(family=f"f {HOSTILE}", stack=f"encoder {HOSTILE}"))
    assert "<img" not in figure.figure.to_json() and "&lt;img" in str(figure.figure.to_plotly_json())


def test_nothing_is_drawn_without_rows(empty: duckdb.DuckDBPyConnection) -> None:
    assert draw() == ()
    assert studies.draw_figures(answer_study(empty, "s", "rank_steps"), []) == ()


def test_a_query_without_a_column_is_an_error(ranks: duckdb.DuckDBPyConnection) -> None:
    study = answer_study(ranks, "ranks", "rank_steps")
    frame = study.answers["rank_steps"].frame.drop(columns="share")
    with pytest.raises(ValueError, match="expected columns share"):
        studies.draw_figures(with_rows(study, "rank_steps", frame), [])
