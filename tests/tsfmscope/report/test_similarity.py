"""Heat maps of `compare` hold every pair of layers, and the chart of moved layers holds every layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tests.tsfmscope.report.drawn import read_panels, read_tips, read_titles
from tsfmscope.report.render import draw_inline, draw_svg
from tsfmscope.report.similarity import ABREAST, draw_moved, draw_similarity
from tsfmscope.report.style import INK


def make_pairs(n_layers: int = 2) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    for block, models in (("between", "xy"), ("within a", "xx"), ("within b", "yy")):
        for a in range(n_layers):
            for b in range(n_layers):
                value = 1.0 if a == b else 0.25 - 0.5 * (block == "between")
                rows.append({"block": block, "model_a": models[0], "model_b": models[1], "a": str(a), "b": str(b)})
                rows[-1] |= {"cka": value, "cka_low": value - 0.1, "cka_high": value + 0.1, "procrustes": 0.5}
    return pd.DataFrame(rows)


def test_every_pair_of_layers_is_a_cell_with_its_value() -> None:
    rows = make_pairs()
    rows.loc[0, ["cka", "cka_low", "cka_high"]] = np.nan
    chart = draw_similarity(rows)
    assert read_titles(chart) == ["debiased CKA, between", "debiased CKA, within a", "debiased CKA, within b"]
    first, second, _ = read_panels(chart)
    assert first.layer("text").values("text") == ["–", "−0.25", "−0.25", "1.00"]
    assert second.layer("text").values("text") == ["1.00", "0.25", "0.25", "1.00"]
    # A negative value, and none, is the colour of the page.
    assert first.layer("rect").values("fillOpacity") == [0, 0, 0, 1]
    # Layer 0 of the first model is at the bottom.
    encoding = first.layer("rect").encoding
    assert encoding["y"]["sort"] == ["1", "0"] and (encoding["y"]["title"], encoding["x"]["title"]) == (
        "layer of x", "layer of y",
    )  # fmt: skip
    assert read_tips(chart)[3] == "x 1 · y 1\nCKA 1 [0.9, 1.1]\nProcrustes 0.5"


def test_many_layers_stand_below_one_another() -> None:
    assert draw_similarity(make_pairs(ABREAST // 3)).to_dict()["columns"] == 3
    assert draw_similarity(make_pairs(ABREAST // 3 + 1)).to_dict()["columns"] == 1


def test_numbers_on_dark_cells_are_white_in_both_colour_schemes() -> None:
    chart = draw_similarity(make_pairs())
    svg = draw_svg(chart)
    assert svg.count('fill="white">1.00') == 6 and svg.count(f'fill="{INK}">0.25') == 4
    assert draw_inline(chart, "f").count('fill="var(--ink)">0.25') == 4


def test_every_layer_that_moved_has_its_interval() -> None:
    names, low, high = ["0", "1", "1′", "2"], [-0.1, 0.1, np.nan, np.nan], [0.1, 0.3, np.nan, np.nan]
    rows = pd.DataFrame({"name": names, "moved": [0.0, 0.2, 0.3, np.nan], "low": low, "high": high})
    chart = draw_moved(rows.assign(procrustes=[0.0, 0.1, 0.2, np.nan]))
    assert read_tips(chart)[1] == "layer 1\n1 − CKA 0.2 [0.1, 0.3]\nProcrustes 0.1"
    svg = draw_svg(chart)
    assert svg.count('aria-roledescription="point"') == 3 and ">1′</text>" in svg
