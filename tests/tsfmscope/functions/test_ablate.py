"""`ablate`: its rows against forecasts with zero weights, its units, early exits, files and bad input."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tsfmscope.errors import ArgumentError, DataError
from tsfmscope.functions import ablate as functions
from tsfmscope.functions.ablate import EXIT, Ablation, ablate
from tsfmscope.functions.load import Model, load
from tsfmscope.models.base import QUANTILES
from tsfmscope.series.data_sets import usable_series

HOW: dict[str, Any] = {"horizon": 6, "context": 64, "windows": 1}


def draw_series(count: int = 12) -> dict[str, np.ndarray]:
    rng, steps = np.random.default_rng(3), np.arange(150)
    return {f"s{n}": 9 + 3 * np.sin(2 * np.pi * steps / 12 + n) + rng.normal(size=150) for n in range(count)}


@pytest.fixture(scope="module")
def model() -> Model:
    return load("ttm-mini")


@pytest.fixture(scope="module")
def bolt() -> Model:
    return load("chronos-bolt-mini")


@pytest.fixture(scope="module")
def result(bolt: Model) -> Ablation:
    return ablate(bolt, draw_series(), **HOW)


def test_a_ratio_is_the_geometric_mean_over_series_of_the_losses_without_a_part(bolt: Model, result: Ablation) -> None:
    twin: Any = copy.deepcopy(bolt.family)
    with torch.no_grad():
        twin.blocks["encoder"][1].layer[1].DenseReluDense.wo.weight.zero_()
    series = draw_series()
    windows, _ = functions._read_windows(bolt, usable_series(series, max_series=None, seed=0), 1, 64, 6, 0)
    losses = []
    for family in (bolt.family, twin):
        values = family.forecast(windows, seeds=[0] * len(windows)).values
        error = windows.future[:, None] - values
        level = np.array(QUANTILES)[:, None]
        losses.append((2 * np.maximum(level * error, (level - 1) * error)).sum(axis=(1, 2)))
    logs = np.log(losses[1] / losses[0])
    row = result.parts.query("stack == 'encoder' and layer == 2 and kind == 'mlp'").iloc[0]
    assert row["ratio"] == pytest.approx(math.exp(logs.mean()), rel=1e-4)
    half = 2.200985 * logs.std(ddof=1) / math.sqrt(12)
    assert [row["low"], row["high"]] == pytest.approx([*np.exp(logs.mean() + half * np.array([-1, 1]))], rel=1e-3)
    assert row["upper"] >= math.exp(logs.mean())


def test_every_layer_head_and_exit_has_a_row_with_its_cost(bolt: Model, result: Ablation) -> None:
    counts = result.parts["kind"].value_counts()
    assert (counts["layer"], counts["attention"], counts["mlp"], counts["head"], counts[EXIT]) == (6, 8, 6, 32, 6)
    assert set(result.parts["way"]) == {"skip"}
    layers = result.parts[result.parts["kind"] == "layer"].set_index(["stack", "layer"])
    exits = result.parts[result.parts["kind"] == EXIT].set_index(["stack", "layer"])
    for stack, depth in bolt.layers.items():
        # Without the last layer alone, the head reads the layer before it.
        assert exits.loc[(stack, depth - 1), "ratio"] == layers.loc[(stack, depth), "ratio"]
        assert exits.loc[(stack, 0), "bytes_share"] == pytest.approx(layers.loc[stack, "bytes_share"].sum())
    family: Any = bolt.family
    size = sum(values.numel() for values in family.network.parameters())
    block = sum(values.numel() for values in family.blocks["encoder"][2].parameters())
    assert layers.loc[("encoder", 3), "bytes_share"] == pytest.approx(block / size)
    heads = result.parts.query("stack == 'decoder' and layer == 1 and kind == 'head'")
    attentions = result.parts.query("stack == 'decoder' and layer == 1 and kind == 'attention'")
    for share in ("bytes_share", "products_share"):
        assert heads[share].sum() == pytest.approx(attentions[share].sum())
        assert 0 < layers[share].sum() < 1
    assert result.parts.loc[result.parts["kind"] == "directions", "bytes_share"].isna().all()


def test_the_depth_is_the_first_layer_from_which_all_exits_are_near(result: Ablation) -> None:
    rows = [("encoder", layer, EXIT, upper) for layer, upper in enumerate((1.05, 1.3, 1.02, 1.01))]
    rows += [("decoder", 0, EXIT, 1.0), ("vision", 0, EXIT, 2.0), ("vision", 1, EXIT, math.inf)]
    frame = pd.DataFrame(rows, columns=["stack", "layer", "kind", "upper"])
    made = Ablation(frame, "", 1, "", [])
    assert made.depths == {"encoder": 2, "decoder": 0, "vision": 2}
    assert result.depths == {"encoder": 4, "decoder": 2}


def test_sentences_table_and_files_agree_with_the_rows(result: Ablation, tmp_path: Path) -> None:
    text = " ".join(result.sentences())
    assert "12 windows; the units of intervals are 12 series." in text
    assert "of 6 layers" in text
    assert "encoder: the forecast is formed at layer 4" in text
    assert len(result.table()) == len(result.parts)
    assert "early exit" in repr(result)
    assert "<table" in result._repr_html_()
    read = pd.read_csv(result.save(tmp_path / "parts.csv"))
    pd.testing.assert_frame_equal(read, result.parts, check_dtype=False)
    assert result.save(tmp_path / "map.svg").read_text().startswith("<svg")
    with pytest.raises(ValueError, match=r"expected a name that ends in \.png"):
        result.save(tmp_path / "map.doc")
    assert "layer" in result.plot().to_json()


def test_the_same_seed_gives_the_same_rows_and_the_model_is_as_before(model: Model) -> None:
    how = {**HOW, "parts": ["layer"], "ways": ["resample"]}
    before = {name: values.clone() for name, values in model.family.network.state_dict().items()}
    first, second = (ablate(model, draw_series(4), seed=5, **how).parts for _ in range(2))
    pd.testing.assert_frame_equal(first, second)
    assert not first["ratio"].equals(ablate(model, draw_series(4), seed=6, **how).parts["ratio"])
    assert all(torch.equal(values, before[name]) for name, values in model.family.network.state_dict().items())


def test_ten_data_sets_are_units_and_fewer_are_not(model: Model) -> None:
    sets = [draw_series(1) for _ in range(10)]
    by_set, by_series = (ablate(model, data, parts=["exit"], **HOW) for data in (sets, sets[:3]))
    assert by_set.units == "10 data sets"
    assert by_series.units == "3 series"


def test_parts_that_a_family_lacks_or_cannot_replace_are_named_in_notes(model: Model) -> None:
    made = ablate(model, draw_series(3), parts=["head", "mlp"], **HOW)
    assert any("encoder: left out: heads" in note for note in made.notes)
    sampled = ablate("time-moe-mini", draw_series(3), parts=["layer"], ways=["skip", "mean"], **HOW)
    assert any("mean of layers" in note for note in sampled.notes)
    assert set(sampled.parts["way"]) == {"skip"}


def test_hard_series_have_finite_rows(model: Model) -> None:
    series = draw_series(5)
    series["s0"][-40:-20] = np.nan
    series["s1"] *= 1e6
    series["s2"] *= 1e-6
    series["s3"][-30:] = 4.0
    series["s4"] = series["s1"]
    rows = ablate(model, series, parts=["layer"], ways=["mean"], **HOW).parts
    assert np.isfinite(rows[["ratio", "upper", "bytes_share"]].to_numpy(dtype=float)).all()


@pytest.mark.parametrize(("arguments", "error", "message"), [
    ({"model": "t5-text-nano"}, ArgumentError, "reads text and does not forecast"),
    ({"model": "ttm-mini", "data": "nile"}, DataError, "expected windows of two series or more, got 1"),
    ({"model": "ttm-mini", "data": draw_series(2), "horizon": 140}, DataError, "got 0; name more data sets; left out"),
    ({"model": "ttm-mini", "parts": ["heads"]}, ArgumentError, "parts: got 'heads', expected some of layer, attention"),
    ({"model": "ttm-mini", "ways": "zero"}, ArgumentError, "ways: got 'zero', expected some of skip, mean, resample"),
    ({"model": "ttm-mini", "windows": 0}, ArgumentError, "windows: got 0, expected at least 1"),
])  # fmt: skip
def test_bad_input_is_one_line(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        ablate(**arguments)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_onnx_folder_is_refused(tmp_path: Path) -> None:
    for name in ("model.onnx", "onnx.json"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(ArgumentError):
        ablate(tmp_path, draw_series(3))
