"""Still pictures: every point at its place, the same bytes twice, what is unknown refused."""

from __future__ import annotations

import io
import re
import subprocess
import sys

import numpy as np
import plotly.graph_objects as go
import pytest
from PIL import Image

from tsfmscope.report.charts.figures import apply_style
from tsfmscope.report.colorscale import HEAT
from tsfmscope.report.page import studies
from tsfmscope.report.quantize_png import quantize
from tsfmscope.report.render.mpl_render import render
from tsfmscope.report.tables import ReportTables, order_models


def pixels(figure: go.Figure) -> np.ndarray:
    """[height, width, 3] of the PNG."""
    return np.asarray(Image.open(io.BytesIO(render([("", figure)])["png"])).convert("RGB")).astype(int)


def centre(image: np.ndarray, colour: tuple[int, int, int]) -> tuple[float, float]:
    """Mean column and row of the pixels of a colour."""
    rows, columns = np.nonzero((np.abs(image - np.array(colour)) < 40).all(axis=2))
    assert len(rows)
    return float(columns.mean()), float(rows.mean())


def two_points(**axis: object) -> go.Figure:
    marker = {"color": ["unused"], "size": 12}
    traces = [
        go.Scatter(x=[x], y=[y], mode="markers", marker={**marker, "color": colour})
        for x, y, colour in ((1, 10, "#ff0000"), (100, 1000, "#0000ff"))
    ]
    return go.Figure(traces).update_layout(xaxis=axis, yaxis=axis, margin={"l": 64, "r": 16, "t": 12, "b": 56})


def test_a_point_stands_where_its_axes_say() -> None:
    image = pixels(two_points(type="log", range=[-1, 4]))
    (left, low), (right, high) = centre(image, (255, 0, 0)), centre(image, (0, 0, 255))
    assert right > left and high < low
    # two decades of five, of a width of 8.6 inches less the margins, at 150 dots an inch
    assert right - left == pytest.approx((8.6 - 0.8) * 150 * 2 / 5, abs=2)
    assert low - high == pytest.approx(3.3 * 150 * 2 / 5, abs=2)


MARGIN = {"l": 64, "r": 16, "t": 12, "b": 56}


def test_a_heat_map_has_its_first_row_above_and_the_scales_colours() -> None:
    figure = go.Figure(go.Heatmap(z=np.array([[0, 10], [5, 0]], np.uint8), coloraxis="coloraxis"))
    scale = [[0, "#ff0000"], [0.5, "#00ff00"], [1, "#0000ff"]]
    bar = {"tickvals": [0, 10], "ticktext": ["low", "high"], "len": 100}
    axes = {"range": [-0.5, 1.5], "showgrid": False}
    figure.update_layout(margin={**MARGIN, "r": 80}, xaxis=axes, yaxis={**axes, "range": [1.5, -0.5]})
    image = pixels(figure.update_layout(coloraxis={"cmin": 0, "cmax": 10, "colorscale": scale, "colorbar": bar}))
    image = image[:, : int((8.6 - 0.8) * 150)]  # without the bar of colours
    (right, top), (left, low) = centre(image, (0, 0, 255)), centre(image, (0, 255, 0))
    assert right > left and low > top
    middle = 0.64 * 150 + (8.6 - 1.44) * 150 / 2
    assert (left + right) / 2 == pytest.approx(middle, abs=3)


def test_bars_stand_on_zero_and_have_their_own_colours() -> None:
    bars = go.Bar(x=[1, 2], y=[1, 4], width=0.5, marker={"color": ["#ff0000", "rgba(0,0,255,1)"]})
    image = pixels(go.Figure(bars).update_layout(margin=MARGIN, xaxis={"range": [0, 3]}, yaxis={"range": [0, 5]}))
    count = {
        name: (np.abs(image - np.array(shade)) < 40).all(axis=2).sum()
        for name, shade in {"red": (255, 0, 0), "blue": (0, 0, 255)}.items()
    }
    assert count["blue"] == pytest.approx(4 * count["red"], rel=0.03)
    assert count["red"] == pytest.approx(7.8 * 150 / 6 * 3.3 * 150 / 5, rel=0.05)


def test_points_are_coloured_by_their_numbers_and_areas_are_filled() -> None:
    marker = {"size": 12, "color": [0.0, 1.0], "colorscale": [[0, "#ff0000"], [1, "#0000ff"]], "cmin": 0, "cmax": 1}
    area = go.Scatter(x=[1, 3, 3, 1], y=[1, 1, 2, 2], mode="none", fill="toself", fillcolor="rgba(0,255,0,1)")
    points = go.Scatter(x=[0.5, 3.5], y=[3, 3], mode="markers", marker=marker)
    axes = {"range": [0, 4], "dtick": 1, "tick0": 1}
    image = pixels(go.Figure([area, points]).update_layout(margin=MARGIN, xaxis=axes, yaxis=axes))
    assert centre(image, (255, 0, 0))[0] < centre(image, (0, 255, 0))[0] < centre(image, (0, 0, 255))[0]
    assert (np.abs(image - np.array((0, 255, 0))) < 40).all(axis=2).sum() > 0.9 * 7.8 * 150 / 2 * 3.3 * 150 / 4


def test_panels_stand_apart() -> None:
    figure = two_points(range=[0, 2000])
    figure.data[1].update(xaxis="x2", yaxis="y2")
    figure.update_layout(
        xaxis={"domain": [0, 0.4]}, xaxis2={"domain": [0.6, 1], "range": [0, 2000]}, yaxis2={"range": [0, 2000]}
    )
    image = pixels(figure)
    wide = (8.6 - 0.8) * 150
    (left, _), (right, _) = centre(image, (255, 0, 0)), centre(image, (0, 0, 255))
    assert left < 0.64 * 150 + 0.4 * wide
    assert right == pytest.approx(0.64 * 150 + wide * (0.6 + 0.4 * 100 / 2000), abs=2)


def test_every_figure_of_a_page_is_drawn_the_same_twice(tables: ReportTables) -> None:
    for study in tables.studies:
        drawn = [(one.title, one.figure) for one in studies.draw_figures(study, order_models(tables))]
        if drawn:
            assert render(drawn) == render(drawn)


def test_bytes_do_not_depend_on_the_process_nor_hold_a_date() -> None:
    script = (
        "import hashlib, plotly.graph_objects as go; from tsfmscope.report.render.mpl_render import render;"
        "figure = go.Figure(go.Scatter(x=[1, 2], y=[2, 1], name='a')).update_layout(margin=dict(l=9, r=9, t=9, b=9));"
        "found = render([('', figure)]);"
        "print([hashlib.sha256(b).hexdigest() for b in found.values()], b'date' in found['svg'].lower())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1
    assert found.pop().strip().endswith("False")


def test_names_are_read_as_they_stand(hostile: ReportTables) -> None:
    study = hostile.studies[0]
    figures = [(one.title, one.figure) for one in studies.draw_figures(study, order_models(hostile))]
    assert b"<img" not in render(figures)["svg"]
    odd = go.Figure(go.Scatter(x=[1], y=[1], name="$\\frac{ &lt;b&gt; 100 %")).update_layout(
        margin={"l": 9, "r": 9, "t": 9, "b": 9}, yaxis={"title": {"text": "a $ b $ c"}}
    )
    assert render([("", odd)])


def test_svg_is_one_picture_without_anything_outside(tables: ReportTables) -> None:
    drawn = studies.draw_figures(tables.studies[0], order_models(tables))
    text = render([("", drawn[0].figure)])["svg"].decode()
    assert text.count("<svg") == 1
    assert not [link for link in re.findall(r'href="([^"]*)"', text) if not link.startswith("#")]


@pytest.mark.parametrize(
    ("figure", "message"),
    [
        (go.Figure(go.Pie(values=[1])), "trace type 'pie' cannot be drawn"),
        (go.Figure(go.Scatter(x=[1], y=[1], mode="markers", marker={"symbol": "asterisk"})), "symbol 'asterisk'"),
    ],
)
def test_what_is_unknown_is_refused(figure: go.Figure, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        render([("", figure.update_layout(margin=MARGIN))])


def test_the_error_for_a_figure_without_the_common_style_names_the_figure_and_the_fix() -> None:
    figure = go.Figure(go.Bar(x=["a"], y=[1]))
    with pytest.raises(ValueError, match=r"figure 'Sizes': expected margins .* through charts\.figures\.apply_style"):
        render([("Sizes", figure)])
    assert render([("Sizes", apply_style(figure))])["png"]


def test_no_figure_is_refused() -> None:
    with pytest.raises(ValueError, match="got none"):
        render([])


def test_only_visible_traces_are_drawn() -> None:
    figure = two_points(type="log", range=[-1, 4])
    figure.data[1].visible = False
    image = pixels(figure)
    assert not (np.abs(image - np.array((0, 0, 255))) < 40).all(axis=2).any()
    assert centre(image, (255, 0, 0))


@pytest.mark.parametrize(("one_column", "inches"), [(True, 4.05), (False, 8.6)])
def test_a_figure_is_as_wide_as_one_or_two_columns_of_a_page(one_column: bool, inches: float) -> None:
    image = pixels(two_points(type="log", range=[-1, 4]).update_layout(meta={"one_column": one_column}))
    assert image.shape[1] == int(inches * 150)
    (left, _), (right, _) = centre(image, (255, 0, 0)), centre(image, (0, 0, 255))
    assert right - left == pytest.approx((inches - 0.8) * 150 * 2 / 5, abs=2)


@pytest.mark.parametrize(
    ("position", "side"), [(None, 0), ("top center", 0), ("middle center", 0), ("middle right", 1), ("middle left", -1)]
)
def test_a_text_stands_where_its_position_says(position: str | None, side: int) -> None:
    text = {"mode": "text", "text": "wwww", "textposition": position, "textfont": {"size": 20, "color": "#ff0000"}}
    axes = {"range": [0, 4]}
    image = pixels(go.Figure(go.Scatter(x=[2], y=[2], **text)).update_layout(margin=MARGIN, xaxis=axes, yaxis=axes))
    column, _ = centre(image, (255, 0, 0))
    middle = 0.64 * 150 + 7.8 * 150 / 2
    assert np.sign(round((column - middle) / 30)) == side


def test_an_annotation_is_shifted_by_its_pixels() -> None:
    def place(shift: int) -> int:
        note = {"xref": "x domain", "yref": "y domain", "x": 0.5, "y": 1, "text": "<b>wwww</b>", "xshift": shift}
        figure = two_points(type="log", range=[-1, 4.2]).update_layout(annotations=[{**note, "showarrow": False}])
        dark = (pixels(figure)[:50] < 120).all(axis=2)
        return int(np.nonzero(dark)[1].mean())

    assert place(-100) - place(0) == pytest.approx(-150, abs=2)


def test_a_light_picture_looks_alike_in_few_colours_and_fewer_bytes() -> None:
    values = np.add.outer(np.arange(40), np.arange(40)) * 1.0
    bar = {"tickvals": [0, 78], "ticktext": ["0", "78"], "len": 100}
    scale = {"cmin": 0, "cmax": 78, "colorscale": [list(one) for one in HEAT], "colorbar": bar}
    axes = {"range": [-0.5, 39.5]}
    figure = go.Figure(go.Heatmap(z=values, coloraxis="coloraxis"))
    figure.update_layout(margin={**MARGIN, "r": 80}, xaxis=axes, yaxis=axes, coloraxis=scale)
    whole = render([("", figure)])["png"]
    few = quantize(whole)
    before, after = (np.asarray(Image.open(io.BytesIO(one)).convert("RGB")).astype(int) for one in (whole, few))
    assert before.shape == after.shape and np.abs(before - after).mean() < 1 and np.abs(before - after).max() < 40
    assert len(np.unique(after.reshape(-1, 3), axis=0)) <= 256
    assert len(few) < len(whole) and few == quantize(whole)
