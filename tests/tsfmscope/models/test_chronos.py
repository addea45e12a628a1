"""Chronos-T5 and Chronos-Bolt against the package and windows worked by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from chronos import BaseChronosPipeline, ChronosBoltPipeline, ChronosPipeline
from chronos.chronos import ChronosModel

from tests.tsfmscope.models.families import CLASSES, hard_windows
from tsfmscope.models.chronos import EOS, PAD, ChronosBolt, ChronosT5
from tsfmscope.models.registry import family_class
from tsfmscope.models.types import TokenKind
from tsfmscope.series.types import Windows

Make = Callable[..., Windows]


def pipeline_of(family: ChronosT5) -> ChronosPipeline:
    tokenizer = family.chronos.create_tokenizer()
    return ChronosPipeline(tokenizer, ChronosModel(family.chronos, family.network))


def test_ids_of_a_window_worked_by_hand(t5: ChronosT5, windows_of: Callable[..., Windows]) -> None:
    made = windows_of(np.array([[np.nan, -2.0, 2.0, 2.0]]), np.array([[2.0, np.nan, 100.0]]))
    tokens = t5.tokenize(made)
    centres = np.linspace(-15, 15, 125)  # mean |x| is 2, so values are -1, 1, 1 and 1, 50: the last id of 128
    low, high = (int(np.abs(centres - x).argmin()) + 3 for x in (-1, 1))
    assert tokens.arrays["ids"].tolist() == [[PAD, low, high, high, EOS]]
    assert tokens.arrays["decoder_ids"].tolist() == [[PAD, high, PAD]]
    assert tokens.types["encoder"].tolist() == tokens.arrays["ids"].tolist()
    assert tokens.kinds["encoder"].tolist() == [[TokenKind.PADDING, *[TokenKind.OBSERVATION] * 3, TokenKind.EOS]]
    assert tokens.kinds["decoder"].tolist() == [[TokenKind.START, TokenKind.FUTURE, TokenKind.PADDING]]


def test_the_loss_is_the_mean_over_ids_that_were_observed(t5: ChronosT5, windows: Make) -> None:
    made = hard_windows(windows(count=6))
    context, future = torch.from_numpy(made.context), torch.from_numpy(made.future)
    tokenizer = t5.chronos.create_tokenizer()
    ids, mask, scale = tokenizer.context_input_transform(context)
    labels, seen = tokenizer.label_input_transform(future, scale)
    total, count = 0.0, 0
    for w in range(len(ids)):
        read = torch.tensor([[PAD, *torch.where(seen[w], labels[w], PAD).tolist()[:-1]]])
        with torch.no_grad():
            logits = t5.network(input_ids=ids[w : w + 1], attention_mask=mask[w : w + 1], decoder_input_ids=read).logits
        for step in range(labels.shape[1]):
            if seen[w, step]:
                total -= torch.log_softmax(logits[0, step].double(), -1)[labels[w, step]].item()
                count += 1
    assert t5.loss(context, future).item() == pytest.approx(total / count, rel=1e-5)


SMALL = {"d_model": 16, "d_ff": 24, "d_kv": 6, "num_heads": 3, "num_layers": 2, "num_decoder_layers": 1}
SMALL |= {"n_tokens": 64, "context_length": 40, "prediction_length": 8, "dropout_rate": 0.0, "initializer_factor": 1.0}


@pytest.mark.parametrize("gaps", [False, True])
def test_windowwise_attention_without_gradients_is_that_of_torch(windows: Make, gaps: bool) -> None:
    made = windows(count=4, context=40, horizon=8)
    if gaps:
        made.context[1, :20], made.context[3, 7] = np.nan, np.nan
    states = {}
    for name in ("windowwise", "sdpa", "eager"):
        family = ChronosT5.new(SMALL, seed=0)
        family.network.encoder.config._attn_implementation = name
        states[name] = [one.states for one in family.hidden_states(family.tokenize(made))]
    for ours, *theirs in zip(states["windowwise"], states["sdpa"], states["eager"], strict=True):
        for one in theirs:
            np.testing.assert_allclose(ours, one, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("gaps", [False, True])
def test_windowwise_attention_has_the_gradients_of_torch(windows: Make, gaps: bool) -> None:
    made = windows(count=4, context=40, horizon=8)
    if gaps:
        made.context[1, :20] = np.nan
    grads = {}
    for name in ("windowwise", "sdpa"):
        family = ChronosT5.new(SMALL, seed=0)
        assert family.network.encoder.config._attn_implementation == "windowwise"
        family.network.encoder.config._attn_implementation = name
        family.loss(torch.from_numpy(made.context), torch.from_numpy(made.future)).backward()
        grads[name] = {n: p.grad for n, p in family.network.named_parameters()}
    for name, grad in grads["sdpa"].items():
        torch.testing.assert_close(grads["windowwise"][name], grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("horizon", [5, 12, 30])
def test_a_greedy_forecast_is_that_of_the_package(windows: Make, horizon: int) -> None:
    config = {"d_model": 16, "d_ff": 24, "d_kv": 6, "num_heads": 3, "num_layers": 2, "num_decoder_layers": 2}
    config |= {"n_tokens": 128, "context_length": 48, "prediction_length": 12, "initializer_factor": 1.0, "top_k": 1}
    family = ChronosT5.new(config, seed=0)
    head = torch.randn(128, 16, generator=torch.Generator().manual_seed(0))
    family.network.lm_head.weight = torch.nn.Parameter(head)  # a tied head repeats the last id
    made = windows(count=4, context=60, horizon=horizon)
    theirs = pipeline_of(family).predict(torch.from_numpy(made.context), horizon, num_samples=3)
    ours = family.forecast(made, levels=(0.1, 0.5, 0.9), samples=3, seeds=[0] * 4)
    assert (theirs[:, 0].diff() != 0).any(dim=1).all(), "a constant forecast would prove nothing"
    for level in range(3):
        np.testing.assert_allclose(ours.values[:, level], theirs[:, 0], rtol=1e-5)


def test_a_window_worked_by_hand(bolt: ChronosBolt, windows_of: Callable[..., Windows]) -> None:
    context = np.r_[np.full(10, np.nan), 1.0, 3.0]  # 12 steps: patches of 8, padded on the left
    tokens = bolt.tokenize(windows_of(context[None], np.zeros((1, 4))))
    assert tokens.arrays["loc"].tolist() == [2.0]
    assert tokens.arrays["scale"].tolist() == [1.0]
    assert tokens.arrays["patches"].tolist() == [[[0.0] * 8, [0.0] * 6 + [-1.0, 1.0]]]
    assert tokens.arrays["masks"].tolist() == [[[False] * 8, [False] * 6 + [True, True]]]
    assert tokens.kinds["encoder"].tolist() == [[TokenKind.PADDING, TokenKind.OBSERVATION, TokenKind.REG]]
    assert tokens.kinds["decoder"].tolist() == [[TokenKind.FUTURE]]
    assert dict(tokens.types) == {}


def test_levels_between_those_of_bolt_are_those_of_the_package(bolt: ChronosBolt, windows: Make) -> None:
    made, levels = hard_windows(windows(count=6, context=60, horizon=12)), (0.25, 0.5, 0.95)
    pipeline = ChronosBoltPipeline(bolt.network)
    theirs, _ = pipeline.predict_quantiles(torch.from_numpy(made.context), 12, quantile_levels=list(levels))
    ours = bolt.forecast(made, levels=levels, seeds=[0] * 6).values
    np.testing.assert_allclose(ours, theirs.permute(0, 2, 1), rtol=1e-4, atol=1e-5)


def test_a_long_forecast_recurs_over_the_quantiles(bolt: ChronosBolt, windows: Make) -> None:
    made = windows(count=2, horizon=20)
    ours = bolt.forecast(made, seeds=[0, 0]).values
    context = torch.from_numpy(made.context)
    with torch.no_grad():
        first = bolt.network(context=context).quantile_preds  # [W, 9, 12]
        for w in range(2):
            paths = torch.stack([torch.cat((context[w], first[w, q]))[-48:] for q in range(9)])
            second = bolt.network(context=paths).quantile_preds.reshape(81, 12).numpy()
            np.testing.assert_allclose(ours[w, :, :12], first[w], rtol=1e-4, atol=1e-5)
            wanted = np.quantile(second, np.arange(1, 10) / 10, axis=0)[:, :8]
            np.testing.assert_allclose(ours[w, :, 12:], wanted, rtol=1e-4, atol=1e-4)


def test_the_loss_is_the_quantile_loss_of_the_scaled_future(bolt: ChronosBolt, windows: Make) -> None:
    made = windows(count=4)
    made.future[1, 2:5] = np.nan
    context, future = torch.from_numpy(made.context), torch.from_numpy(made.future)
    with torch.no_grad():
        predicted = bolt.network(context=context).quantile_preds.double().numpy()
    total = 0.0
    for w in range(4):
        scale = made.context[w].std(dtype=float)
        for q, level in enumerate(np.arange(1, 10) / 10):
            for h in range(12):
                if not np.isnan(made.future[w, h]):
                    gap = (made.future[w, h] - predicted[w, q, h]) / scale
                    total += 2 * max(level * gap, (level - 1) * gap)
    # the package averages over the quantiles and sums over the horizon; missing steps count as 0
    assert bolt.loss(context, future).item() == pytest.approx(total / (4 * 9), rel=1e-4)


@pytest.mark.parametrize(
    ("name", "pipeline", "changes"),
    [
        ("chronos-t5", "ChronosPipeline", {}),
        ("chronos-bolt", "ChronosBoltPipeline", {}),
        ("chronos-bolt", "ChronosBoltPipeline", {"use_reg_token": False}),
        ("chronos-2", "Chronos2Pipeline", {}),
    ],
)
def test_a_saved_model_is_a_pipeline_of_the_package_whose_embedding_is_the_last_encoder_state(
    name: str, pipeline: str, changes: dict[str, Any], windows: Make, tmp_path: Path
) -> None:
    family = CLASSES[name].new({**family_class(name).example, **changes}, seed=2)
    family.save(tmp_path)
    package = BaseChronosPipeline.from_pretrained(tmp_path)
    assert type(package).__name__ == pipeline
    made = windows(count=8, context=60, horizon=8)
    if not changes and name != "chronos-2":
        hard_windows(made)
    context = torch.from_numpy(made.context)
    embedded, scales = package.embed(context[:, None] if name == "chronos-2" else context)
    tokens = family.tokenize(made)
    states = next(layer.states for layer in family.hidden_states(tokens) if layer.normed)
    wanted = torch.cat(embedded) if name == "chronos-2" else embedded
    np.testing.assert_allclose(states, wanted, atol=1e-5 * max(1.0, float(wanted.abs().max())))
    if name != "chronos-t5":
        locs, scales = zip(*scales, strict=True) if name == "chronos-2" else scales
        np.testing.assert_allclose(tokens.arrays["loc"], np.ravel(locs), rtol=1e-6)
        np.testing.assert_allclose(tokens.arrays["scale"], np.ravel(scales), rtol=1e-6)
