"""The figures of ranks in training show the means that the tables of singular values have."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

from tests.population import population_tables
from tests.store.conftest import open_results, valid_row
from tests.tsfmscope.report.conftest import HOSTILE
from tests.tsfmscope.report.drawn import read_panels, read_scale, read_titles
from tests.tsfmscope.report.recorded import answer_study
from tsfmscope.report import style
from tsfmscope.report.page import studies
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plots import rank_steps as plot
from tsfmscope.report.plots.rank_steps import COLUMNS
from tsfmscope.report.render import draw_svg
from tsfmscope.report.style import DASHES
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
    """Draw a study, and each figure as SVG."""
    figures = studies.draw_figures(make_study([row for line in lines for row in line]), [])
    for figure in figures:
        assert "<svg" in draw_svg(figure.chart)
    return figures


def read_lines(figure: Figure) -> dict[tuple[str, int], pd.DataFrame]:
    """Return (family, step) -> the points of its line."""
    rows = pd.DataFrame([row for panel in read_panels(figure.chart) for row in panel.layer("line").rows])
    return {(str(family), int(step)): part for (family, step), part in rows.groupby(["family", "step"])}


def interpolate(values: list[float], depth: float) -> float:
    """The value of a straight line between two neighbours of `values`, which stand at even distances from 0 to 1."""
    position = depth * (len(values) - 1)
    left = min(int(position + 1e-9), len(values) - 2)
    return values[left] + (position - left) * (values[left + 1] - values[left])


def test_the_lines_are_means_of_the_ranks_in_the_tables(ranks: duckdb.DuckDBPyConnection) -> None:
    figures = studies.draw_figures(answer_study(ranks, "ranks", "rank_steps"), [])
    assert [figure.title for figure in figures] == ["Tolerance 10⁻¹", "Tolerance 10⁻²"]
    for figure, epsilon in zip(figures, TOLERANCES, strict=True):
        lines = read_lines(figure)
        assert set(lines) == {(family, step) for family in ("f0", "f1") for step in STEPS}
        for (family, step), line in lines.items():
            runs = [0, 1, 2] if family == "f0" else [3, 5] if step == 2 else [3, 4, 5]
            shares = []
            for run in runs:
                spectra = [
                    [make_values(run, step, layer, name) for name in ("set-0", "set-1")]
                    for layer in range(count_layers(run) + 1)
                ]
                ranks_by_layer = [[sum(s > epsilon * max(v) for s in v) / WIDTH for v in layer] for layer in spectra]
                shares.append([sum(pair) / 2 for pair in ranks_by_layer])
            assert line["depth"].tolist() == pytest.approx([0, 1 / 3, 1 / 2, 2 / 3, 1])
            means = [100 * np.mean([interpolate(share, depth) for share in shares]) for depth in line["depth"]]
            assert line["percent"].tolist() == pytest.approx(means)
            assert f"mean over {len(runs)} trainings" in line["tip"].iloc[0]
        assert "1 snapshot is left out because it lacks a rank in a layer or on a data set." in figure.caption
        assert "(3)" in figure.caption
        assert len({tuple(line["percent"]) for line in lines.values()}) == len(lines)


def test_steps_differ_in_colour_and_width(ranks: duckdb.DuckDBPyConnection) -> None:
    figure = studies.draw_figures(answer_study(ranks, "ranks", "rank_steps"), [])[0]
    colours = read_scale(figure.chart, "stroke")
    assert colours == {str(step): style.interpolate_colour(at, 4) for at, step in enumerate(STEPS)}
    widths = list(read_scale(figure.chart, "strokeWidth").values())
    assert widths == sorted(widths) and (widths[0], widths[-1]) == (plot.THIN, plot.THICK)
    assert read_titles(figure.chart) == ["f0\nencoder", "f1\nencoder"]


@pytest.mark.parametrize("missing", [None, np.nan])
def test_a_snapshot_without_a_rank_in_one_layer_is_left_out_and_counted(missing: float | None) -> None:
    whole = [make_line(step=step) for step in (30, 60)]
    (figure,) = draw(*whole)
    assert "left out" not in figure.caption
    (figure,) = draw(*whole, make_line("b", 30, (0.1, missing)), make_line("b", 60, (0.1, 0.3)))
    lines = {step: line["percent"].tolist() for (_, step), line in read_lines(figure).items()}
    assert lines == {30: pytest.approx([50, 70]), 60: pytest.approx([30, 50])}
    assert "1 snapshot is left out" in figure.caption
    # A snapshot that has no rows at all is counted too.
    (figure,) = draw(*whole, make_line("b", 30, (0.1, missing)), make_line("c", 30, (0.5, 0.7)))
    assert "3 snapshots are left out because they lack" in figure.caption
    # So are one without the row of a layer, and one that has fewer data sets than others of its training.
    for fewer in (make_line("b", 60)[:1], make_line("b", 60, n=1)):
        (figure,) = draw(*whole, make_line("b", 30, (0.1, 0.3), n=2), fewer)
        assert "1 snapshot is left out" in figure.caption
        assert read_lines(figure)["f", 60]["percent"].tolist() == pytest.approx([50, 70])
    assert draw(make_line(shares=(0.1, missing))) == ()


def test_layers_that_a_training_lacks_at_an_end_have_no_mean() -> None:
    frame = pd.DataFrame([*make_line(shares=(0.2, 0.4, 0.6)), *make_line("b", shares=(0.4, 0.6, 0.8))[1:]])
    means = plot.average_shares(frame)
    assert means["depth"].tolist() == [0.5, 1.0] and means["share"].tolist() == pytest.approx([0.5, 0.7])
    assert means["n"].tolist() == [2, 2]


def test_the_second_stack_of_a_family_is_dashed_and_its_title_names_both() -> None:
    lines = [make_line(stack=stack, shares=(share, share)) for stack, share in (("decoder", 0.1), ("encoder", 0.4))]
    (figure,) = draw(*lines, make_line(family="g", stack="decoder"))
    rows = [row for panel in read_panels(figure.chart) for row in panel.layer("line").rows]
    dashes = {(row["family"], row["stack"]): DASHES.index(row["dash"]) for row in rows}
    assert dashes == {("f", "encoder"): 0, ("f", "decoder"): 1, ("g", "decoder"): 0}
    assert read_titles(figure.chart) == ["f\nencoder; dashed: decoder", "g\ndecoder"]
    assert "f decoder 10 at step 30, 10 at step 30; f encoder 40" in figure.alt


def test_panels_and_steps_are_limited_and_the_caption_has_their_numbers() -> None:
    families = [make_line(family=f"f{number}") for number in range(10)]
    (figure,) = draw(*families, *(make_line(family="f0", step=step) for step in range(100, 2000, 100)))
    assert len(read_panels(figure.chart)) == plot.PANELS
    steps = [step for family, step in read_lines(figure) if family == "f0"]
    assert len(steps) == plot.STEPS and steps[0] == 30 and steps[-1] == 1900
    assert "8 of 10 families are shown" in figure.caption and "10 of 20 steps are shown" in figure.caption


def test_the_caption_states_trainings_sizes_and_rounding_errors() -> None:
    (figure,) = draw(make_line(), make_line("b", size="large"), make_line("c", family="g", below_noise_floor=True))
    assert "(1 to 2 of up to 2 sizes)" in figure.caption and "below the rounding error" in figure.caption
    (figure,) = draw(make_line())
    assert "(1)" in figure.caption and "below the rounding error" not in figure.caption


def test_hostile_names_stay_text() -> None:
    (figure,) = draw(make_line(family=f"f {HOSTILE}", stack=f"encoder {HOSTILE}"))
    assert "<img" not in draw_svg(figure.chart) and HOSTILE in str(read_panels(figure.chart))
