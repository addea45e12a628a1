"""Plot of scored candidates: a number next to every mark, and the colours of the choice."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest

from tsfmscope.report import candidates
from tsfmscope.report.candidates import draw_candidates


def rows(count: int) -> pd.DataFrame:
    """Return candidates with errors and seconds that are close to one another."""
    rng = np.random.default_rng(0)
    ratio = np.sort(rng.uniform(0.5, 1.3, count))
    return pd.DataFrame({
        "candidate": [f"model-{n}" for n in range(count)], "is_baseline": np.arange(count) % 4 == 3,
        "is_undecided": np.arange(count) < 3, "ratio": ratio, "ratio_low": ratio - 0.05, "ratio_high": ratio + 0.05,
        "wql": ratio / 9, "wql_low": np.nan, "wql_high": np.nan, "seconds": 10 ** rng.uniform(0, 2.5, count),
    })  # fmt: skip


def test_every_candidate_has_a_mark_of_the_colour_of_its_choice() -> None:
    panel, names = draw_candidates(rows(8)).hconcat
    (points,) = (layer.data.values for layer in panel.layer if layer.mark.type == "point")
    assert [point["kind"] for point in points] == ["best", *["not told from the best"] * 2, *["worse"] * 5]
    assert [point["type"] for point in points] == (["model"] * 3 + ["baseline"]) * 2
    assert [point["name"] for point in names.data.values] == [f"{n + 1}  model-{n}" for n in range(8)]


def test_without_a_ratio_the_plot_has_the_error_itself() -> None:
    table = rows(3).assign(ratio=np.nan)
    panel, _ = draw_candidates(table).hconcat
    (points,) = (layer.data.values for layer in panel.layer if layer.mark.type == "point")
    assert [point["error"] for point in points] == table["wql"].tolist()


@pytest.mark.parametrize("count", [1, 2, 20])
def test_numbers_are_in_the_panel_and_apart(count: int) -> None:
    table = rows(count)
    points = [
        {"number": str(n), "seconds": row["seconds"], "error": row["ratio"]}
        for n, row in enumerate(table.to_dict("records"))
    ]
    texts = candidates._place_numbers(points, (0.5, 500.0), (0.4, 1.4))
    places = [
        (math.log10(text["x"] / 0.5) / 3 * candidates.WIDTH, (1.4 - text["y"]) * candidates.HEIGHT) for text in texts
    ]
    assert [text["text"] for text in texts] == [point["number"] for point in points]
    assert all(0 < x < candidates.WIDTH and 0 < y < candidates.HEIGHT for x, y in places)
    for (x, y), (other_x, other_y) in itertools.combinations(places, 2):
        assert abs(x - other_x) >= candidates.RIGHT - 1e-6 or abs(y - other_y) >= candidates.DOWN - 1e-6
