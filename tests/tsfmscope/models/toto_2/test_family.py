"""Toto 2.0: sizes of the release, scales, the loss and compression, against definitions of their own."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.tsfmscope.models.families import example_model, shake
from tsfmscope.errors import ModelError
from tsfmscope.models.common.attention import Widths
from tsfmscope.models.registry import family_class, family_of_folder
from tsfmscope.models.toto_2 import Toto2, scale_and_cut
from tsfmscope.models.toto_2_network import Toto2Network
from tsfmscope.models.types import TokenKind
from tsfmscope.series.types import Windows

Make = Callable[..., Windows]
RELEASED = {"patch_size": 32, "num_variate_layers_per_group": 1, "variate_layer_first": False, "attn_bias": True}
RELEASED |= {"qk_norm": False, "per_dim_scale": True, "use_xpos": True, "residual_attn_ratio": 5.136}


# Widths and numbers that public ports of Datadog/Toto-2.0-4m and -22m contain.
@pytest.mark.parametrize(("width", "heads", "blocks", "count"), [(256, 4, 4, 4_144_448), (512, 8, 6, 21_915_584)])
def test_the_released_sizes_have_as_many_parameters_as_published(
    width: int, heads: int, blocks: int, count: int
) -> None:
    shape = {"d_model": width, "num_heads": heads, "num_layers": blocks, "layer_group_size": blocks}
    network = Toto2.new(RELEASED | shape, seed=0).network
    assert sum(part.numel() for part in network.parameters()) == count


def test_a_patch_is_scaled_by_all_steps_up_to_its_end() -> None:
    context = np.random.default_rng(0).normal(size=(1, 24)).cumsum(axis=1)
    context[0, [3, 9, 10]] = np.nan
    cut = scale_and_cut(context, 2, 8)
    for patch in range(3):
        past = context[0, : 8 * (patch + 1)]
        assert cut.loc[0, patch] == pytest.approx(np.nanmean(past))
        assert cut.scale[0, patch] == pytest.approx(np.nanstd(past, ddof=1))
        steps = context[0, 8 * patch : 8 * (patch + 1)]
        wanted = np.nan_to_num(np.arcsinh((steps - np.nanmean(past)) / np.nanstd(past, ddof=1)))
        np.testing.assert_allclose(cut.values[0, patch], wanted, rtol=1e-6)
        np.testing.assert_array_equal(cut.unknown[0, patch], np.isnan(steps))
    assert (cut.loc[0, 3:] == cut.loc[0, 2]).all() and (cut.unknown[0, 3:] == 1).all()


def test_a_missing_last_step_repeats_the_value_before_it_and_is_no_observation() -> None:
    context = np.array([[np.nan] * 8 + [1.0, 4.0] + [np.nan] * 14, [np.nan] * 24])
    cut = scale_and_cut(context, 0, 8)
    assert cut.observed.tolist() == [[False, True, False], [False, False, False]]
    assert cut.attended.tolist() == [[False, True, True], [False, False, True]]
    filled = np.array([1.0, 4.0] + [4.0] * 8)
    assert cut.loc[0, 2] == pytest.approx(filled.mean()) and cut.scale[0, 2] == pytest.approx(filled.std(ddof=1))
    assert (cut.values[1] == 0).all() and cut.loc[1, 2] == 0


@pytest.mark.parametrize("level", [0.1, 1e5, 3e38])
def test_a_constant_has_its_value_as_mean_and_is_forecast_near_it(level: float, windows_of: Any) -> None:
    made = windows_of(np.full((1, 48), level), np.full((1, 20), np.nan))
    values = example_model("toto-2").forecast(made, seeds=[0]).values
    np.testing.assert_allclose(values, np.float32(level), rtol=1e-4)


def test_the_loss_is_the_quantile_loss_of_the_patch_after_every_row(windows: Make) -> None:
    model, made = shake(copy.deepcopy(example_model("toto-2"))), windows(count=3, context=45, horizon=20)
    made.context[0, :14] = np.nan
    made.context[1, 20:29] = np.nan
    made.future[2, 3] = np.nan
    ours = float(model.loss(torch.from_numpy(made.context), torch.from_numpy(made.future)).detach())
    pinballs: dict[bool, list[float]] = {False: [], True: []}
    for context, future in zip(made.context.astype(np.float64), made.future.astype(np.float64), strict=True):
        # 45 steps are 6 patches of 8, the first of 3 unknown steps; the future has 2 patches and a half.
        cut = scale_and_cut(context[None], 2, 8)
        inputs = (torch.from_numpy(part) for part in (cut.values, cut.unknown, cut.attended))
        with torch.no_grad():
            outputs = model.network.quantiles(model.network(*inputs))[0].double().numpy()
        steps = np.concatenate((np.full(3, np.nan), context, future, np.full(4, np.nan))).reshape(9, 8)
        for row in range(8):
            if np.isnan(steps[row]).all() and row < 6:
                continue
            for step, value in enumerate(np.arcsinh((steps[row + 1] - cut.loc[0, row]) / cut.scale[0, row])):
                for level, quantile in zip(model.levels, outputs[row, step], strict=True):
                    if not np.isnan(value):
                        error = value - quantile
                        pinballs[row >= 5].append(2 * (level * error if error > 0 else (level - 1) * error))
    assert ours == pytest.approx(np.mean([np.mean(part) for part in pinballs.values()]), rel=1e-5)


def test_half_a_patch_and_a_long_horizon_are_the_first_steps_of_one_pass(windows: Make) -> None:
    """Masked patches read the ones before them alone, so a shorter horizon has the same first steps."""
    model, made = example_model("toto-2"), windows(count=3, horizon=200)
    whole = model.forecast(made, seeds=[0] * 3).values
    for horizon in (1, 8, 9, 100):
        short = Windows(made.context, made.future[:, :horizon], made.series, made.origin, "walks", "D", 7)
        values = model.forecast(short, seeds=[0] * 3).values
        np.testing.assert_allclose(values, whole[:, :, :horizon], rtol=1e-4, atol=1e-4 * np.abs(whole).max())
        kinds = model.tokenize(short).kinds["decoder"]
        assert (kinds == TokenKind.MASK).sum(axis=1).tolist() == [-(-horizon // 8) - 1] * 3


def test_groups_read_each_other_and_a_window_alone_reads_itself(windows: Make) -> None:
    model, made = example_model("toto-2"), windows(count=4)
    cut = scale_and_cut(made.context, 0, 8)
    inputs = [torch.from_numpy(part) for part in (cut.values, cut.unknown, cut.attended)]
    with torch.no_grad():
        alone, numbered = model.network(*inputs), model.network(*inputs, torch.tensor([4, 1, 0, 9]))
        paired = model.network(*inputs, torch.tensor([4, 1, 1, 9]))
    torch.testing.assert_close(numbered, alone)
    torch.testing.assert_close(paired[[0, 3]], alone[[0, 3]])
    assert (paired - alone)[1:3].abs().amax(dim=(1, 2)).min() > 1e-3


def test_variate_layers_can_lose_width_of_keys_and_keep_the_function_of_groups(windows: Make) -> None:
    """Queries of the released sizes are scaled by dimension, which folds into W_Q, but not normed."""
    model = shake(copy.deepcopy(example_model("toto-2")))
    layer = next(layer for layer in model.attentions() if layer.kind == "group")
    old, made = layer.read(), windows(count=4)
    cut = scale_and_cut(made.context, 0, 8)
    inputs = [torch.from_numpy(part) for part in (cut.values, cut.unknown, cut.attended)]
    groups = torch.zeros(4, dtype=torch.long)
    with torch.no_grad():
        # Keys without their last three dimensions, first as zeros and then as narrower heads.
        kept = old.slice_heads(Widths(5, 8))
        pad = [(0, 0), (0, 3), (0, 0)]
        biases = {name: np.pad(getattr(kept, name), pad[:2]) for name in ("q_bias", "k_bias")}
        layer.write(old._replace(q=np.pad(kept.q, pad), k=np.pad(kept.k, pad), **biases))
        wanted = model.network(*inputs, groups)
        layer.write(kept)
        found = model.network(*inputs, groups)
    assert layer.plain and layer.widths == Widths(5, 8)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_keys_of_normed_layers_keep_their_width() -> None:
    model = Toto2.new(family_class("toto-2").example | {"qk_norm": True}, seed=0)
    assert not any(layer.plain for layer in model.attentions())


def test_biases_that_compression_adds_are_saved_for_the_package(windows: Make, tmp_path: Path) -> None:
    """The release without attn_bias gets one for all layers, and zeros where a layer has none."""
    model = shake(Toto2.new(family_class("toto-2").example | {"attn_bias": False}, seed=0))
    layer = next(iter(model.attentions()))
    layer.write(layer.read()._replace(o_bias=np.linspace(-1, 1, 16)))
    model.save(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["attn_bias"] is True
    made, loaded = windows(), Toto2.load(tmp_path)
    assert isinstance(loaded.network, Toto2Network) and loaded.network.blocks[3].attn.q_proj.bias is not None
    ours, theirs = (one.forecast(made, seeds=[0] * 5).values for one in (model, loaded))
    np.testing.assert_array_equal(theirs, ours)


def test_a_released_config_names_no_model_type_and_is_recognised(tmp_path: Path) -> None:
    example_model("toto-2").save(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    del config["model_type"]
    path.write_text(json.dumps(config | {"heads_per_group": 1}))
    assert family_of_folder(tmp_path) == "toto-2"
    assert Toto2.load(tmp_path).config == example_model("toto-2").config
    path.write_text(json.dumps({"d_model": 16}))
    with pytest.raises(ModelError, match="expected 'toto-2' and layer_group_size, so this is no toto-2 checkpoint"):
        Toto2.load(tmp_path)
