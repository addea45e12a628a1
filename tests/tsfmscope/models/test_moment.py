"""MOMENT: shapes of the releases, forecasts beyond half a window, and masks of the training loss."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.tsfmscope.models.families import package_network, shake
from tsfmscope.conformance.checkpoints import Checkpoint, every_tensor_is_read
from tsfmscope.conformance.subject import judge
from tsfmscope.models.common.capture import capture
from tsfmscope.models.moment import Config, Moment
from tsfmscope.models.moment_network import UNUSED
from tsfmscope.models.types import TokenKind
from tsfmscope.series.types import Windows

Make = Callable[..., Windows]
needs_package = pytest.mark.skipif(
    importlib.util.find_spec("momentfm") is None, reason="momentfm is not installed; see docs/install.md"
)
CONFIG = {"seq_len": 96, "patch_len": 8, "d_model": 32, "d_ff": 48, "d_kv": 6, "num_heads": 4, "num_layers": 3}
# d_model, d_ff, num_heads, num_layers of FLAN-T5, whose shapes the releases have.
BASE, LARGE = (768, 2048, 12, 12), (1024, 2816, 16, 24)
WORDS, POSITIONS = 32128, 5000


def elements(shape: tuple[int, int, int, int]) -> tuple[int, int]:
    """Return the numbers of elements of the released tensors of this shape: those of the encoder, and the others."""
    width, hidden, heads, layers = shape
    config = {"seq_len": 512, "patch_len": 8, "d_model": width, "d_ff": hidden, "d_kv": 64, "num_heads": heads}
    with torch.device("meta"):
        network = Moment.make_network(Config.fill(config | {"num_layers": layers}, "test"))
    encoder = sum(value.numel() for value in network.encoder.parameters())
    rest = sum(value.numel() for value in network.parameters()) - encoder
    return encoder + WORDS * width, rest + POSITIONS * width


def test_the_shapes_of_the_releases_have_the_published_sizes() -> None:
    """Parameters of the large encoder: output of the package's tutorials. Bytes of the base file: its hub page."""
    assert elements(LARGE)[0] == 341_231_104
    header = 453_940_120 - 4 * sum(elements(BASE))
    assert 0 < header < 20_000


def test_a_long_horizon_appends_forecasts_of_half_a_window(windows: Make) -> None:
    model, made = Moment.new(CONFIG, seed=3), windows(count=3, context=80, horizon=110)
    ours = model._forecast(made, (0.5,), 1, [])[:, 0]
    history, parts = made.context.astype(np.float64), []
    for steps in (48, 48, 14):
        future = np.zeros((3, steps), np.float32)
        part = Windows(history, future, made.series, made.origin, "x", "D", 1)
        parts.append(model._forecast(part, (0.5,), 1, [])[:, 0])
        history = np.concatenate((history, parts[-1]), axis=1)
    np.testing.assert_allclose(ours, np.concatenate(parts, axis=1), rtol=1e-12)


def test_a_longer_forecast_leaves_a_shorter_context(windows: Make) -> None:
    model = Moment.new(CONFIG, seed=3)
    assert [model.rows_per_window(200, horizon)["encoder"] for horizon in (1, 8, 9, 48, 500)] == [11, 11, 10, 6, 6]
    assert [model.rows_per_window(context, 8)["encoder"] for context in (5, 8, 30)] == [0, 1, 3]


def test_the_loss_masks_a_share_of_the_known_patches(windows: Make) -> None:
    model = Moment.new(CONFIG | {"mask_ratio": 0.3}, seed=3)
    known = np.ones((500, 10), bool)
    known[1, :4] = False
    known[2] = False
    torch.manual_seed(0)
    masked = model._draw_masks(known)
    assert not (masked & ~known).any()
    assert masked.sum(axis=1)[:4].tolist() == [3, 1, 0, 3]
    np.testing.assert_allclose(masked[3:].mean(axis=0), 0.3, atol=0.08)


def test_the_loss_refuses_a_future_of_more_than_half_a_window() -> None:
    model = Moment.new(CONFIG, seed=3)
    with pytest.raises(ValueError, match="future: got 49 steps, expected at most 48, half of seq_len"):
        model.loss(torch.zeros(1, 80), torch.zeros(1, 49))


def test_a_constant_context_before_a_jump_has_a_finite_loss() -> None:
    model = Moment.new(CONFIG, seed=3)
    loss = model.loss(torch.full((2, 80), 3.0), torch.full((2, 8), 3e30))
    assert 0 < float(loss.detach()) < 2 * 100.0**2


def random_model(config: dict[str, Any]) -> Moment:
    return shake(Moment.new(CONFIG | config, seed=2))


def padded(windows: Windows) -> tuple[torch.Tensor, torch.Tensor]:
    """Return contexts [W, 1, 96], padded on the left, and which steps are no padding [W, 96], as the package asks."""
    values = windows.context[:, -96:]
    values = np.pad(values, ((0, 0), (96 - values.shape[1], 0)), constant_values=np.nan)
    is_padding = np.logical_and.accumulate(np.isnan(values), axis=1)
    return torch.from_numpy(np.nan_to_num(values))[:, None], torch.from_numpy(~is_padding).float()


def assert_states_equal(model: Moment, windows: Windows, states: dict[Any, torch.Tensor], normed: torch.Tensor) -> None:
    """Compare the states of every layer in all rows that are attended to."""
    tokens = model.tokenize(windows)
    attended, layers = tokens.arrays["attended"], list(model.hidden_states(tokens))
    assert len(layers) == 5 and sum(layer.normed for layer in layers) == 1
    for ours in layers:
        theirs = normed if ours.normed else states[ours.layer]
        wanted = theirs.numpy()[:, -ours.states.shape[1] :][attended]
        np.testing.assert_allclose(ours.states[attended], wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


@needs_package
def test_patches_with_gaps_are_masked_as_the_package_reconstructs_them(windows: Make, tmp_path: Path) -> None:
    model, made = random_model({}), windows(count=4, context=80, horizon=16)
    made.context[0, 20:40] = np.nan
    made.context[1, 79] = np.nan
    made.context[2, 1:70:2] = np.nan
    package = package_network(model, tmp_path)
    values, inputs = (torch.cat((part, torch.zeros(*part.shape[:-1], 16)), dim=-1)[..., 16:] for part in padded(made))
    inputs[:, -16:] = 1
    mask = torch.cat((torch.from_numpy(~np.isnan(made.context)).float(), torch.zeros(4, 16)), dim=1)
    blocks = package.encoder.block
    watched = {**dict(enumerate(blocks, start=1)), "normed": package.encoder.final_layer_norm}
    with torch.no_grad(), capture(watched, {0: blocks[0]}) as states:
        theirs = package.reconstruction(x_enc=values, input_mask=inputs, mask=mask)
    kinds = model.tokenize(made).kinds["encoder"]
    assert (kinds == TokenKind.OBSERVATION).sum(axis=1).tolist() == [7, 9, 1, 10]
    assert_states_equal(model, made, states, states["normed"])
    wanted = theirs.reconstruction[:, 0, -16:].numpy()
    np.testing.assert_allclose(model._forecast(made, (0.5,), 1, [])[:, 0], wanted, rtol=1e-4, atol=1e-4)


@needs_package
def test_the_loss_is_the_error_of_the_packages_reconstruction(
    windows: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, made = random_model({}), windows(count=5, context=72, horizon=21)
    made.future[2, 5] = np.nan
    hidden = np.zeros((5, 9), bool)
    hidden[:, 3:5] = True
    hidden[2] = False
    monkeypatch.setattr(model, "_draw_masks", lambda known: hidden)
    with torch.no_grad():
        ours = model.loss(torch.from_numpy(made.context), torch.from_numpy(made.future))
    steps = np.concatenate((made.context, np.nan_to_num(made.future), np.zeros((5, 3))), axis=1).astype(np.float32)
    mask = np.concatenate((~np.repeat(hidden, 8, axis=1), np.zeros((5, 24))), axis=1).astype(np.float32)
    package = package_network(model, tmp_path)
    with torch.no_grad():
        theirs = package(
            x_enc=torch.from_numpy(steps)[:, None], input_mask=torch.ones(5, 96), mask=torch.from_numpy(mask)
        ).reconstruction[:, 0]
    scale = package.normalizer.stdev[:, 0].numpy()
    counted = 1 - mask
    counted[:, 93:] = 0
    counted[2, 72 + 5] = 0
    wanted = (((theirs.numpy() - steps) / scale) ** 2 * counted).sum() / counted.sum()
    assert float(ours) == pytest.approx(wanted, rel=1e-4)


@needs_package
def test_folders_pass_to_the_package_and_back(windows: Make, tmp_path: Path) -> None:
    model, made = random_model({}), windows(count=3)
    package_network(model, tmp_path / "ours").save_pretrained(str(tmp_path / "theirs"))
    assert set(UNUSED) <= set(load_file(tmp_path / "theirs" / "model.safetensors"))
    finding = judge(every_tensor_is_read, Checkpoint("moment", tmp_path / "theirs", tmp_path, 48, 12))
    assert finding.verdict == "pass" and "2 tied or unused" in finding.detail
    loaded = Moment.load(tmp_path / "theirs")
    assert loaded.config == model.config
    ours, theirs = (each.forecast(made, seeds=[0] * 3).values for each in (model, loaded))
    np.testing.assert_array_equal(ours, theirs)


@needs_package
def test_the_config_of_the_release_is_read(tmp_path: Path) -> None:
    """Keys of AutonLab/MOMENT-1-base, with null as d_model, at a small width."""
    from momentfm import MOMENTPipeline

    random_model({}).save(tmp_path / "ours")
    config = json.loads((tmp_path / "ours" / "config.json").read_text())
    kept = {key: config[key] for key in ("task_name", "model_name", "seq_len", "patch_len", "patch_stride_len")}
    kept |= {"transformer_type": "encoder_only", "transformer_backbone": "google/flan-t5-base", "device": "cpu"}
    kept |= {"d_model": None, "enable_gradient_checkpointing": False, "t5_config": config["t5_config"]}
    package = MOMENTPipeline(kept, model_kwargs={"task_name": "reconstruction"})
    package.save_pretrained(str(tmp_path / "theirs"))
    assert json.loads((tmp_path / "theirs" / "config.json").read_text())["d_model"] is None
    loaded = Moment.load(tmp_path / "theirs")
    assert loaded.width == 32 and loaded.config["mask_ratio"] == 0.3
    state = package.state_dict()
    assert all(torch.equal(state[name], value) for name, value in loaded.network.state_dict().items())
