"""Logits, caches and samples of the step-by-step decoder against transformers; `ts.fast` against the stock pipeline."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from chronos import ChronosPipeline
from chronos.chronos import ChronosModel
from scipy.stats import ks_2samp
from transformers import GPT2Config, GPT2LMHeadModel

import tsfmscope as ts
from tests.tsfmscope.models.families import example_model
from tsfmscope.models import t5_decoding as sampling
from tsfmscope.models.chronos import PAD, ChronosT5
from tsfmscope.models.common.attention import Widths
from tsfmscope.models.common.layers import LowRank, put_product
from tsfmscope.series.types import Windows

Make = Callable[..., Windows]
CONFIG: dict[str, Any] = {"d_model": 16, "d_ff": 24, "d_kv": 6, "num_heads": 3}
CONFIG |= {"num_layers": 2, "num_decoder_layers": 2}
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
        sampling.walk(sampling.StepDecoder(model.network, ids, mask, SAMPLES, STEPS), choose)
    return torch.stack(seen, dim=2)


def drawn(count: int) -> torch.Tensor:
    return torch.randint(0, 128, (count, SAMPLES, STEPS), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("count", "gaps"), [(2, False), (2, True), (3, False), (3, True)])
def test_logits_are_those_of_transformers_at_any_width(model: ChronosT5, windows: Make, count: int, gaps: bool) -> None:
    """The paths of two windows are few enough to be multiplied as rows; those of three are not."""
    assert 2 * SAMPLES <= sampling.FEW_PATHS < 3 * SAMPLES
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
    monkeypatch.setattr(sampling, "TOKENS", tokens)
    ids, mask = inputs(model, windows(count=5), gaps=True)
    with torch.inference_mode():
        parts = list(sampling.encode(model.network.encoder, ids, mask))
        theirs = model.network.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
    assert len(parts) == {1: 5, 100: 3, 10**6: 1}[tokens]
    torch.testing.assert_close(torch.cat([states for _, states in parts]), theirs, rtol=0, atol=1e-5)


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


def test_caches_hold_what_the_heads_need(windows: Make) -> None:
    """Keys and values at their widths, cross ones once a window."""
    model = narrow(5, 2)
    ids, mask = inputs(model, windows(count=3), gaps=False)
    with torch.inference_mode():
        decoder = sampling.StepDecoder(model.network, ids, mask, SAMPLES, STEPS)
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


STOCK = CONFIG | {"n_tokens": 64, "context_length": 40, "prediction_length": 8}
SETTINGS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.6},
    {"temperature": 1.7, "top_k": 5},
    {"top_p": 0.7},
    {"temperature": 1.3, "top_k": 20, "top_p": 0.85},
    # Neither leaves an id out.
    {"top_k": 0, "top_p": 1.0},
]
# Points of an even grid of uniform numbers: the share of an id among the draws is within 1/GRID of its probability.
GRID = 10_000


@pytest.fixture(scope="module")
def stock() -> ChronosPipeline:
    pipeline = ChronosT5.new(STOCK, seed=3).stock_model()
    pipeline.model.model.eval()
    return pipeline


@pytest.fixture(scope="module")
def context() -> torch.Tensor:
    """Three series: one whole, one with padding, one with gaps."""
    values = torch.from_numpy(np.random.default_rng(0).normal(size=(3, 30)).cumsum(axis=1).astype(np.float32))
    values[1, :12], values[2, 5:9] = torch.nan, torch.nan
    return values


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_next_id_has_the_distribution_of_the_stock_pipeline(
    stock: ChronosPipeline, context: torch.Tensor, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both follow the most likely ids; at every step, the probabilities that they sample from are compared."""
    expected, found = [], []

    def take_largest(probabilities: torch.Tensor, num_samples: int) -> torch.Tensor:
        expected.append(probabilities.clone())
        return probabilities.argmax(dim=-1, keepdim=True)

    def record(logits: torch.Tensor, uniforms: torch.Tensor, warp: sampling.Warp) -> torch.Tensor:
        grid = ((torch.arange(GRID, dtype=torch.float64) + 0.5) / GRID).expand(len(logits), -1)
        drawn = draw(logits.expand(-1, GRID, -1).clone(), grid, warp)
        counts = torch.nn.functional.one_hot(drawn, logits.shape[-1]).sum(dim=1)
        found.append(counts / GRID)
        return draw(logits, uniforms, warp)

    draw = sampling.draw
    with monkeypatch.context() as patch:
        patch.setattr(torch, "multinomial", take_largest)
        theirs = stock.predict(context, num_samples=1, **settings)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "rand", torch.zeros)
        patch.setattr(sampling, "draw", record)
        ours = ts.fast(stock).predict(context, num_samples=1, **settings)
    torch.testing.assert_close(ours, theirs)
    assert len(found) == len(expected) == 8
    for step, (frequency, probability) in enumerate(zip(found, expected, strict=True)):
        torch.testing.assert_close(
            frequency, probability, atol=1.5 / GRID, rtol=1e-5, msg=lambda text, s=step: f"{s}: {text}"
        )


@pytest.mark.parametrize("greedy", [{"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-4}], ids=str)
def test_forecasts_without_chance_are_equal_over_several_rounds(
    stock: ChronosPipeline, context: torch.Tensor, greedy: dict[str, Any]
) -> None:
    """20 steps are three rounds of the model's 8."""
    theirs, ours = (p.predict(context, 20, num_samples=3, **greedy) for p in (stock, ts.fast(stock)))
    torch.testing.assert_close(ours, theirs)
    assert ours.shape == (3, 3, 20) and ours.dtype == torch.float32


def test_every_form_of_input_and_every_method_answers_as_the_stock_pipeline(
    stock: ChronosPipeline, context: torch.Tensor
) -> None:
    fast = ts.fast(stock)
    assert isinstance(fast, ChronosPipeline) and fast.model.model is stock.model.model
    ragged = [context[0], context[1, 12:], context[0, :3].double()]
    for inputs in (context, context[0], ragged, context[:, :1], torch.full((2, 5), torch.nan), torch.zeros(1, 60)):
        theirs, ours = (p.predict(inputs, num_samples=2, top_k=1) for p in (stock, fast))
        torch.testing.assert_close(ours, theirs)
    for options in ({"prediction_length": 5}, {"quantile_levels": [0.25, 0.5]}):
        both = [p.predict_quantiles(context, top_k=1, num_samples=2, **options) for p in (stock, fast)]
        torch.testing.assert_close(both[1], both[0])
    torch.testing.assert_close(fast.embed(context), stock.embed(context))
    # Without arguments: the samples and the steps of the model's config.
    assert fast.predict(context).shape == stock.predict(context).shape == (3, 20, 8)
    assert (fast.model_context_length, fast.model_prediction_length) == (40, 8)


def test_samples_of_both_pass_a_two_sample_test_at_every_step(stock: ChronosPipeline, context: torch.Tensor) -> None:
    """Kolmogorov-Smirnov, 3 series x 8 steps of one round; another temperature fails it, so the test has power.

    Later rounds read the median of the samples, a bin that differs from run to run, also between two stock runs.
    """
    torch.manual_seed(0)
    count, steps = 1000, 8
    theirs = stock.predict(context, num_samples=count)
    ours = ts.fast(stock).predict(context, num_samples=count)
    cooler = ts.fast(stock).predict(context, num_samples=count, temperature=0.6)

    def p_values(samples: torch.Tensor) -> np.ndarray:
        pairs = [(samples[i, :, t], theirs[i, :, t]) for i in range(len(context)) for t in range(steps)]
        return np.array([ks_2samp(a.numpy(), b.numpy()).pvalue for a, b in pairs]).reshape(len(context), steps)

    assert p_values(ours).min() > 1e-3
    assert np.median(p_values(ours)) > 0.1
    assert np.median(p_values(cooler)) < 1e-3


def test_torch_seeds_the_samples_and_the_stock_pipeline_is_not_changed(
    stock: ChronosPipeline, context: torch.Tensor
) -> None:
    def drawn(pipeline: ChronosPipeline) -> torch.Tensor:
        torch.manual_seed(7)
        return pipeline.predict(context, num_samples=4)

    before, fast = drawn(stock), ts.fast(stock)
    torch.testing.assert_close(drawn(fast), drawn(fast))
    assert not torch.equal(drawn(fast), fast.predict(context, num_samples=4))
    assert torch.equal(drawn(stock), before) and type(stock.model) is ChronosModel
    # Copies, and the fast pipeline of a fast one, sample the same.
    torch.testing.assert_close(drawn(pickle.loads(pickle.dumps(fast))), drawn(fast))
    torch.testing.assert_close(drawn(copy.deepcopy(fast)), drawn(ts.fast(fast)))


def test_a_pipeline_in_bfloat16_forecasts(stock: ChronosPipeline, context: torch.Tensor) -> None:
    network = copy.deepcopy(stock.model.model).to(torch.bfloat16)
    half = ChronosPipeline(stock.tokenizer, ChronosModel(stock.model.config, network))
    torch.manual_seed(0)
    theirs, ours = (p.predict(context, num_samples=500) for p in (half, ts.fast(half)))
    assert ours.dtype == theirs.dtype == torch.float32
    for step in (0, 7):
        assert ks_2samp(ours[0, :, step].numpy(), theirs[0, :, step].numpy()).pvalue > 1e-3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.0}, "temperature: got 0.0, expected a number above 0"),
        ({"temperature": -1.0}, "temperature: got -1.0"),
        ({"top_k": -1}, "top_k: got -1, expected at least 1, or 0 for all ids"),
        ({"top_p": -0.1}, r"top_p: got -0.1, expected a number in \[0, 1\]"),
        ({"prediction_length": 9, "limit_prediction_length": True}, "recommend keeping prediction length <= 8"),
    ],
)
def test_what_the_stock_pipeline_refuses_is_refused(
    stock: ChronosPipeline, context: torch.Tensor, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError):
        stock.predict(context, **options)
    with pytest.raises(ValueError, match=message):
        ts.fast(stock).predict(context, **options)


def test_another_object_is_one_clear_type_error() -> None:
    for family, name in (("chronos-bolt", "ChronosBoltPipeline"), ("chronos-2", "Chronos2Pipeline")):
        with pytest.raises(TypeError, match=rf"pipeline: got {name}, expected a chronos\.ChronosPipeline"):
            ts.fast(example_model(family).stock_model())
    with pytest.raises(TypeError, match=r"pipeline: got str, expected a chronos\.ChronosPipeline"):
        ts.fast("amazon/chronos-t5-tiny")  # type: ignore[arg-type]
    settings = ChronosT5.new(STOCK, seed=0).chronos
    causal = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_embd=8, n_layer=1, n_head=1, n_positions=64))
    pipeline = ChronosPipeline(settings.create_tokenizer(), ChronosModel(settings, causal))
    with pytest.raises(TypeError, match="a ChronosPipeline with a GPT2LMHeadModel, expected a T5ForCond"):
        ts.fast(pipeline)
