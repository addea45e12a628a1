"""Panels of the effective dimension hold every layer once, at its place, with its range."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from tests.tsfmscope.report.drawn import read_panels
from tests.tsfmscope.report.recorded import find_study
from tsfmscope.report.plots import dimension
from tsfmscope.report.style import COLOURS, Chart
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


def read_layers(chart: Chart) -> dict[tuple[str, str, str], tuple[float, float, float]]:
    """Return (model, stack, layer) -> low, median, high, as drawn."""
    rows = [row for panel in read_panels(chart) for row in panel.layer("point").rows]
    found = {(row["model"], row["stack"], row["name"]): (row["low"], row["median"], row["high"]) for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize("source", ["made", "recorded"])
def test_every_layer_is_drawn_once_with_its_range(source: str, tables: ReportTables) -> None:
    frame = FRAME if source == "made" else find_study(tables, "dimension").answers["layers"].frame
    wanted = {
        (row.model, row.stack, dimension.name_layer(row.layer, row.normed)): tuple(
            None if pd.isna(value) else value  # a constant layer has none
            for value in (row.low, row.median, row.high)
        )
        for row in frame.itertuples()
    }
    assert read_layers(dimension.draw_by_layer(frame, MODELS)) == wanted


def test_a_panel_shows_one_model_with_its_encoder_before_its_decoder_at_whole_numbers() -> None:
    panels = read_panels(dimension.draw_by_layer(FRAME, MODELS))
    assert [panel.title for panel in panels] == ["base", "other"]
    points = panels[0].layer("point")
    places: dict[str, list[int]] = {}
    for row in points.rows:
        places.setdefault(row["stack"], []).append(row["position"])
    assert places == {"encoder": [0, 1, 2, 3, 4], "decoder": [6, 7, 8]}
    axis = points.encoding["x"]["axis"]
    assert axis["values"] == [0, 1, 2, 3, 4, 6, 7, 8]
    assert axis["labelExpr"].startswith(json.dumps(["0", "1", "2", "3", "3′", "1", "2", "2′"]))
    assert [row["text"] for row in panels[0].layer("text").rows] == ["encoder", "decoder"]


def test_a_panel_has_the_colour_of_its_model_and_the_range_of_all() -> None:
    panels = read_panels(dimension.draw_by_layer(FRAME, MODELS))
    assert [panel.layer("line").mark["color"] for panel in panels] == list(COLOURS[:2])
    (domain,) = {tuple(panel.layer("point").encoding["y"]["scale"]["domain"]) for panel in panels}
    assert domain[0] == 0 and domain[1] > FRAME["high"].max()


def test_deep_models_have_a_dozen_labels_at_most() -> None:
    deep = pd.DataFrame([*make_rows("base", "encoder", 24), *make_rows("base", "decoder", 24)]).assign(n=1)
    (panel,) = read_panels(dimension.draw_by_layer(deep, MODELS))
    assert 6 < len(panel.layer("point").encoding["x"]["axis"]["values"]) <= dimension.TICKS


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
    panels = read_panels(dimension.draw_by_compression(frame, MODELS))
    assert [panel.title for panel in panels] == ["base\nencoder", "base\ndecoder"]
    x = panels[1].layer("point").encoding["x"]
    assert x["axis"]["labelExpr"].startswith(json.dumps(["dense", "0.75", "0.5", "0.125"])) and "svd" in x["title"]
    order = ["", "svd-0.75", "svd-0.5", "svd-0.125"]
    drawn = {
        (row["stack"], row["name"], order[row["position"]]): row["median"]
        for panel in panels
        for row in panel.layer("point").rows
    }
    wanted = {
        (row.stack, dimension.name_layer(row.layer, row.normed), row.model.partition("@")[2]): row.median
        for row in frame.itertuples()
    }
    assert drawn == wanted


def test_a_layer_without_a_median_leaves_out_its_point_alone() -> None:
    frame = compressed("", "svd-0.5", "svd-0.25").astype({"median": "Int64"})
    drawn = read_panels(dimension.draw_by_compression(frame, MODELS))
    whole = sum(len(panel.layer("point").rows) for panel in drawn)
    frame.loc[(frame["model"] == "base@svd-0.25") & (frame["layer"] == 2) & ~frame["normed"], "median"] = pd.NA
    drawn = read_panels(dimension.draw_by_compression(frame, MODELS))
    assert sum(len(panel.layer("point").rows) for panel in drawn) == whole - 2
    assert dimension.count_changes(frame) == (1, 14, 3.0)


def test_layers_that_end_at_the_same_value_share_a_name() -> None:
    panel = read_panels(dimension.draw_by_compression(compressed("", "svd-0.5"), MODELS))[0]
    # Medians 2, 3, 4, 5, 6 of the layers 0, 1, 2, 3, 3′; layer 1 ends at 6.
    names = {row["text"]: row["y"] for row in panel.layer("text").rows}
    assert names == {"layer 0": 2, "layers 1, 3′": 6, "layer 2": 4, "layer 3": 5}


@pytest.mark.parametrize(
    ("methods", "title", "labels"),
    [
        (["", "svd-0.5", "svd-0.25"], "compressed model (svd-…)", ["dense", "0.5", "0.25"]),
        (["", "svd-0.5", "both-0.25"], "compression", ["dense", "both-0.25", "svd-0.5"]),
        (["", "a<b"], "compression", ["dense", "a<b"]),
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
