"""Figures hold the table's values, in colours that stand out."""

from __future__ import annotations

import re
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest

from tsfmscope.report.charts import figures, islands
from tsfmscope.report.colorscale import GREY
from tsfmscope.report.tables import ReportTables

CSS = files("tsfmscope.report.page").joinpath("page.css").read_text("utf-8")


def test_the_scatter_holds_every_point_that_log_axes_can_show(tables: ReportTables) -> None:
    frame = tables.nmse_against_isotropy.frame.copy()
    frame.loc[frame["dataset"] == "linear-2", "zeta_adjusted_corrected"] = np.nan
    figure = figures.draw_nmse_against_isotropy(frame)
    points = [(x, y) for trace in figure.data[1:] for x, y in zip(trace.x, trace.y, strict=True)]
    wanted = frame.dropna(subset="zeta_adjusted_corrected")
    assert sorted(points) == sorted(zip(wanted["zeta_adjusted_corrected"].abs(), wanted["nmse"], strict=True))
    assert len(points) == len(frame) - 4
    assert {figure.layout.xaxis.type, figure.layout.yaxis.type} == {"log"}
    links = [x for x in figure.data[0].x if x is not None]
    assert sorted(links) == sorted(x for x, _ in points)


@pytest.mark.parametrize("bad", [0.0, float("nan"), float("inf"), None])
def test_points_without_a_logarithm_are_left_out(bad: float | None) -> None:
    rows = {"model": "m", "dataset": "d", "condition": "c"}
    rows |= {"zeta_adjusted_corrected": [0.1, bad, -0.2], "nmse": [1.0, 1.0, bad]}
    assert len(figures.select_drawable(pd.DataFrame(rows))) == 1


def test_training_is_relative_to_its_first_loss(tables: ReportTables) -> None:
    for trace in figures.draw_training(tables.training.frame).data:
        assert trace.y[0] == 1.0


def test_a_model_has_one_colour_whichever_others_a_figure_shows(tables: ReportTables) -> None:
    frame, losses = tables.nmse_against_isotropy.frame, tables.training.frame
    named = ["another", *sorted(frame["model"].unique())]
    shown = named[-1]
    one, all_of_it = (
        figures.draw_nmse_against_isotropy(part, named) for part in (frame[frame["model"] == shown], frame)
    )
    colours = {t.name: t.marker.color for t in all_of_it.data if t.mode == "markers"}
    assert {t.name: t.marker.color for t in one.data if t.mode == "markers"}.items() <= colours.items()
    lines = {t.name: t.line.color for t in figures.draw_training(losses, named).data}
    assert lines[shown] == colours[next(name for name in colours if name.startswith(shown))]
    assert [t.name for t in figures.draw_training(losses, ["another"]).data] == sorted(losses["model"].unique())


def test_models_that_the_page_does_not_list_are_drawn_after_the_others(tables: ReportTables) -> None:
    frame = tables.nmse_against_isotropy.frame
    first, second = sorted(frame["model"].unique())
    traces = figures.draw_nmse_against_isotropy(frame, [first]).data
    colours = {trace.name.partition(" ")[0]: trace.marker.color for trace in traces if trace.mode == "markers"}
    assert colours == {first: figures.COLOURS[0], second: figures.COLOURS[1]}


@pytest.mark.parametrize(
    ("name", "shown"),
    [("nile", "nile"), ("a" * 20, "a" * 20), ("electricity_south_australia", "elec…south_australia")],
)
def test_a_long_name_keeps_both_ends(name: str, shown: str) -> None:
    assert figures.shorten_name(name, 20, 15) == shown and len(shown) <= 20


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it, 0 to 1."""
    c = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return float(np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("colour", [*figures.COLOURS, GREY, *(colour for _, colour, _ in islands.LARGEST)])
def test_a_line_or_point_stands_out_from_light_and_dark(colour: str) -> None:
    backgrounds = re.findall(r"--(?:paper|raised): (#[0-9a-f]{6})", CSS)
    assert len(backgrounds) == 4
    for background in backgrounds:
        low, high = sorted(map(luminance, (colour, background)))
        assert (high + 0.05) / (low + 0.05) >= 3  # WCAG 2.1, 1.4.11


def test_no_model_differs_from_another_by_colour_alone() -> None:
    colours, symbols = figures.COLOURS, figures.SYMBOLS
    assert len({symbols[n % len(symbols)] for n in range(8)}) == 8
    assert len({(colours[n], symbols[n % len(symbols)]) for n in range(len(colours))}) == len(colours)
