"""Against torch's own Transformer layers, loops, and the losses written out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tsfmscope.models.totem import DEFAULTS, Totem
from tsfmscope.models.totem_network import TotemNetwork, positions
from tsfmscope.models.types import TokenKind
from tsfmscope.series.types import Windows

Make = Callable[..., Windows]
TINY: dict[str, Any] = {"d_model": 8, "ffn_dim": 12, "num_attention_heads": 2, "num_hidden_layers": 2, "num_codes": 6}
TINY |= {"code_width": 5, "conv_width": 6, "residual_width": 4, "context_length": 24, "prediction_length": 8}
SHAPE = {"d_model": 64, "ffn_dim": 256, "num_hidden_layers": 4, "num_attention_heads": 4}  # the authors' scripts
SHAPE |= {"context_length": 96, "prediction_length": 96}


@pytest.fixture
def tiny() -> Totem:
    return Totem.new_example(TINY, seed=0)


def convolved(x: np.ndarray, layer: Any, stride: int, padding: int) -> np.ndarray:
    """A 1-D convolution, [channel, step], by its sum."""
    weight = layer.weight.detach().double().numpy()
    bias = np.zeros(len(weight)) if layer.bias is None else layer.bias.detach().double().numpy()
    padded = np.pad(x, ((0, 0), (padding, padding)))
    size = weight.shape[2]
    steps = range(0, padded.shape[1] - size + 1, stride)
    return np.array(
        [[(weight[o] * padded[:, t : t + size]).sum() + bias[o] for t in steps] for o in range(len(weight))]
    )


def encoded(vqvae: Any, steps: np.ndarray) -> np.ndarray:
    """What stands for every four steps, [T, c], by loops."""
    x = steps[None]
    for layer in vqvae.down:
        x = np.maximum(convolved(x, layer, 2, 1), 0)
    x = convolved(x, vqvae.narrow, 1, 1)
    for residual in vqvae.narrow_residuals:
        inner = convolved(np.maximum(x, 0), residual.inner, 1, 1)
        x = x + convolved(np.maximum(inner, 0), residual.outer, 1, 0)
    return convolved(np.maximum(x, 0), vqvae.to_code, 1, 0).T


def test_codes_are_the_nearest_vectors_of_convolutions_written_out(tiny: Totem, windows: Make) -> None:
    made = windows(count=4, context=24, horizon=8)
    made.context[1, :10] = np.nan
    made.context[2, 5] = np.nan
    tokens = tiny.tokenize(made)
    book = tiny.network.vqvae.codebook.weight.detach().double().numpy()
    for w, context in enumerate(made.context.astype(np.float64)):
        scaled = np.nan_to_num((context - np.nanmean(context)) / np.nanstd(context))
        given = encoded(tiny.network.vqvae, scaled)
        wanted = [int(((book - one) ** 2).sum(axis=1).argmin()) for one in given]
        assert tokens.arrays["codes"][w].tolist() == wanted
        found = tiny.network.vqvae.quantise(torch.from_numpy(scaled[None]).float()).encoded[0]
        np.testing.assert_allclose(found.detach(), given, atol=1e-5)
    assert len(np.unique(tokens.arrays["codes"])) > 1
    assert tokens.types["encoder"].tolist() == tokens.arrays["codes"].tolist()
    padding, seen = TokenKind.PADDING, TokenKind.OBSERVATION
    assert tokens.kinds["encoder"].tolist() == [[seen] * 6, [padding] * 2 + [seen] * 4, [seen] * 6, [seen] * 6]


def test_decoding_doubles_the_length_twice_by_the_sums_of_a_transposed_convolution(tiny: Totem) -> None:
    vqvae = tiny.network.vqvae
    codes = np.random.default_rng(0).normal(size=(3, 5))
    x = convolved(codes.T, vqvae.from_code, 1, 1)
    for residual in vqvae.wide_residuals:
        inner = convolved(np.maximum(x, 0), residual.inner, 1, 1)
        x = x + convolved(np.maximum(inner, 0), residual.outer, 1, 0)
    for layer in vqvae.up:
        x = np.maximum(x, 0)
        weight = layer.weight.detach().double().numpy()  # [in, out, 4]
        out = np.zeros((weight.shape[1], 2 * x.shape[1] + 2))
        for step in range(x.shape[1]):
            out[:, 2 * step : 2 * step + 4] += np.einsum("i,iok->ok", x[:, step], weight)
        x = out[:, 1:-1] + layer.bias.detach().double().numpy()[:, None]
    found = vqvae.decode(torch.from_numpy(codes[None]).float())
    assert found.shape == (1, 12)
    np.testing.assert_allclose(found[0].detach(), x[0], atol=1e-5)


def test_blocks_are_those_of_torchs_transformer_encoder(tiny: Totem, windows: Make) -> None:
    network: TotemNetwork = tiny.network
    made = windows(count=3, context=24, horizon=8)
    tokens = tiny.tokenize(made)
    states = {s.layer: torch.from_numpy(s.states) for s in tiny.hidden_states(tokens)}
    assert sorted(states) == [0, 1, 2]
    for layer, block in enumerate(network.encoder, start=1):
        theirs = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True)
        projections = (block.q, block.k, block.v)
        theirs.load_state_dict(
            {
                "self_attn.in_proj_weight": torch.cat([one.weight for one in projections]),
                "self_attn.in_proj_bias": torch.cat([one.bias for one in projections]),
                "self_attn.out_proj.weight": block.o.weight, "self_attn.out_proj.bias": block.o.bias,
                "linear1.weight": block.mlp_in.weight, "linear1.bias": block.mlp_in.bias,
                "linear2.weight": block.mlp_out.weight, "linear2.bias": block.mlp_out.bias,
                "norm1.weight": block.attention_norm.weight, "norm1.bias": block.attention_norm.bias,
                "norm2.weight": block.mlp_norm.weight, "norm2.bias": block.mlp_norm.bias,
            }
        )  # fmt: skip
        torch.testing.assert_close(theirs(states[layer - 1]), states[layer], atol=1e-5, rtol=1e-5)


def test_layer_0_is_the_codebook_widened_with_sines_and_cosines(tiny: Totem, windows: Make) -> None:
    tokens = tiny.tokenize(windows(count=2, context=24, horizon=8))
    first = next(iter(tiny.hidden_states(tokens)))
    network = tiny.network
    with torch.no_grad():
        vectors = network.widen(network.vqvae.codebook(torch.from_numpy(tokens.arrays["codes"]).long()))
    rates = 10_000.0 ** (-np.arange(0, 8, 2) / 8)
    for place in range(6):
        wave = [f(place * rate) for rate in rates for f in (np.sin, np.cos)]
        np.testing.assert_allclose(first.states[:, place], vectors[:, place] + torch.tensor(wave), atol=1e-5)
        np.testing.assert_allclose(positions(6, 8)[place], wave, atol=1e-6)


def test_a_code_as_wide_as_the_states_is_not_widened() -> None:
    assert not list(Totem.new(TINY | {"code_width": 8}, seed=0).network.widen.parameters())


@pytest.mark.parametrize("horizon", [3, 8, 20])
def test_the_forecast_is_one_point_read_off_all_last_states(tiny: Totem, windows: Make, horizon: int) -> None:
    made = windows(count=3, context=24, horizon=horizon)
    found = tiny.forecast(made, seeds=[0, 1, 2]).values
    assert (found == found[:, :1]).all()  # every quantile
    history = made.context.astype(np.float64)
    head = [part.detach().double().numpy() for part in (tiny.network.head.weight, tiny.network.head.bias)]
    for start in range(0, horizon, 8):
        past = history[:, -24:]
        loc, scale = past.mean(axis=1, keepdims=True), past.std(axis=1, keepdims=True)
        scaled = torch.from_numpy((past - loc) / scale).float()
        with torch.no_grad():
            last = tiny.network.encode(tiny.network.vqvae.quantise(scaled).ids).double().numpy()
        step = (last.reshape(3, -1) @ head[0].T + head[1]) * scale + loc
        np.testing.assert_allclose(found[:, 4, start : start + 8], step[:, : horizon - start], rtol=1e-4, atol=1e-4)
        history = np.concatenate((history, step), axis=1)


def test_the_loss_is_the_sum_of_its_four_parts_and_missing_steps_weigh_nothing(tiny: Totem, windows: Make) -> None:
    made = windows(count=3, context=24, horizon=8)
    made.context[0, :9] = np.nan
    made.context[1, 3] = np.nan
    made.future[2, 4:] = np.nan
    loss = tiny.loss(torch.from_numpy(made.context), torch.from_numpy(made.future)).item()
    context, future = made.context.astype(np.float64), made.future.astype(np.float64)
    loc, scale = np.nanmean(context, axis=1, keepdims=True), np.nanstd(context, axis=1, keepdims=True)
    seen = ~np.isnan(context)
    scaled = np.where(seen, (context - loc) / scale, 0.0)
    network = tiny.network
    with torch.no_grad():
        ids, codes, given = network.vqvae.quantise(torch.from_numpy(scaled).float())
        decoded = network.vqvae.decode(codes).double().numpy()
        errors = np.abs(network(ids).double().numpy() - (future - loc) / scale)
    apart = (codes - given).double().numpy() ** 2
    cells = seen.reshape(3, 6, 4).any(axis=-1)
    rough = np.where(errors < 0.1, errors**2 / 0.2, errors - 0.05)
    wanted = np.nanmean(rough) + ((decoded - scaled) ** 2)[seen].mean() + (1 + 0.25) * apart[cells].mean()
    assert loss == pytest.approx(wanted, rel=1e-4)


def test_the_forecaster_moves_nothing_of_the_vqvae_and_the_reconstruction_moves_its_encoder(
    tiny: Totem, windows: Make
) -> None:
    made = windows(count=3, context=24, horizon=8)
    network = tiny.network
    network(torch.from_numpy(tiny.tokenize(made).arrays["codes"]).long()).sum().backward()
    assert all(parameter.grad is None for parameter in network.vqvae.parameters())
    assert network.head.weight.grad is not None
    tiny.loss(torch.from_numpy(made.context), torch.full((3, 8), torch.nan)).backward()  # nothing to forecast
    assert float(network.vqvae.down[0].weight.grad.abs().max()) > 0  # through the choice of a code
    with pytest.raises(ValueError, match="got 7 steps, expected prediction_length 8"):
        tiny.loss(torch.from_numpy(made.context), torch.from_numpy(made.future[:, :7]))


def test_codes_that_are_not_used_are_placed_on_what_is_given_and_others_stay(tiny: Totem) -> None:
    vqvae = tiny.network.vqvae
    vqvae.usage.copy_(torch.tensor([1.0, 0.01, 1.0, 1.0, 1.0, 0.0]))
    before = vqvae.codebook.weight.detach().clone()
    given = before[[0, 0, 2, 3]] + 1e-6  # codes 1 and 5 are far from all
    vqvae.restart_unused_codes(given)
    after = vqvae.codebook.weight.detach()
    assert torch.equal(after[[0, 2, 3, 4]], before[[0, 2, 3, 4]])
    for code in (1, 5):
        assert (given - after[code]).abs().sum(dim=1).min() == 0
    used = 0.98 * np.array([1, 1, 1]) + 0.02 * np.array([2, 1, 1]) * 6 / 4
    np.testing.assert_allclose(vqvae.usage[[0, 2, 3]], used[[0, 1, 2]], rtol=1e-6)
    assert vqvae.usage[[1, 5]].tolist() == [1.0, 1.0]


def test_only_training_places_codes(tiny: Totem, windows: Make) -> None:
    made = windows(count=3, context=24, horizon=8)
    book = tiny.network.vqvae.codebook.weight
    batch = torch.from_numpy(made.context), torch.from_numpy(made.future)
    before = book.detach().clone()
    tiny.loss(*batch)
    assert torch.equal(book, before)
    tiny.network.train()
    tiny.network.vqvae.usage.zero_()
    tiny.loss(*batch)
    assert not torch.equal(book, before)
    last, used = book.detach().clone(), tiny.network.vqvae.usage.clone()
    tiny.loss(torch.full((3, 24), torch.nan), batch[1])  # nothing to place them on
    assert torch.equal(book, last) and torch.equal(tiny.network.vqvae.usage, used)


def test_the_papers_shape_is_the_default_and_is_saved_in_full(tmp_path: Path) -> None:
    family = Totem.new(SHAPE, seed=0)
    vqvae = family.network.vqvae
    assert vqvae.codebook.weight.shape == (256, 64)
    assert [tuple(layer.weight.shape) for layer in vqvae.down] == [(64, 1, 4), (128, 64, 4)]
    assert family.network.head.weight.shape == (96, 24 * 64)
    assert not list(family.network.widen.parameters())
    weights = list(family.weights())
    assert len(weights) == 4 * 6 and {w.heads for w in weights if w.attention} == {4}
    family.save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert {**SHAPE, **DEFAULTS}.items() <= config.items()
    first, second = (one.network.state_dict() for one in (family, Totem.load(tmp_path)))
    assert all(torch.equal(first[name], second[name]) for name in first)
