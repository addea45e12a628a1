"""Charts of one model hold every measure of every layer, with its spread."""

from __future__ import annotations

import pandas as pd

from tests.tsfmscope.report.drawn import has_legend, read_panels, read_scale
from tsfmscope.report.render import draw_svg
from tsfmscope.report.single_model import PANELS, draw_layers

LAYERS = ((0, False), (1, False), (1, True))


def make_rows(*stacks: str) -> pd.DataFrame:
    columns = {column: 0.5 for _, _, columns in PANELS for column in columns}
    rows = [
        {"stack": stack, "layer": layer, "normed": normed, "share": 0.8, "epsilon": 0.01, **columns, "zeta_sd": 0.1}
        for stack in stacks
        for layer, normed in LAYERS
    ]
    frame = pd.DataFrame(rows).assign(effective_dimension=[3] * len(rows)).astype({"effective_dimension": "Int64"})
    frame.loc[0, ["effective_dimension", "zeta_sd"]] = pd.NA
    return frame


def test_every_value_is_drawn_once_at_its_layer_with_its_spread() -> None:
    (title, isotropy), (_, dimensions) = draw_layers(make_rows("encoder"))
    assert title == "Isotropy" and list(read_scale(dimensions, "stroke")) == ["d(0.8)", "rank(0.01)"]
    points = read_panels(isotropy)[0].layer("point").rows
    assert sorted(row["layer"] for row in points) == [0.0] * 4 + [1.0] * 4 + [1.5] * 4
    spreads = [(row["layer"], row.get("low"), row.get("high")) for row in points if row["measure"] == "ζ"]
    assert spreads == [(0.0, None, None), (1.0, 0.4, 0.6), (1.5, 0.4, 0.6)]
    assert len(read_panels(dimensions)[0].layer("point").rows) == 5
    for chart in (isotropy, dimensions):
        assert ">1′</text>" in draw_svg(chart) and not has_legend(chart, "strokeDash")


def test_stacks_differ_in_dash() -> None:
    ((_, chart), _) = draw_layers(make_rows("encoder", "decoder"))
    assert list(read_scale(chart, "strokeDash")) == ["encoder", "decoder"]
    assert ">decoder</text>" in draw_svg(chart)
