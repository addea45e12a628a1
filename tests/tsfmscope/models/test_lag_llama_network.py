"""Against numpy, written out from science.md, section 8, and against gluonts where it defines something."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tsfmscope.models.common.attention import Projections
from tsfmscope.models.lag_llama import LAGS
from tsfmscope.models.lag_llama_network import (
    LagLlamaNetwork,
    RMSNorm,
    StudentTHead,
    rotary_angles,
    rotate,
    standardise,
)
from tsfmscope.series.calendar import FEATURES

HEADS, WIDTH, STEPS = 3, 4, 7  # heads, their width, tokens


def numbers(module: torch.nn.Module) -> dict[str, np.ndarray]:
    return {name: value.detach().double().numpy() for name, value in module.state_dict().items()}


def rms_twin(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + 1e-5) * scale


def turned_twin(head: np.ndarray, position: float) -> np.ndarray:
    """Coordinates i and i + d/2 of one head as a complex number, turned by position * 10000^(-2i/d)."""
    half = len(head) // 2
    angle = position * 10_000.0 ** (-2 * np.arange(half) / len(head))
    pairs = (head[:half] + 1j * head[half:]) * np.exp(1j * angle)
    return np.concatenate([pairs.real, pairs.imag])


def heads_of(w: dict[str, np.ndarray]) -> Projections:
    """Return a block's weights head by head; keys and values are one matrix in a file."""
    q, both, o = (w[f"attn.{name}.weight"] for name in ("q_proj", "kv_proj", "c_proj"))
    q, k, v = (part.reshape(HEADS, WIDTH, -1) for part in (q, *np.split(both, 2)))
    return Projections(q, k, v, np.moveaxis(o.reshape(len(o), HEADS, WIDTH), 1, 0))


def block_twin(x: np.ndarray, w: dict[str, np.ndarray], heads: Projections | None = None) -> np.ndarray:
    """Return one block of x [T, d], token by token and head by head; `heads`: by default those of the weights."""
    heads = heads or heads_of(w)
    normed = rms_twin(x, w["rms_1.scale"])
    out = np.tile(0.0 if heads.o_bias is None else heads.o_bias, (len(x), 1)) + np.zeros_like(x)
    for head, (q, k, v, o) in enumerate(zip(*heads[:4], strict=True)):
        queries, keys, values = normed @ q.T, normed @ k.T, normed @ v.T
        values += 0.0 if heads.v_bias is None else heads.v_bias[head]
        for t in range(len(x)):
            query = turned_twin(queries[t], t)
            scores = np.array([query @ turned_twin(keys[s], s) for s in range(t + 1)]) / np.sqrt(len(query))
            chances = np.exp(scores - scores.max())
            out[t] += o @ (chances / chances.sum() @ values[: t + 1])
    x = x + out
    normed = rms_twin(x, w["rms_2.scale"])
    gate = normed @ w["mlp.c_fc1.weight"].T
    inner = gate / (1 + np.exp(-gate)) * (normed @ w["mlp.c_fc2.weight"].T)
    return x + inner @ w["mlp.c_proj.weight"].T


def network(seed: int = 0, layers: int = 2) -> LagLlamaNetwork:
    torch.manual_seed(seed)
    made = LagLlamaNetwork(inputs=10, layers=layers, heads=HEADS, head_width=WIDTH)
    for name, value in made.named_parameters():
        if name.endswith("scale"):
            torch.nn.init.uniform_(value, 0.5, 1.5)  # ones would hide a scale that is left out
    return made


def test_the_network_is_its_numpy_twin() -> None:
    made = network()
    x = np.random.default_rng(1).normal(size=(STEPS, 10))
    with torch.no_grad():
        df, loc, scale = (part[0].numpy() for part in made(torch.from_numpy(x).float()[None]))
    w = numbers(made)
    states = x @ w["transformer.wte.weight"].T + w["transformer.wte.bias"]
    for block in made.blocks:
        states = block_twin(states, numbers(block))
    states = rms_twin(states, w["transformer.ln_f.scale"])
    raw = [states @ w[f"param_proj.proj.{i}.weight"][0] + w[f"param_proj.proj.{i}.bias"][0] for i in range(3)]
    np.testing.assert_allclose(df, 2 + np.log1p(np.exp(raw[0])), rtol=1e-4)
    np.testing.assert_allclose(loc, raw[1], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(scale, np.log1p(np.exp(raw[2])), rtol=1e-4)


@pytest.mark.parametrize("width", [144, 64, 48])
def test_the_mlp_is_as_wide_as_the_release_makes_it(width: int) -> None:
    mlp = LagLlamaNetwork(inputs=1, layers=1, heads=1, head_width=width).blocks[0].mlp
    assert mlp.c_fc1.weight.shape == ({144: 512, 64: 256, 48: 256}[width], width)


def test_the_head_never_has_a_scale_of_zero_nor_two_degrees_of_freedom() -> None:
    head = StudentTHead(1)
    with torch.no_grad():
        for part in head.proj:
            part.weight.fill_(1.0)
            part.bias.fill_(0.0)
        df, _, scale = head(torch.tensor([[-200.0], [0.0]]))
    assert scale[0] == torch.finfo(torch.float32).eps
    assert df.tolist() == pytest.approx([2.0, 2 + np.log(2)])


@pytest.mark.parametrize(("width", "factor"), [(16, 1.0), (16, 3.25), (4, 2.0)])
def test_rotation_is_the_closed_form(width: int, factor: float) -> None:
    heads = np.random.default_rng(0).normal(size=(50, width))
    cos, sin = rotary_angles(50, width, factor, torch.device("cpu"))
    got = rotate(torch.from_numpy(heads).float(), cos, sin).numpy()
    want = np.stack([turned_twin(head, place / factor) for place, head in enumerate(heads)])
    np.testing.assert_allclose(got, want, atol=1e-5)


def test_a_norm_of_huge_states_is_finite() -> None:
    assert RMSNorm(4)(torch.full((1, 4), 1e17))[0].tolist() == pytest.approx([1.0] * 4)


values = st.one_of(st.floats(-1e6, 1e6, width=32), st.just(float("nan")))


@settings(max_examples=100, deadline=None)
@given(st.lists(values, min_size=1, max_size=30), st.sampled_from([1.0, 2.0**100]), st.sampled_from(["zero", "median"]))
def test_scaling_is_that_of_numpy(series: list[float], factor: float, missing: str) -> None:
    x = np.array(series, dtype=np.float32)
    got = standardise(torch.from_numpy(x)[None], torch.tensor([factor], dtype=torch.float64), missing)
    seen = np.sort(x[~np.isnan(x)])
    loc = float(seen[(len(seen) - 1) // 2]) if len(seen) else 0.0
    spread = float(np.subtract(*np.quantile(seen.astype(float), [0.75, 0.25]))) * factor if len(seen) else 1.0
    scale = max(spread, 1e-10)
    # the quartiles are interpolated in float32: their difference is as exact as they are
    margin = 1e-6 * float(np.abs(seen).max(initial=0.0))
    assert got.loc[0] == loc
    assert float(got.scale[0]) == pytest.approx(scale / factor, rel=1e-5, abs=margin + 1.2e-38)
    filled = np.where(np.isnan(x), loc if missing == "median" else 0.0, x).astype(float)
    want = np.clip((filled - loc) / float(got.scale[0]), -(2.0**50), 2.0**50)
    np.testing.assert_allclose(got.steps[0], want, rtol=1e-5, atol=1e-30)
    assert got.static[0, 0] == pytest.approx(np.log1p(abs(loc * factor)), rel=1e-6)
    if margin < 0.01 * scale / factor:
        assert got.static[0, 1] == pytest.approx(np.log(scale), rel=1e-3, abs=1e-3)
    assert all(bool(torch.isfinite(part).all()) for part in got)


def test_lags_and_time_features_are_those_of_gluonts() -> None:
    from gluonts.time_feature import get_lags_for_frequency, time_features_from_frequency_str

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # pandas renamed Q, M, H, T and S
        found = {lag - 1 for freq in "QMWDHTS" for lag in get_lags_for_frequency(freq, num_default_lags=1)}
        times = [feature.__name__ for feature in time_features_from_frequency_str("S")]
    assert tuple(sorted(found)) == LAGS
    assert (len(LAGS), LAGS[-1], len(times)) == (84, 1092, FEATURES)
