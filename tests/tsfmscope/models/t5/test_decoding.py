"""Steps of a T5 decoder and its encoder against transformers' own forward pass, at any width of the heads."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from chronos import ChronosPipeline
from chronos.chronos import ChronosModel

from tsfmscope.models import t5_decoding
from tsfmscope.models.chronos import PAD, ChronosT5
from tsfmscope.models.common.attention import Widths
from tsfmscope.models.common.layers import LowRank, put_product
from tsfmscope.series.types import Windows

Make = Callable[..., Windows]
CONFIG: dict[str, Any] = {
    "d_model": 16,
    "d_ff": 24,
    "d_kv": 6,
    "num_heads": 3,
    "num_layers": 2,
    "num_decoder_layers": 2,
}
CONFIG |= {"n_tokens": 128, "context_length": 48, "prediction_length": 12, "initializer_factor": 1.0}
SAMPLES, STEPS = 4, 6


def narrow(key: int, value: int, *, bias: bool = False) -> ChronosT5:
    """Heads of other widths in every layer, some with biases."""
    model = ChronosT5.new(CONFIG, seed=1)
    rng = np.random.default_rng(0)
    for number, layer in enumerate(model.attentions()):
        full = layer.read()
        made = full.slice_heads(Widths(min(key + number % 2, 6), value))
        if bias and number % 2:
            made = made._replace(
                q_bias=rng.normal(size=made.q.shape[:2]),
                k_bias=rng.normal(size=made.k.shape[:2]),
                v_bias=rng.normal(size=made.v.shape[:2]),
                o_bias=rng.normal(size=16),
            )
        layer.write(made)
    return model


def factored(*, bias: bool = False) -> ChronosT5:
    """Every matrix of attention as two thin factors, wide heads but for their rank."""
    model = narrow(6, 6, bias=bias)
    rng = np.random.default_rng(1)
    for number, layer in enumerate(model.attentions()):
        for what in ("q", "k", "v", "o"):
            rows, columns = layer.linear(what).weight.shape
            rank = 2 + number % 3
            put_product(layer, what, rng.normal(size=(rows, rank)) / 4, rng.normal(size=(rank, columns)) / 2)
    return model


def gated() -> ChronosT5:
    """An MLP of another kind, and untied ids, whose logits are not scaled."""
    from transformers import T5ForConditionalGeneration

    model = ChronosT5.new(CONFIG, seed=1)
    config = type(model.network.config).from_dict(
        {**model.network.config.to_dict(), "feed_forward_proj": "gated-gelu", "scale_decoder_outputs": False}
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        return ChronosT5(T5ForConditionalGeneration(config))


MODELS: dict[str, Callable[[], ChronosT5]] = {
    "full": lambda: narrow(6, 6),
    "narrow": lambda: narrow(2, 2),
    "values wider": lambda: narrow(1, 6),
    "keys wider": lambda: narrow(5, 1),
    "biases": lambda: narrow(3, 4, bias=True),
    "factors": factored,
    "factors, biases": lambda: factored(bias=True),
    "gated MLP": gated,
}


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> ChronosT5:
    return MODELS[request.param]()


def inputs(model: ChronosT5, made: Windows, gaps: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and mask of the encoder."""
    if gaps:
        made.context[1, :9] = np.nan
        made.context[2:3] = np.nan
    arrays = model.tokenize(made).arrays
    return torch.from_numpy(arrays["ids"]).long(), torch.from_numpy(arrays["mask"])


def stepped(model: ChronosT5, ids: torch.Tensor, mask: torch.Tensor, forced: torch.Tensor) -> torch.Tensor:
    """Logits [W, S, H, V] of our decoder, fed these ids [W, S, H]."""
    seen = []

    def choose(logits: torch.Tensor, step: int) -> torch.Tensor:
        seen.append(logits.clone())
        return forced[:, :, step].to(logits.device)

    with torch.inference_mode():
        t5_decoding.walk(t5_decoding.StepDecoder(model.network, ids, mask, SAMPLES, STEPS), choose)
    return torch.stack(seen, dim=2)


def drawn(count: int) -> torch.Tensor:
    return torch.randint(0, 128, (count, SAMPLES, STEPS), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("count", "gaps"), [(2, False), (2, True), (3, False), (3, True)])
def test_logits_are_those_of_transformers_at_any_width(model: ChronosT5, windows: Make, count: int, gaps: bool) -> None:
    """The paths of two windows are few enough to be multiplied as rows; those of three are not."""
    assert 2 * SAMPLES <= t5_decoding.FEW_PATHS < 3 * SAMPLES
    ids, mask = inputs(model, windows(count=count), gaps)
    forced = drawn(count)
    ours = stepped(model, ids, mask, forced)
    for sample in range(SAMPLES):
        read = torch.cat((torch.full((count, 1), PAD), forced[:, sample, :-1]), dim=1)
        with torch.inference_mode():
            theirs = model.network(input_ids=ids, attention_mask=mask, decoder_input_ids=read).logits
        torch.testing.assert_close(ours[:, sample], theirs, rtol=0, atol=1e-4 * theirs.abs().max().item())


@pytest.mark.parametrize("tokens", [1, 100, 10**6])
def test_encoded_states_are_those_of_transformers_however_many_windows_at_once(
    model: ChronosT5, windows: Make, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(t5_decoding, "TOKENS", tokens)
    ids, mask = inputs(model, windows(count=5), gaps=True)
    with torch.inference_mode():
        parts = list(t5_decoding.encode(model.network.encoder, ids, mask))
        theirs = model.network.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
    assert len(parts) == {1: 5, 100: 3, 10**6: 1}[tokens]
    torch.testing.assert_close(torch.cat([states for _, states in parts]), theirs, rtol=0, atol=1e-5)


def test_caches_hold_what_the_heads_need(windows: Make) -> None:
    """Keys and values at their widths, cross ones once a window."""
    model = narrow(5, 2)
    ids, mask = inputs(model, windows(count=3), gaps=False)
    with torch.inference_mode():
        decoder = t5_decoding.StepDecoder(model.network, ids, mask, SAMPLES, STEPS)
    read = [(layer.kind, layer.read().widths) for layer in model.attentions() if layer.stack == "decoder"]
    own = sum(sum(widths) * 3 * SAMPLES * STEPS * 3 for kind, widths in read if kind == "self")
    cross = sum(sum(widths) * 3 * ids.shape[1] * 3 for kind, widths in read if kind == "cross")
    assert sum(part.numel() for part in decoder.caches) == own + cross


@pytest.mark.parametrize("bias", [True, False])
def test_factors_are_not_multiplied_out_while_paths_are_drawn(
    windows: Make, monkeypatch: pytest.MonkeyPatch, bias: bool
) -> None:
    """Their product costs more than it is worth at every step; as a dense matrix it draws the same paths."""
    model, made = factored(bias=bias), windows(count=2, horizon=6)
    dense = copy.deepcopy(model)
    for layer in dense.attentions():
        layer.write(layer.read())
    reads, product = [], LowRank.weight

    def counted(one: LowRank) -> torch.Tensor:
        reads.append(one)
        return product.__get__(one)

    def draw(which: ChronosT5) -> np.ndarray:
        return which.forecast(made, levels=(0.1, 0.5, 0.9), samples=20, seeds=[5, 6]).values

    monkeypatch.setattr(LowRank, "weight", property(counted))
    found = draw(model)
    assert not reads
    assert next(iter(model.attentions())).linear("q").weight.shape == (18, 16) and len(reads) == 1, "reads are seen"
    assert not any(isinstance(one, LowRank) for one in dense.network.modules())
    np.testing.assert_allclose(found, draw(dense), rtol=1e-5, atol=1e-5)


def test_narrow_heads_have_the_quantiles_of_the_package(windows: Make) -> None:
    """The package samples through transformers' generate."""
    model, count, levels = narrow(2, 4), 1500, (0.1, 0.25, 0.5, 0.75, 0.9)
    made = windows(count=2, horizon=6)
    pipeline = ChronosPipeline(model.chronos.create_tokenizer(), ChronosModel(model.chronos, model.network))
    torch.manual_seed(0)
    theirs = pipeline.predict(torch.from_numpy(made.context), 6, num_samples=count).numpy()
    ours = model.forecast(made, levels=levels, samples=count, seeds=[5, 6]).values
    assert (theirs.std(axis=1) > 0).all(), "one value would prove nothing"
    room = 4.5 * np.sqrt(2 * 0.25 / count)
    scale = model.tokenize(made).arrays["scale"][:, None, None]
    for index, level in enumerate(levels):
        quantile = ours[:, index][:, None]
        assert ((theirs < quantile - 1e-4 * scale).mean(axis=1) <= level + room).all()
        assert ((theirs <= quantile + 1e-4 * scale).mean(axis=1) >= level - room).all()


@pytest.mark.gpu
def test_logits_on_a_gpu_are_those_of_the_cpu(model: ChronosT5, windows: Make) -> None:
    ids, mask = inputs(model, windows(count=3), gaps=True)
    expected = stepped(model, ids, mask, drawn(3))
    try:
        model.network.to("cuda")
        found = stepped(model, ids.to("cuda"), mask.to("cuda"), drawn(3)).cpu()
    finally:
        model.network.to("cpu")
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4 * expected.abs().max().item())
