"""Comparisons of the race are paired, and the page's table is that of the stored race."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from bench.compression_race import OURS, Cell, compare_by_size, compare_cells, mean_table, paired_cells

ROOT = Path(__file__).parents[2]
CASE = re.compile(r"^([a-z0-9.-]+) +(0\.\d\d) ours +([\d.]+), ([a-z0-9-]+) +([\d.]+)", re.MULTILINE)


def cells() -> list[Cell]:
    """Two models, two data sets each; another method loses 10 and 20 % more than ours."""
    rows = []
    for model, (loss, more) in {"a": (0.5, 1.1), "b": (0.1, 1.2)}.items():
        logs = {"x": loss, "y": loss + 0.3}
        rows.append(Cell(model, OURS, 0.25, 0, logs))
        rows.append(Cell(model, "svd", 0.25, 0, {name: log + math.log(more) for name, log in logs.items()}))
    return rows


def test_methods_are_compared_on_the_same_models() -> None:
    """The models differ by 49 %, which the interval of a mean contains, and the interval of a paired ratio does not."""
    estimate, low, high = mean_table(paired_cells(cells()))["svd"][0.25]
    assert estimate == pytest.approx(1 / math.sqrt(1.1 * 1.2))
    half_width = 12.706 * abs(math.log(1.2 / 1.1)) / 2
    assert (low, high) == pytest.approx((estimate * math.exp(-half_width), estimate * math.exp(half_width)), rel=1e-3)
    (row,) = compare_by_size(compare_cells(cells()))
    assert row["ratio"] == pytest.approx(estimate, abs=1e-3) and (row["least"], row["models"]) == (2, 2)


def test_the_page_has_the_means_of_the_stored_race() -> None:
    text = (ROOT / "bench" / "results" / "race.md").read_text()
    rows = [
        {"model": model, "size": float(size), "ours": float(ours), "other": float(other)}
        for model, size, ours, _, other in CASE.findall(text)
    ]
    assert len(rows) == 54
    lines = [
        "| {size:g} | {ours:.3f} | {other:.3f} | {ratio:.3f} [{low:.3f}, {high:.3f}] | {least} of {models} |".format(
            **row
        )
        for row in compare_by_size(rows)
    ]
    for page in ("docs/findings/compression.md", "bench/results/race.md"):
        assert "\n".join(lines) in (ROOT / page).read_text(), "\n" + "\n".join(lines)
