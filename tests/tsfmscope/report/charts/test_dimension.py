"""Panels of the effective dimension hold every layer once, at its place, with its range."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from tests.tsfmscope.report.recorded import find_study
from tsfmscope.report.charts import dimension, grid
from tsfmscope.report.charts.figures import COLOURS
from tsfmscope.report.tables import ReportTables

MODELS = ("base", "other")


def make_rows(model: str, stack: str, layers: int, *, first: int = 0) -> list[dict[str, object]]:
    """One row per layer and one of the normed state, with values that differ."""
    places = [*((layer, False) for layer in range(first, layers + 1)), (layers, True)]
    return [
        {"model": model, "stack": stack, "layer": layer, "normed": normed, "median": 2 + at, "low": 1, "high": 9 + at}
        for at, (layer, normed) in enumerate(places)
    ]


FRAME = pd.DataFrame(
    [*make_rows("base", "decoder", 2, first=1), *make_rows("base", "encoder", 3), *make_rows("other", "encoder", 2)]
).assign(n=4)


def read_layers(figure: go.Figure) -> dict[tuple[str, str, str], tuple[float, float, float]]:
    """Return (model, stack, layer) -> low, median, high, as drawn."""
    found = {}
    for trace in (trace for trace in figure.data if trace.customdata is not None):
        for row, y, up, down in zip(
            trace.customdata, trace.y, trace.error_y.array, trace.error_y.arrayminus, strict=True
        ):
            assert (row[0], row[1], row[2]) not in found
            found[row[0], row[1], row[2]] = (y - down, y, y + up)
    return found


@pytest.mark.parametrize("source", ["made", "recorded"])
def test_every_layer_is_drawn_once_with_its_range(source: str, tables: ReportTables) -> None:
    frame = FRAME if source == "made" else find_study(tables, "dimension").answers["layers"].frame
    numbers = frame.astype({"low": float, "median": float, "high": float})  # a constant layer has none
    wanted = {
        (row.model, row.stack, dimension.name_layer(row.layer, row.normed)): (row.low, row.median, row.high)
        for row in numbers.itertuples()
    }
    drawn = read_layers(dimension.draw_by_layer(frame, MODELS))
    assert drawn.keys() == wanted.keys()
    for key, values in wanted.items():
        assert drawn[key] == pytest.approx(values, nan_ok=True)


def test_a_panel_shows_one_model_with_its_encoder_before_its_decoder_at_whole_numbers() -> None:
    figure = dimension.draw_by_layer(FRAME, MODELS)
    assert [note.text for note in figure.layout.annotations] == ["<b>base</b>", "<b>other</b>"]
    first = [trace for trace in figure.data if trace.xaxis == "x" and trace.customdata is not None]
    assert [trace.customdata[0][1] for trace in first] == ["encoder", "decoder"]
    assert [list(trace.x) for trace in first] == [[0, 1, 2, 3, 4], [6, 7, 8]]
    assert list(figure.layout.xaxis.tickvals) == [0, 1, 2, 3, 4, 6, 7, 8]
    assert list(figure.layout.xaxis.ticktext) == ["0", "1", "2", "3", "3′", "1", "2", "2′"]
    names = [trace.text[0] for trace in figure.data if trace.mode == "text" and trace.xaxis == "x"]
    assert names == ["encoder", "decoder"]


def test_a_panel_has_the_colour_of_its_model_and_the_range_of_all() -> None:
    figure = dimension.draw_by_layer(FRAME, MODELS)
    for trace in (trace for trace in figure.data if trace.customdata is not None):
        assert trace.line.color == trace.marker.color == COLOURS[MODELS.index(trace.name)]
    for layout in (figure.layout.to_plotly_json(), figure.layout.meta["narrow"]):
        ranges = {tuple(layout[name]["range"]) for name in ("yaxis", "yaxis2")}
        assert len(ranges) == 1 and ranges.pop()[1] > FRAME["high"].max()
        assert float(layout["yaxis"]["dtick"]).is_integer()
        assert list(layout["xaxis"]["tickvals"]) == [0, 1, 2, 3, 4, 6, 7, 8]


def test_deep_models_have_a_dozen_labels_at_most() -> None:
    deep = pd.DataFrame([*make_rows("base", "encoder", 24), *make_rows("base", "decoder", 24)]).assign(n=1)
    axis = dimension.draw_by_layer(deep, MODELS).layout.xaxis
    assert 6 < len(axis.ticktext) == len(axis.tickvals) <= dimension.TICKS
    assert axis.ticktext[0] == "0"


def compressed(*methods: str) -> pd.DataFrame:
    """The model `base` and its compressed ones; the last one has other medians in layer 1 of the encoder."""
    copies = [
        FRAME[FRAME["model"] == "base"].assign(model=f"base@{method}" if method else "base") for method in methods
    ]
    frame = pd.concat(copies, ignore_index=True)
    last = (frame["model"] == f"base@{methods[-1]}") & (frame["stack"] == "encoder") & (frame["layer"] == 1)
    frame.loc[last, "median"] += 3
    return frame


def test_a_line_per_layer_leads_from_the_dense_model_to_the_strongest_compression() -> None:
    frame = compressed("", "svd-0.5", "svd-0.75", "svd-0.125")
    figure = dimension.draw_by_compression(frame, MODELS)
    assert list(figure.layout.xaxis.ticktext) == ["dense", "0.75", "0.5", "0.125"]
    assert "svd" in figure.layout.xaxis.title.text
    panels = {"x": ("base", "encoder"), "x2": ("base", "decoder")}
    drawn = {}
    for trace in (trace for trace in figure.data if trace.customdata is not None):
        for row, x, y in zip(trace.customdata, trace.x, trace.y, strict=True):
            assert figure.layout.xaxis.ticktext[x] in (row[1], row[1].rpartition("-")[2])
            drawn[(*panels[trace.xaxis], row[0], row[1])] = y
    wanted = {
        (
            "base",
            row.stack,
            dimension.name_layer(row.layer, row.normed),
            row.model.partition("@")[2] or "dense",
        ): row.median
        for row in frame.itertuples()
    }
    assert drawn == wanted


def test_a_layer_without_a_median_leaves_out_its_point_alone() -> None:
    frame = compressed("", "svd-0.5", "svd-0.25").astype({"median": "Int64"})
    whole = sum(len(t.x) for t in dimension.draw_by_compression(frame, MODELS).data if t.customdata is not None)
    frame.loc[(frame["model"] == "base@svd-0.25") & (frame["layer"] == 2) & ~frame["normed"], "median"] = pd.NA
    drawn = dimension.draw_by_compression(frame, MODELS)
    assert sum(len(t.x) for t in drawn.data if t.customdata is not None) == whole - 2
    assert dimension.count_changes(frame) == (1, 14, 3.0)


def test_layers_that_end_at_the_same_value_share_a_name() -> None:
    figure = dimension.draw_by_compression(compressed("", "svd-0.5"), MODELS)
    (names,) = (trace for trace in figure.data if trace.mode == "text" and trace.xaxis == "x")
    # Medians 2, 3, 4, 5, 6 of the layers 0, 1, 2, 3, 3′; layer 1 ends at 6.
    assert dict(zip(map(str.strip, names.text), names.y, strict=True)) == {
        "layer 0": 2,
        "layers 1, 3′": 6,
        "layer 2": 4,
        "layer 3": 5,
    }


@pytest.mark.parametrize(
    ("methods", "title", "labels"),
    [
        (["", "svd-0.5", "svd-0.25"], "compressed model (svd-…)", ["dense", "0.5", "0.25"]),
        (["", "svd-0.5", "both-0.25"], "compression", ["dense", "both<br>0.25", "svd<br>0.5"]),
        (["", "a<b"], "compression", ["dense", "a&lt;b"]),
    ],
)
def test_the_axis_names_the_method_once_where_it_is_one(methods: list[str], title: str, labels: list[str]) -> None:
    assert dimension.label_methods(dimension.order_methods(methods)) == (title, labels)


def test_changes_are_counted_against_the_dense_model() -> None:
    frame = compressed("", "svd-0.5", "svd-0.25")
    assert dimension.count_changes(frame) == (1, 16, 3.0)
    assert dimension.count_changes(frame[frame["model"] == "base"]) == (0, 0, 0.0)
    assert dimension.count_changes(frame[frame["model"] != "base"]) == (0, 0, 0.0)


@pytest.mark.parametrize(
    ("names", "text"),
    [(["0"], "0"), (["1", "2"], "1, 2"), (["0", "2", "3", "4", "4′"], "0, 2–4, 4′"), (["4′", "5"], "4′, 5")],
)
def test_runs_of_layers_are_written_as_ranges(names: list[str], text: str) -> None:
    assert dimension.list_layers(names) == text


def test_panels_do_not_overlap() -> None:
    figure = dimension.draw_by_compression(compressed("", "svd-0.5"), MODELS)
    boxes = [
        tuple(np.r_[figure.layout[x.replace("x", "xaxis")].domain, figure.layout[y.replace("y", "yaxis")].domain])
        for x, y in (grid.axis_names(position).values() for position in range(2))
    ]
    for one, other in itertools.combinations(boxes, 2):
        assert one[1] <= other[0] or other[1] <= one[0] or one[3] <= other[2] or other[3] <= one[2]
