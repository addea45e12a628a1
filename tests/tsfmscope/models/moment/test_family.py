"""MOMENT: shapes of the releases, forecasts beyond half a window, and masks of the training loss."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from tsfmscope.models.moment import checkpoint
from tsfmscope.models.moment.family import Moment
from tsfmscope.models.moment.network import MomentNetwork
from tsfmscope.series.types import Windows

Make = Callable[..., Windows]
CONFIG = {"seq_len": 96, "patch_len": 8, "d_model": 16, "d_ff": 24, "d_kv": 8, "num_heads": 2, "num_layers": 2}
# d_model, d_ff, num_heads, num_layers of FLAN-T5, whose shapes the releases have.
BASE, LARGE = (768, 2048, 12, 12), (1024, 2816, 16, 24)
WORDS, POSITIONS = 32128, 5000


def elements(shape: tuple[int, int, int, int]) -> tuple[int, int]:
    """Return the numbers of elements of the released tensors of this shape: those of the encoder, and the others."""
    width, hidden, heads, layers = shape
    config = {"seq_len": 512, "patch_len": 8, "d_model": width, "d_ff": hidden, "d_kv": 64, "num_heads": heads}
    with torch.device("meta"):
        network = MomentNetwork(checkpoint.Config.fill(config | {"num_layers": layers}, "test"))
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
