"""What a chart shows, read from its Vega-Lite specification: panels, layers, marks, rows and legends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import altair as alt

from tsfmscope.report.style import Chart


class Layer(NamedTuple):
    """One kind of mark of a panel. encoding: channel -> its definition; rows: the data, before filters."""

    mark: dict[str, Any]
    encoding: dict[str, Any]
    rows: list[dict[str, Any]]

    def values(self, channel: str) -> list[Any]:
        """Return the values of a channel, row by row."""
        return [row[self.encoding[channel]["field"]] for row in self.rows]


class Panel(NamedTuple):
    """title: lines of the title, joined by line breaks."""

    title: str
    layers: list[Layer]
    specification: dict[str, Any]

    def layer(self, mark: str) -> Layer:
        """Return the only layer with this kind of mark."""
        (found,) = self.select(mark)
        return found

    def select(self, mark: str) -> list[Layer]:
        return [layer for layer in self.layers if layer.mark["type"] == mark]


def read_panels(chart: Chart) -> list[Panel]:
    """Return the panels of a chart, row by row."""
    with alt.data_transformers.enable("default", max_rows=None):
        whole = chart.to_dict()
    panels = []
    for part in whole.get("concat", [whole]):
        title = part.get("title", "")
        lines = title if isinstance(title, str) else "\n".join([title["text"], *_lines(title.get("subtitle", []))])
        panels.append(Panel(lines, list(_layers(part, whole.get("datasets", {}), whole.get("data"))), part))
    return panels


def read_titles(chart: Chart) -> list[str]:
    return [panel.title for panel in read_panels(chart)]


def read_tips(chart: Chart) -> list[str]:
    """Return the texts that a reader gets when pointing at marks."""
    return [
        row[layer.encoding["description"]["field"]]
        for panel in read_panels(chart)
        for layer in panel.layers
        if "description" in layer.encoding
        for row in layer.rows
    ]


def read_scale(chart: Chart, channel: str) -> dict[Any, Any]:
    """Return the values of a channel by item, such as the colour of each model, over all layers."""
    found: dict[Any, Any] = {}
    for panel in read_panels(chart):
        for layer in panel.layers:
            scale = layer.encoding.get(channel, {}).get("scale") or {}
            found |= dict(zip(map(str, scale.get("domain", [])), scale.get("range", []), strict=True))
    return found


def has_legend(chart: Chart, channel: str) -> bool:
    encodings = [layer.encoding for panel in read_panels(chart) for layer in panel.layers]
    return any(encoding.get(channel, {}).get("legend") is not None for encoding in encodings)


def _lines(text: str | list[str]) -> list[str]:
    return [text] if isinstance(text, str) else text


def _layers(part: dict[str, Any], datasets: dict[str, Any], data: dict[str, Any] | None) -> Iterator[Layer]:
    data = part.get("data", data)
    if "layer" in part:
        for layer in part["layer"]:
            yield from _layers(layer, datasets, data)
        return
    assert data is not None
    rows = datasets[data["name"]] if "name" in data else data["values"]
    yield Layer(part["mark"], part.get("encoding", {}), rows)
