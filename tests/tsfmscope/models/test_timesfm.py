"""TimesFM 2.0 and 2.5 against transformers' own modules, and loops written out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.tsfmscope.models.families import shake
from tsfmscope.models.timesfm import TimesFM, TimesFM25, TimesFMFamily
from tsfmscope.models.types import TokenKind
from tsfmscope.series.types import Windows

Make = Callable[..., Windows]
SHAPE: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 24, "head_dim": 6, "num_attention_heads": 2}
SHAPE |= {"num_hidden_layers": 2, "context_length": 48, "horizon_length": 12, "patch_length": 8}
SHAPE |= {"initializer_range": 0.3}
QUANTILES = np.arange(1, 10) / 10


@pytest.fixture(scope="module")
def plain() -> TimesFM:
    return shake(TimesFM.new(SHAPE, seed=3))


@pytest.fixture(scope="module")
def placed() -> TimesFM:
    return shake(TimesFM.new(SHAPE | {"use_positional_embedding": True}, seed=4))


@pytest.fixture(scope="module")
def newer() -> TimesFM25:
    return shake(TimesFM25.new(SHAPE | {"output_quantile_len": 16, "num_key_value_heads": 1}, seed=5))


@pytest.fixture(scope="module")
def bare() -> TimesFM25:
    """Without a quantile head, mirror image and clamp, and with biases."""
    off = dict.fromkeys(("use_continuous_quantile_head", "force_flip_invariance", "infer_is_positive"), False)
    more = {"output_quantile_len": 12, "use_bias": True, "attention_bias": True}
    return shake(TimesFM25.new(SHAPE | more | off, seed=6))


@pytest.fixture(params=["plain", "placed", "newer", "bare"])
def model(request: pytest.FixtureRequest) -> TimesFMFamily:
    found: TimesFMFamily = request.getfixturevalue(request.param)
    return found


def gappy(windows: Windows) -> Windows:
    """Rows with leading gaps, one patch missing, single steps missing, a constant, and a missing end."""
    context = windows.context
    context[0, :7] = np.nan
    context[1, :17] = np.nan
    context[1, -16:-6] = np.nan
    context[2, 1::3] = np.nan
    context[3] = 3.0
    context[4, -2:] = np.nan
    return windows


def as_google_fills(row: np.ndarray) -> np.ndarray:
    """Leading missing steps cut off, the others interpolated: Google's package, before its network."""
    known = np.flatnonzero(~np.isnan(row))
    return np.interp(np.arange(known[0], len(row)), known, row[known]).astype(np.float32)


def theirs(model: TimesFMFamily, windows: Windows, freq: int = 0) -> tuple[list[list[np.ndarray]], np.ndarray]:
    """The package's own run, a window at a time: input and outputs of its layers (first call), and its forecast."""
    layers, known = model._decoder().layers, {"freq": [freq]} if isinstance(model, TimesFM) else {}
    states: list[list[np.ndarray]] = []
    forecasts = []

    def note(module: Any, args: Any, output: Any) -> None:
        if len(states[-1]) <= len(layers):  # a mirror image's run comes after
            kept = [args[0], output] if module is layers[0] else [output]
            states[-1] += [one[0].numpy().copy() for one in kept]

    handles = [layer.register_forward_hook(note) for layer in layers]
    for row in windows.context:
        states.append([])
        with torch.no_grad():
            answer = model.network(past_values=[torch.from_numpy(as_google_fills(row))], **known)
        forecasts.append(answer.full_predictions[0].numpy())
    for handle in handles:
        handle.remove()
    return states, np.stack(forecasts)


@pytest.mark.parametrize("context", [21, 48, 61])
def test_every_layer_and_the_forecast_are_those_of_transformers(
    model: TimesFMFamily, windows: Make, context: int
) -> None:
    made = gappy(windows(count=6, context=context))
    tokens = model.tokenize(made)
    expected, forecast = theirs(model, made)
    layers = list(model.hidden_states(tokens))
    assert [layer.layer for layer in layers] == [0, 1, 2]
    for layer in layers:
        for window in range(6):
            real = ~tokens.arrays["masks"][window].all(axis=1)
            count = int(real.sum())
            got, want = layer.states[window, real], expected[window][layer.layer][-count:]
            np.testing.assert_allclose(got, want, atol=1e-4 * max(1.0, float(np.abs(want).max())))
    ours = model.forecast(made, levels=tuple(QUANTILES), seeds=[0] * 6).values
    for window in range(6):
        want = forecast[window, :, 1:].T
        np.testing.assert_allclose(ours[window], want, atol=1e-4 * max(1.0, float(np.abs(want).max())))


@pytest.mark.parametrize(
    ("freq", "name"), [(0, ""), (0, "30min"), (0, "B"), (1, "W-SUN"), (1, "MS"), (2, "QS"), (2, "YE")]
)
def test_a_frequency_is_read_as_googles_package_reads_it(plain: TimesFM, windows: Make, freq: int, name: str) -> None:
    made = replace(windows(count=2), freq=name)
    assert plain.tokenize(made).arrays["freq"].tolist() == [freq, freq]
    _, forecast = theirs(plain, made, freq)
    ours = plain.forecast(made, levels=tuple(QUANTILES), seeds=[0] * 2).values
    np.testing.assert_allclose(ours, forecast[:, :, 1:].transpose(0, 2, 1), atol=1e-4 * float(np.abs(forecast).max()))


def test_a_model_of_one_frequency_reads_every_series_as_that(windows: Make) -> None:
    one = TimesFM.new(SHAPE | {"freq_size": 1}, seed=0)
    days, years = (one.forecast(replace(windows(), freq=freq), seeds=[0] * 5).values for freq in ("D", "YS"))
    np.testing.assert_array_equal(days, years)


def test_a_window_worked_by_hand(plain: TimesFM, newer: TimesFM25, windows_of: Callable[..., Windows]) -> None:
    # 18 steps are three patches: one observed step, 2..9 of which 3 and 8 are missing, and a constant
    row = np.r_[np.nan, 1.0, 2.0, np.nan, 4.0, 5.0, 6.0, 7.0, np.nan, 9.0, np.full(8, 7.0)]
    made = windows_of(row[None], np.zeros((1, 4)))
    tokens = plain.tokenize(made)
    assert tokens.kinds["decoder"].tolist() == [[TokenKind.OBSERVATION] * 3]
    assert tokens.arrays["masks"][0].sum(axis=1).tolist() == [7, 0, 0]
    assert tokens.arrays["loc"].tolist() == [[5.5] * 3]  # of the first patch with three observed steps
    scale = np.sqrt(np.mean(np.arange(-3.5, 4) ** 2))
    want = np.stack((np.r_[np.zeros(7), -4.5], np.arange(-3.5, 4), np.full(8, 1.5))) / scale
    np.testing.assert_allclose(tokens.arrays["patches"][0], want, rtol=1e-6)
    tokens = newer.tokenize(made)
    values = np.r_[np.arange(1.0, 10), np.full(8, 7.0)]
    for patch, end in enumerate((1, 9, 17)):
        assert tokens.arrays["loc"][0, patch] == pytest.approx(values[:end].mean(), rel=1e-6)
        assert tokens.arrays["scale"][0, patch] == pytest.approx(values[:end].std(), rel=1e-6)
    np.testing.assert_allclose(tokens.arrays["patches"][0, 1], (values[1:9] - 5) / values[:9].std(), rtol=1e-6)
    assert tokens.arrays["patches"][0, 0].tolist() == [0.0] * 8  # one step has no scale, which is 1 then


def test_a_patch_without_an_observed_step_is_padding_also_in_the_middle(model: TimesFMFamily, windows: Make) -> None:
    made = windows(count=2)
    made.context[0, 16:24] = np.nan
    made.context[1] = np.nan
    kinds = model.tokenize(made).kinds["decoder"]
    assert (kinds == TokenKind.PADDING).tolist() == [[False, False, True, False, False, False], [True] * 6]


@pytest.mark.parametrize("name", ["plain", "newer"])
def test_a_long_forecast_appends_the_point_and_goes_on(
    name: str, windows: Make, windows_of: Callable[..., Windows], request: pytest.FixtureRequest
) -> None:
    model = request.getfixturevalue(name)
    made = windows(count=2, horizon=30)
    ours = model.forecast(made, levels=tuple(QUANTILES), seeds=[0, 0]).values
    history, parts, point = made.context, [], 0 if name == "plain" else 5
    for _ in range(3):
        _, full = theirs(model, windows_of(history, made.future))
        parts.append(full[:, :, 1:])
        history = np.concatenate((history, full[:, :, point]), axis=1)
    want = np.concatenate(parts, axis=1)[:, :30].transpose(0, 2, 1)
    np.testing.assert_allclose(ours, want, atol=1e-4 * float(np.abs(want).max()))


def test_levels_between_two_quantiles_lie_on_their_line_and_none_passes_the_last(plain: TimesFM, windows: Make) -> None:
    made = windows()
    known = plain.forecast(made, levels=tuple(QUANTILES), seeds=[0] * 5).values
    ours = plain.forecast(made, levels=(0.05, 0.25, 0.5, 0.95), seeds=[0] * 5).values
    want = np.stack((known[:, 0], (known[:, 1] + known[:, 2]) / 2, known[:, 4], known[:, 8]), axis=1)
    np.testing.assert_allclose(ours, want, rtol=1e-5, atol=1e-5)


def test_a_window_without_a_negative_step_is_forecast_without_one(newer: TimesFM25, windows: Make) -> None:
    made = windows(count=8, seed=3)
    made.context[:4] = np.abs(made.context[:4])
    ours = newer.forecast(made, seeds=[0] * 8).values
    assert (ours[:4] >= 0).all() and (ours[:4] == 0).any()
    assert (ours[4:] < 0).any()


@pytest.mark.parametrize("name", ["plain", "newer"])
def test_the_loss_is_that_of_every_patchs_next_steps(name: str, windows: Make, request: pytest.FixtureRequest) -> None:
    model = request.getfixturevalue(name)
    made = windows(count=3, context=24, horizon=12)
    made.context[0, :9] = np.nan
    made.future[1, 2:5] = np.nan
    total, seen = 0.0, 0
    for past, after in zip(made.context, made.future, strict=True):
        known = np.concatenate((past, after)).astype(float)
        unit = np.nanstd(known)
        first = int(np.flatnonzero(~np.isnan(past))[0])
        for patch in range(first // 8, 3):
            outputs = at_patch(model, past[first : (patch + 1) * 8], first)
            for step in range(12):
                at = (patch + 1) * 8 + step
                if at < len(known) and not np.isnan(known[at]):
                    gaps = (known[at] - outputs[step]) / unit
                    pinball = [max(q * gap, (q - 1) * gap) for q, gap in zip(QUANTILES, gaps[1:], strict=True)]
                    total, seen = total + gaps[0] ** 2 + float(np.mean(pinball)), seen + 1
    got = model.loss(torch.from_numpy(made.context), torch.from_numpy(made.future)).item()
    assert got == pytest.approx(total / seen, rel=1e-4)


def at_patch(model: TimesFMFamily, past: np.ndarray, first: int) -> np.ndarray:
    """Mean and quantiles after the last patch of a past that the package runs by itself: causal, so no later one."""
    network = model.network
    with torch.no_grad():
        if isinstance(model, TimesFM):
            return np.asarray(network(past_values=[torch.from_numpy(past)]).full_predictions[0].numpy())
        network.config.force_flip_invariance = False
        found = network(past_values=[torch.from_numpy(past)], truncate_negative=False).full_predictions[0].numpy()
        network.config.force_flip_invariance = True
    return np.asarray(found)


def test_scores_are_plain_products_of_the_weights_that_are_given(windows: Make) -> None:
    model = TimesFM.new(SHAPE, seed=7)  # new: biases are 0
    with torch.no_grad():
        for layer in model._decoder().layers:
            layer.self_attn.scaling.normal_(generator=torch.Generator().manual_seed(1))
    model.network.set_attn_implementation("eager")
    tokens, found = model.tokenize(windows(count=2)), []
    handles = [
        layer.self_attn.register_forward_hook(lambda module, args, output: found.append(output[1].numpy()))
        for layer in model._decoder().layers
    ]
    given = list(model.attention_inputs(tokens))
    for handle in handles:
        handle.remove()
    weights = {(w.layer, w.name): w.matrix for w in model.weights()}
    for layer, probabilities in zip(given, found, strict=True):
        query, key = (
            (layer.states @ weights[layer.layer, what].T).reshape(2, 6, 2, 6).transpose(0, 2, 1, 3) for what in "qk"
        )
        scores = query @ key.transpose(0, 1, 3, 2)
        scores[..., ~np.tri(6, dtype=bool)] = -np.inf
        want = np.exp(scores - scores.max(axis=-1, keepdims=True))
        np.testing.assert_allclose(probabilities, want / want.sum(axis=-1, keepdims=True), atol=1e-5)
