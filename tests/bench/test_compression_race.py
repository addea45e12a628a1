"""Comparisons of the race are paired over data sets, and a stopped race goes on from its file."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.compression_race import OURS, ROUNDED, Cell, compare, read_cells, round_attention, run
from bench.race_matrices import Calibration
from tests.tsfmscope.compression.conftest import TOYS
from tsfmscope.compression.options import Calibration as Options
from tsfmscope.models.registry import family_class


def cells() -> list[Cell]:
    """Two models and two sets; another method loses 10 and 20 % more than ours, on one model 30 % on one set."""
    rows = []
    for model, loss in {"a": 0.5, "b": 0.1}.items():
        logs = {"guided/x": loss, "guided/y": loss + 0.3, "report/z": 9.0}
        rows.append(Cell(model, OURS, 0.25, 0, logs))
        more = {"guided/x": math.log(1.1), "guided/y": math.log(1.2), "report/z": 0.0}
        rows.append(Cell(model, "svd", 0.25, 0, {key: log + more[key] for key, log in logs.items()}))
    return rows


def test_methods_are_compared_on_the_same_models_and_sets() -> None:
    """By hand: Student's quantile with one degree of freedom is 12.706, half the distance of two is their error."""
    ours, other = compare(cells(), "guided", 0.25)
    assert (ours["method"], other["method"], other["models"], other["share"]) == (OURS, "svd", 2, 0.25)
    ratio, half_width = 1 / math.sqrt(1.1 * 1.2), 12.706 * math.log(1.2 / 1.1) / 2
    limits = (ratio, ratio * math.exp(-half_width), ratio * math.exp(half_width))
    assert other["ours"] == pytest.approx(limits, rel=1e-3)
    assert ours["error"][0] == pytest.approx(math.exp(0.45)) and ours["worst"] == pytest.approx(math.exp(0.8))
    assert (other["worst_model"], other["worst_set"]) == ("a", "y")


def test_a_method_that_fails_on_a_model_is_compared_on_the_others() -> None:
    rows = [cell._replace(logs={}) if (cell.model, cell.method) == ("a", "svd") else cell for cell in cells()]
    (other,) = [row for row in compare(rows, "guided", 0.25) if row["method"] == "svd"]
    assert other["models"] == 1 and other["ours"][0] == pytest.approx(1 / math.sqrt(1.1 * 1.2))
    assert compare(rows, "guided", 0.5) == []


def test_errors_of_a_set_are_averaged_over_seeds() -> None:
    again = [cell._replace(seed=1, logs={key: log + 0.2 for key, log in cell.logs.items()}) for cell in cells()]
    first, both = (compare(rows, "guided", 0.25)[0]["error"][0] for rows in (cells(), cells() + again))
    assert both == pytest.approx(first * math.exp(0.1))


def test_finished_cells_are_not_computed_again(tmp_path: Path) -> None:
    file = tmp_path / "cells"
    file.write_text("\n".join(json.dumps(cell._asdict()) for cell in cells()) + '\n{"model": "a", "me')
    assert read_cells(file) == cells() and read_cells(tmp_path / "none") == []

    class All:
        def __contains__(self, _: Any) -> bool:
            return True

    finished: Any = All()
    assert list(run(["no such model"], [0.5], [0], finished, [], 1)) == []


@pytest.mark.parametrize("method", ROUNDED)
def test_rounded_attention_has_its_bits_and_its_bytes(method: str) -> None:
    """Matrices of 24 inputs have one group per row: 16 bits for a scale, and in AWQ 16 bits for an input."""
    model = family_class("chronos-bolt").new(TOYS["chronos-bolt"], seed=0)
    before = [layer.linear(name).weight.detach().clone() for layer in model.attentions() for name in "qkvo"]
    data = Calibration(model, Options(windows=2, context=32, horizon=8, seed=0, held_out=0, synthetic=1))
    share = round_attention(model, method, data)
    after = [layer.linear(name).weight.detach() for layer in model.attentions() for name in "qkvo"]
    count = 16 if method == "bfloat16" else int(method.split()[1])
    overhead = sum(2 * len(one) * -(-one.shape[1] // 32) + 2 * one.shape[1] * ("AWQ" in method) for one in before)
    size = sum(one.numel() for one in before)
    assert share == pytest.approx((count * size / 8 + overhead * (count != 16)) / (4 * size))
    errors = [float((old - new).norm() / old.norm()) for old, new in zip(before, after, strict=True)]
    assert 0 < max(errors) < 8 * 2.0 ** -min(count, 9) and np.isfinite(errors).all()
