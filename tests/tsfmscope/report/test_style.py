"""Charts hold the table's values, in colours that stand out."""

from __future__ import annotations

import re
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest

from tests.tsfmscope.report.drawn import read_panels, read_scale
from tsfmscope.report import scatter, style
from tsfmscope.report.page import run_page
from tsfmscope.report.plots import islands
from tsfmscope.report.style import COLOURS, GREY, SYMBOLS
from tsfmscope.report.tables import ReportTables

CSS = files("tsfmscope.report.page").joinpath("page.css").read_text("utf-8")


def test_the_scatter_holds_every_point_that_log_axes_can_show(tables: ReportTables) -> None:
    frame = tables.nmse_against_isotropy.frame.copy()
    frame.loc[frame["dataset"] == "linear-2", "zeta_adjusted_corrected"] = np.nan
    (panel,) = read_panels(scatter.draw_nmse_against_isotropy(frame))
    points = panel.layer("point")
    wanted = frame.dropna(subset="zeta_adjusted_corrected")
    assert sorted(points.values("x")) == pytest.approx(sorted(wanted["zeta_adjusted_corrected"].abs()))
    assert sorted(points.values("y")) == pytest.approx(sorted(wanted["nmse"])) and len(points.rows) == len(frame) - 4
    assert {points.encoding[axis]["scale"]["type"] for axis in "xy"} == {"log"}
    assert {definition["field"] for definition in panel.layer("line").encoding["detail"]} == {"dataset", "condition"}


@pytest.mark.parametrize("bad", [0.0, float("nan"), float("inf"), None])
def test_points_without_a_logarithm_are_left_out(bad: float | None) -> None:
    rows = {"model": "m", "dataset": "d", "condition": "c"}
    rows |= {"zeta_adjusted_corrected": [0.1, bad, -0.2], "nmse": [1.0, 1.0, bad]}
    assert len(scatter.select_drawable(pd.DataFrame(rows))) == 1


def test_training_is_relative_to_its_first_loss(tables: ReportTables) -> None:
    (panel,) = read_panels(run_page.draw_training(tables.training.frame))
    rows = pd.DataFrame(panel.layer("line").rows).sort_values("step")
    assert (rows.groupby("model")["relative"].first() == 1.0).all()
    assert len(rows) == len(tables.training.frame)


def test_a_model_has_one_colour_whichever_others_a_figure_shows(tables: ReportTables) -> None:
    frame, losses = tables.nmse_against_isotropy.frame, tables.training.frame
    named = ["another", *sorted(frame["model"].unique())]
    one, both = (
        read_scale(scatter.draw_nmse_against_isotropy(part, named), "fill")
        for part in (frame[frame["model"] == named[-1]], frame)
    )
    assert one.items() <= both.items() and one == {named[-1]: COLOURS[2]}
    assert read_scale(run_page.draw_training(losses, named), "stroke") == both
    first, second = sorted(frame["model"].unique())
    unlisted = read_scale(scatter.draw_nmse_against_isotropy(frame, [first]), "fill")
    assert unlisted == {first: COLOURS[0], second: COLOURS[1]}


@pytest.mark.parametrize(
    ("name", "shown"), [("nile", "nile"), ("a" * 20, "a" * 20), ("electricity_south_australia", "elec…south_australia")]
)
def test_a_long_name_keeps_both_ends(name: str, shown: str) -> None:
    assert style.shorten_name(name, 20, 15) == shown and len(shown) <= 20


@pytest.mark.parametrize(("low", "high"), [(-0.31, -0.02), (0.0, 1.0), (1e-5, 2.1e-5), (-3e4, 7e6), (0.999, 1.001)])
def test_round_ticks_are_two_to_four_inside_the_limits(low: float, high: float) -> None:
    ticks = style.choose_round_ticks(low, high)
    assert 2 <= len(ticks) <= 4 and low <= min(ticks) and max(ticks) <= high
    assert np.diff(ticks) == pytest.approx(np.full(len(ticks) - 1, ticks[1] - ticks[0]))


@pytest.mark.parametrize(
    ("values", "least"), [((0.61, 0.62), 2), ((0.5, 0.9), 2), ((1e-3, 2e6), 3), ((0.7, 0.7), 1), ((), 1)]
)
def test_a_log_axis_covers_its_values_and_has_labels(values: tuple[float, ...], least: int) -> None:
    axis = style.make_log_axis("error", [*values, float("nan"), 0.0])
    low, high = axis["scale"].domain
    assert all(low < value < high for value in values)
    assert least <= len(axis["axis"].values) <= 6
    assert axis["title"] == "error (log)"


@pytest.mark.parametrize(
    ("value", "text"), [(0.5, "0.5"), (1.0, "1"), (-0.02, "−0.02"), (1e-5, "1e−5"), (1e6, "1e6"), (0, "0")]
)
def test_ticks_are_short(value: float, text: str) -> None:
    assert style.format_tick(value) == text


@pytest.mark.parametrize(("count", "columns"), [(1, 1), (2, 2), (3, 3), (4, 4), (5, 4), (6, 3), (8, 4), (9, 3)])
def test_panels_fill_their_rows_where_that_is_possible(count: int, columns: int) -> None:
    assert style.choose_columns(count) == columns


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it, 0 to 1."""
    c = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return float(np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("colour", [*COLOURS, GREY, *(colour for _, colour, _ in islands.LARGEST)])
def test_a_line_or_point_stands_out_from_light_and_dark(colour: str) -> None:
    backgrounds = re.findall(r"--(?:paper|raised): (#[0-9a-f]{6})", CSS)
    assert len(backgrounds) == 4
    for background in backgrounds:
        low, high = sorted(map(luminance, (colour, background)))
        assert (high + 0.05) / (low + 0.05) >= 3  # WCAG 2.1, 1.4.11


def test_no_model_differs_from_another_by_colour_alone() -> None:
    assert len({SYMBOLS[n % len(SYMBOLS)] for n in range(8)}) == 8
    assert len({(COLOURS[n], SYMBOLS[n % len(SYMBOLS)]) for n in range(len(COLOURS))}) == len(COLOURS)
