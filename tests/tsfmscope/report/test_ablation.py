"""Heat map of an ablation: panels, cells, their texts and the order of rows."""

from __future__ import annotations

import math

import pandas as pd

from tsfmscope.report.ablation import STRONGEST, draw_parts
from tsfmscope.report.render import draw_svg


def make_rows() -> pd.DataFrame:
    rows = []
    for way in ("skip", "mean"):
        for layer in (1, 2):
            for kind, name, ratio in (
                ("layer", "layer", 1.5 * layer), ("head", "self head 1", 0.99),
                ("directions", f"directions 1 to {layer}", 9.0), ("directions", f"directions {layer + 1} to 8", 0.1),
            ):  # fmt: skip
                rows.append(["encoder", layer, kind, name, way, ratio, 1.1 * ratio, ratio < 1])
        rows.append(["encoder", 0, "exit", "early exit", way, 4.0, 5.0, False])
    return pd.DataFrame(rows, columns=["stack", "layer", "kind", "name", "way", "ratio", "upper", "can_go"])


def test_each_way_has_a_panel_whose_cells_show_ratios_and_whose_colours_are_cut() -> None:
    chart = draw_parts(make_rows())
    assert len(chart.vconcat) == 2
    cells = chart.vconcat[0].data
    assert set(cells["part"]) == {"layer", "self head 1", "directions, group 1", "directions, group 2", "early exit"}
    assert cells["strength"].abs().max() <= math.log(STRONGEST)
    assert cells.loc[cells["part"] == "layer", "text"].tolist() == ["1.50", "3.00"]
    panel = chart.to_dict()["vconcat"][0]["layer"][0]["encoding"]
    assert panel["y"]["scale"]["domain"][-1] == "early exit"
    svg = draw_svg(chart)
    assert "0.99" in svg
    assert "encoder, skip" in svg


def test_an_infinite_ratio_and_a_ratio_of_zero_are_drawn() -> None:
    rows = make_rows()
    rows.loc[0, "ratio"] = math.inf
    rows.loc[1, "ratio"] = 1e-300
    assert "inf" in draw_svg(draw_parts(rows))
