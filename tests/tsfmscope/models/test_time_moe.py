"""Against the released names and sizes, and a slow definition of the network, token by token, in numpy's float64."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch

from tests.tsfmscope.models.families import shake
from tests.tsfmscope.models.test_lag_llama_network import turned_twin
from tsfmscope.errors import HealthError
from tsfmscope.models import time_moe_network as continuation
from tsfmscope.models.time_moe import Config, TimeMoE
from tsfmscope.models.time_moe_network import SparseExperts, TimeMoENetwork, balance
from tsfmscope.models.types import TokenKind
from tsfmscope.series.types import Windows

Make = Callable[..., Windows]
Weights = Mapping[str, np.ndarray]
SIZE = {"hidden_size": 12, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 3}
SIZE |= {"num_experts": 5, "horizon_lengths": [1, 4, 8], "max_position_embeddings": 64, "initializer_range": 0.4}
RELEASED = {"hidden_size": 384, "intermediate_size": 1536, "num_hidden_layers": 12, "num_attention_heads": 12}
RELEASED_BYTES = 226_760_264  # of Maple728/TimeMoE-50M's model.safetensors: the size in a git-lfs pointer to it


def released_shapes(d: int = 384, inner: int = 1536, layers: int = 12) -> dict[str, tuple[int, ...]]:
    """Names of Time-MoE/Time-MoE, time_moe/models/modeling_time_moe.py, shapes of the 50M config."""
    shapes: dict[str, tuple[int, ...]] = {f"model.embed_layer.{one}_layer.weight": (d, 1) for one in ("emb", "gate")}
    for i in range(layers):
        block = f"model.layers.{i}"
        shapes |= {f"{block}.self_attn.{one}_proj.weight": (d, d) for one in "qkvo"}
        shapes |= {f"{block}.self_attn.{one}_proj.bias": (d,) for one in "qkv"}
        shapes |= {f"{block}.{one}_layernorm.weight": (d,) for one in ("input", "post_attention")}
        shapes |= {f"{block}.ffn_layer.gate.weight": (8, d), f"{block}.ffn_layer.shared_expert_gate.weight": (1, d)}
        for name, width in {**{f"experts.{e}": inner // 2 for e in range(8)}, "shared_expert": inner}.items():
            shapes |= {f"{block}.ffn_layer.{name}.{one}_proj.weight": (width, d) for one in ("gate", "up")}
            shapes[f"{block}.ffn_layer.{name}.down_proj.weight"] = (d, width)
    shapes["model.norm.weight"] = (d,)
    return shapes | {f"lm_heads.{i}.out_layer.weight": (h, d) for i, h in enumerate((1, 8, 32, 64))}


@pytest.fixture(scope="module")
def model() -> TimeMoE:
    return shake(TimeMoE.new(SIZE, seed=3))


# -- the slow definition ----------------------------------------------------------------------------------------------
def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def normed(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return weight * x / np.sqrt((x**2).mean() + 1e-6)


def swiglu(w: Weights, where: str, x: np.ndarray) -> np.ndarray:
    hidden = silu(w[f"{where}.gate_proj.weight"] @ x) * (w[f"{where}.up_proj.weight"] @ x)
    return w[f"{where}.down_proj.weight"] @ hidden


def experts(w: Weights, where: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What the experts answer to one token, and the router's probabilities."""
    logits = w[f"{where}.gate.weight"] @ x
    chances = np.exp(logits) / np.exp(logits).sum()
    best = np.argsort(-chances)[:2]
    routed = sum(chances[e] * swiglu(w, f"{where}.experts.{e}", x) for e in best)
    shared = swiglu(w, f"{where}.shared_expert", x) / (1 + np.exp(-w[f"{where}.shared_expert_gate.weight"] @ x))
    return routed + shared, chances


def slow_states(w: Weights, values: np.ndarray, heads: int = 3) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """States of every layer [T, d], the normed last, and router probabilities [T, E], of one series without padding."""
    embed = "model.embed_layer"
    states = np.stack(
        [
            silu(w[f"{embed}.gate_layer.weight"][:, 0] * v) * (w[f"{embed}.emb_layer.weight"][:, 0] * v)
            for v in values.astype(np.float64)
        ]
    )
    found, routes, width = [states], [], states.shape[1] // heads
    layers = 1 + max(int(name.split(".")[2]) for name in w if name.startswith("model.layers"))
    for layer in range(layers):
        block = f"model.layers.{layer}"
        inputs = [normed(x, w[f"{block}.input_layernorm.weight"]) for x in states]
        q, k, v = (
            [w[f"{block}.self_attn.{n}_proj.weight"] @ x + w[f"{block}.self_attn.{n}_proj.bias"] for x in inputs]
            for n in "qkv"
        )
        after, probabilities = [], []
        for t in range(len(states)):
            mixed = []
            for head in range(heads):
                part = slice(head * width, (head + 1) * width)
                scores = np.array([turned_twin(q[t][part], t) @ turned_twin(k[s][part], s) for s in range(t + 1)])
                weights = np.exp(scores / np.sqrt(width))
                mixed.append(sum(p * v[s][part] for s, p in enumerate(weights / weights.sum())))
            middle = states[t] + w[f"{block}.self_attn.o_proj.weight"] @ np.concatenate(mixed)
            added, chances = experts(
                w, f"{block}.ffn_layer", normed(middle, w[f"{block}.post_attention_layernorm.weight"])
            )
            after.append(middle + added)
            probabilities.append(chances)
        states = np.stack(after)
        found.append(states)
        routes.append(np.stack(probabilities))
    return [*found, np.stack([normed(x, w["model.norm.weight"]) for x in states])], routes


def weights_of(family: TimeMoE) -> Weights:
    return {name: value.double().numpy() for name, value in family.network.state_dict().items()}


def scaled(row: np.ndarray) -> tuple[np.ndarray, float, float]:
    """The observed steps of a row over mean and standard deviation."""
    seen = row[~np.isnan(row)].astype(np.float64)
    return (seen - seen.mean()) / seen.std(ddof=1), float(seen.mean()), float(seen.std(ddof=1))


# -- tests -------------------------------------------------------------------------------------------------------------
def test_names_and_shapes_are_the_released_ones_to_the_byte_of_the_released_file() -> None:
    with torch.device("meta"):
        network = TimeMoENetwork(Config.fill(RELEASED, "released"))
    got = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    assert got == released_shapes()
    # the header of safetensors holds every name and shape, so another name's length would show
    offset, header = 0, {"__metadata__": {"format": "pt"}}
    for name, shape in sorted(got.items()):
        end = offset + 2 * int(np.prod(shape))  # bfloat16
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, end]}  # type: ignore[dict-item]
        offset = end
    told = len(json.dumps(header, separators=(",", ":")))
    assert 8 + told + -told % 8 + offset == RELEASED_BYTES


def test_states_are_those_of_the_slow_definition(model: TimeMoE, windows: Make) -> None:
    made = windows(count=3, context=14)
    made.context[1, :5] = np.nan
    states = {(s.layer, s.normed): s.states for s in model.hidden_states(model.tokenize(made))}
    for row, context in enumerate(made.context):
        values, _, _ = scaled(context)
        slow, _ = slow_states(weights_of(model), values)
        for layer, one in enumerate(slow[:-1]):
            np.testing.assert_allclose(states[layer, False][row, -len(values) :], one, atol=1e-4)
        np.testing.assert_allclose(states[2, True][row, -len(values) :], slow[-1], atol=1e-4)


@pytest.mark.parametrize(("horizon", "heads"), [(1, [0]), (3, [0, 0, 0]), (4, [1]), (7, [1, 0, 0, 0]), (13, [2, 1, 0])])
def test_horizons_are_answered_by_the_longest_head_that_fits(
    model: TimeMoE, windows: Make, horizon: int, heads: list[int]
) -> None:
    made, w = windows(count=2, context=10, horizon=horizon), weights_of(model)
    answer = model.forecast(made, seeds=[0, 0])
    for row, context in enumerate(made.context):
        values, loc, scale = scaled(context)
        for head in heads:
            states, _ = slow_states(w, values)
            values = np.concatenate((values, w[f"lm_heads.{head}.out_layer.weight"] @ states[-1][-1]))
        np.testing.assert_allclose(answer.median[row], values[10:] * scale + loc, atol=1e-4)
    assert np.ptp(answer.values, axis=1).max() == 0  # a point forecaster: every quantile is the same


@pytest.mark.parametrize("together", [1, 1 << 15])
@pytest.mark.parametrize("starts", [[0, 0, 0], [0, 3, 9], [10, 0, 1]])
def test_steps_of_padded_windows_are_those_of_whole_passes(
    model: TimeMoE, starts: list[int], together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys and values that are kept are those that a pass over everything so far makes anew."""
    monkeypatch.setattr(continuation, "TOKENS", together)
    network, start = model.network, torch.tensor(starts)
    values = torch.from_numpy(np.random.default_rng(0).normal(size=(3, 10)).astype(np.float32))
    with torch.no_grad():
        got = continuation.continue_values(network, values, start, 23, [1, 4, 8])
        for head in (2, 2, 1, 0, 0, 0):
            answer = network.lm_heads[head](network(values, start).states[:, -1])
            values = torch.cat((values, answer), dim=1)
    np.testing.assert_allclose(got, values[:, 10:], rtol=1e-4, atol=1e-5)


def test_a_head_longer_than_the_horizon_is_cut_where_none_is_short_enough(
    windows: Make, windows_of: Callable[..., Windows]
) -> None:
    family, context = TimeMoE.new({**SIZE, "horizon_lengths": [8]}, seed=0), windows().context
    long, short = (family.forecast(windows_of(context, np.zeros((5, h))), seeds=[0] * 5).median for h in (8, 3))
    np.testing.assert_array_equal(short, long[:, :3])


def test_the_loss_is_the_mean_huber_of_the_heads_and_the_balance(model: TimeMoE, windows: Make) -> None:
    made, w = windows(count=2, context=9, horizon=6), weights_of(model)
    made.future[0, 2] = np.nan
    made.context[1, :3] = np.nan
    sums: dict[str, list[float]] = {str(head): [] for head in range(3)}
    chances: list[np.ndarray] = []
    for context, future in zip(made.context, made.future, strict=True):
        values, loc, scale = scaled(context)
        steps = np.concatenate((values, (future - loc) / scale))
        filled = np.where(np.isnan(steps), np.roll(steps, 1), steps)
        states, routes = slow_states(w, filled[:-1])
        chances += [p for layer in routes for p in layer]
        for head, length in enumerate((1, 4, 8)):
            for t, state in enumerate(states[-1]):
                answers = w[f"lm_heads.{head}.out_layer.weight"] @ state
                for answer, label in zip(answers, steps[t + 1 : t + 1 + length], strict=False):
                    gap = abs(answer - label)
                    if not np.isnan(gap):
                        sums[str(head)].append(gap**2 / 2 if gap < 2 else 2 * (gap - 1))
    table = np.stack(chances)
    picked = np.argsort(-table, axis=1)[:, :2]
    shares = [(picked == e).any(axis=1).mean() for e in range(5)]
    expected = np.mean([np.mean(one) for one in sums.values()]) + 0.02 * 5 * (shares * table.mean(axis=0)).sum()
    got = model.loss(torch.from_numpy(made.context), torch.from_numpy(made.future)).item()
    assert got == pytest.approx(expected, rel=1e-5)


def test_balance_is_the_number_of_choices_where_experts_are_used_alike_and_more_where_one_is_preferred() -> None:
    even = torch.log(torch.eye(4) * 0.97 + 0.01)[None]  # each token one favourite
    counted = torch.ones(1, 4, dtype=torch.bool)
    assert balance([even], 1, counted).item() == pytest.approx(1)
    assert balance([even[:, :1].expand(1, 4, 4)], 1, counted).item() == pytest.approx(4 * 0.98 / 1.01, rel=1e-4)
    flat = torch.zeros(1, 4, 4)
    assert balance([flat, flat], 2, counted).item() == pytest.approx(2)
    half = torch.tensor([[True, True, False, False]])
    assert balance([even], 1, half).item() == pytest.approx(4 * 2 * 0.5 * (0.98 + 0.01) / 2 / 1.01, rel=1e-4)


def test_experts_that_no_token_is_sent_to_change_nothing() -> None:
    layer = SparseExperts(4, 8, 3, 2).requires_grad_(False)
    layer.gate.weight.zero_()[2] = -100.0
    states = torch.rand(1, 6, 4)
    before, routes = layer(states)
    assert (routes[..., 2] < routes[..., 0]).all()
    layer.experts[2].down_proj.weight.fill_(torch.nan)
    assert torch.equal(layer(states)[0], before)


def test_contexts_are_scaled_and_missing_steps_repeat_the_last_observed(
    model: TimeMoE, windows_of: Callable[..., Windows]
) -> None:
    nan = np.nan
    rows = np.array([[nan, 2, nan, 4, nan], [7, 7, 7, nan, 7], [nan] * 5, [nan, nan, nan, nan, 3], [1, 2, 3, 4, 5]])
    tokens = model.tokenize(windows_of(rows, np.zeros((5, 2))))
    r, s = np.sqrt(0.5), np.sqrt(2.5)
    np.testing.assert_allclose(
        tokens.arrays["values"],
        [[0, -r, -r, r, r], [0] * 5, [0] * 5, [0] * 5, np.array([-2, -1, 0, 1, 2]) / s],
        atol=1e-6,
    )
    assert tokens.arrays["start"].tolist() == [1, 0, 5, 4, 0]
    np.testing.assert_allclose(tokens.arrays["loc"], [3, 7, 0, 3, 3])
    np.testing.assert_allclose(tokens.arrays["scale"], [2 * r, 1, 1, 1, s], rtol=1e-6)
    kinds = tokens.kinds["decoder"]
    np.testing.assert_array_equal(kinds == TokenKind.PADDING, np.isnan(rows))


def test_a_constant_that_float64_means_round_is_zero_throughout(
    model: TimeMoE, windows_of: Callable[..., Windows]
) -> None:
    tokens = model.tokenize(windows_of(np.full((1, 49), 0.1), np.zeros((1, 1))))
    assert not tokens.arrays["values"].any()


def test_all_zero_states_pass_here_and_fail_where_a_family_does_not_say_so(windows_of: Callable[..., Windows]) -> None:
    class Strict(TimeMoE):
        zero_states = False

    model = TimeMoE.new(SIZE, seed=0)
    tokens = model.tokenize(windows_of(np.full((2, 9), 3.0), np.zeros((2, 2))))
    # Biases start at 0, so nothing ever leaves 0.
    assert not np.any([layer.states for layer in model.hidden_states(tokens)])
    with pytest.raises(HealthError, match="all zero"):
        list(Strict.new(SIZE, seed=0).hidden_states(tokens))


def test_no_more_steps_are_read_than_the_model_was_trained_on(model: TimeMoE, windows: Make) -> None:
    long = windows(context=80)
    tokens = model.tokenize(long)
    assert tokens.kinds["decoder"].shape == (5, 64)
    cut = Windows(long.context[:, -64:], long.future, long.series, long.origin, "w", "D", 7)
    np.testing.assert_array_equal(tokens.arrays["values"], model.tokenize(cut).arrays["values"])


def test_one_horizon_may_be_a_number() -> None:
    assert Config.fill({**SIZE, "horizon_lengths": 4}, "x")["horizon_lengths"] == [4]
