"""Figures hold the table's values; the projection is principal component analysis."""

from __future__ import annotations

import re
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA

from tests.tasks.report.recorded import find_study
from tsfmscope.tasks.report.charts import figures
from tsfmscope.tasks.report.charts.islands import project
from tsfmscope.tasks.report.colorscale import GREY
from tsfmscope.tasks.report.tables import ReportTables

CSS = files("tsfmscope.tasks.report.page").joinpath("page.css").read_text("utf-8")
IDENTITY = {"model": "m", "stack": "encoder", "layer": 1, "dataset": "d", "condition": "c"}


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


def test_islands_show_each_token_once_a_view(tables: ReportTables) -> None:
    frame = find_study(tables, "islands").answers["islands"].frame
    part = frame[frame["model"] == frame["model"].iloc[0]]
    figure = figures.draw_islands(part)
    for visible in figure.layout.meta["views"].values():
        assert sum(len(trace.x) for trace, shown in zip(figure.data, visible, strict=True) if shown) == len(part)


def test_training_is_relative_to_its_first_loss(tables: ReportTables) -> None:
    for trace in figures.draw_training(tables.training.frame).data:
        assert trace.y[0] == 1.0


def test_the_projection_is_that_of_scikit_learn_up_to_sign() -> None:
    states = np.random.default_rng(0).standard_normal((200, 16)) * np.linspace(3, 0.1, 16)
    ours = project(states, np.zeros(200, dtype=int), ["s"] * 200, np.arange(200), IDENTITY)
    theirs = PCA(3, svd_solver="full").fit(states)
    np.testing.assert_allclose(np.abs(ours[["pc1", "pc2", "pc3"]]), np.abs(theirs.transform(states)), atol=1e-10)
    assert ours["explained"].iloc[0] == pytest.approx(theirs.explained_variance_ratio_.sum())


def test_the_projection_is_free_of_shift_and_does_not_flip() -> None:
    states = np.random.default_rng(1).standard_normal((50, 8)) * np.linspace(3, 1, 8)
    ones, names = np.ones(50, dtype=int), ["s"] * 50
    one, other = (project(s, ones, names, ones, IDENTITY)[["pc1", "pc2", "pc3"]] for s in (states, states + 7))
    np.testing.assert_allclose(one, other, atol=1e-10)


@pytest.mark.parametrize(
    ("states", "explained"),
    [(np.ones((5, 4)), np.nan), (np.arange(8.0).reshape(4, 2), 1.0), (np.ones((1, 4)), np.nan)],
)
def test_flat_states_leave_zeros(states: np.ndarray, explained: float) -> None:
    count = len(states)
    frame = project(states, np.zeros(count, dtype=int), ["s"] * count, np.arange(count), IDENTITY)
    np.testing.assert_allclose(frame["explained"].iloc[0], explained)
    assert (frame["pc3"] == 0).all()


@pytest.mark.parametrize("states", [np.empty((0, 4)), np.full((3, 4), np.nan)])
def test_states_that_cannot_be_drawn_are_refused(states: np.ndarray) -> None:
    with pytest.raises(ValueError, match="expected at least one row and only finite values"):
        project(
            states, np.zeros(len(states), dtype=int), ["s"] * len(states), np.zeros(len(states), dtype=int), IDENTITY
        )


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


@pytest.mark.parametrize("colour", [*figures.COLOURS, GREY])
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
