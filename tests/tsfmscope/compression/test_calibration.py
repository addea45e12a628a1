"""Moments against rows collected whole: projections' inputs, keys less their mean, attended inputs, no padding."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from tsfmscope.compression.calibration import calibration_tokens, calibration_windows, centre, gather, white
from tsfmscope.compression.candidates import (
    output_factors,
    score_factors,
    weighted_output_factors,
    weighted_score_factors,
)
from tsfmscope.compression.options import Calibration, Method, Ranks
from tsfmscope.compression.truncation import compress
from tsfmscope.errors import DataError, HealthError, ModelError
from tsfmscope.models.chronos import ChronosBolt
from tsfmscope.models.common.attention import Projections
from tsfmscope.models.common.capture import in_batches
from tsfmscope.models.registry import family_class
from tsfmscope.models.types import TokenKind
from tsfmscope.series.tables import series_table
from tsfmscope.series.types import Series, Windows

CHRONOS_2: dict[str, Any] = {"d_model": 16, "d_ff": 24, "d_kv": 8, "num_heads": 2, "num_layers": 2}


CHRONOS_2 |= {"context_length": 32, "input_patch_size": 4, "max_output_patches": 2, "initializer_factor": 0.5}
VISIONTS = {"image_size": 16, "patch_size": 4, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1}
VISIONTS |= {"num_attention_heads": 2, "decoder_hidden_size": 8, "decoder_intermediate_size": 12}
VISIONTS |= {"decoder_num_hidden_layers": 1, "decoder_num_attention_heads": 2, "periodicity": 7}
VISIONTS |= {"initializer_range": 0.2}


def test_moments_are_those_of_all_rows_that_are_no_padding(toy: Any, windows: Windows) -> None:
    tokens = toy.tokenize(windows)
    found, seen = gather(toy, tokens), inputs_of(toy, tokens)
    assert set(found) == {layer.name for layer in toy.attentions()}
    padded = 0
    for layer in toy.attentions():
        mask = {
            "q": valid(tokens, layer.stack),
            "k": valid(tokens, "encoder" if layer.kind == "cross" else layer.stack),
        }
        mask["o"] = mask["q"]
        padded += int((~mask["k"]).sum())
        one = found[layer.name]
        for what, root in (("q", one.queries), ("k", one.inputs), ("o", one.head_outputs)):
            rows = seen[layer.name, what][mask[what]]
            assert same_moments(root, np.concatenate((np.ones((len(rows), 1)), rows), axis=1))
        z = seen[layer.name, "k"]
        shifted = [rows[some] - rows[some].mean(axis=0) for rows, some in zip(z, mask["k"], strict=True)]
        assert same_moments(one.keys, np.concatenate(shifted))
    assert padded > 0


def test_what_the_output_projection_is_given_is_the_image_of_the_attended_inputs(toy: Any, windows: Windows) -> None:
    """H = W_V Σ_j p_ij z_j: probabilities made anew from weights, bias by distance and mask, the sum before W_V."""
    tokens = toy.tokenize(windows)
    seen = inputs_of(toy, tokens)
    layer = next(iter(toy.attentions()))
    read, z, some = layer.read(), seen[layer.name, "k"], valid(tokens, "encoder")
    count = z.shape[1]
    bias = layer.module.compute_bias(count, count).detach().double().numpy()[0]
    for head in range(2):
        score_factors = np.einsum("wtd,kd,ke,wse->wts", z, read.q[head], read.k[head], z) + bias[head]
        score_factors = np.where(some[:, None, :], score_factors, -np.inf)
        weights = np.exp(score_factors - score_factors.max(axis=-1, keepdims=True))
        head_outputs = weights / weights.sum(axis=-1, keepdims=True) @ z
        given = seen[layer.name, "o"][..., head * 8 : head * 8 + 8]
        assert np.allclose(head_outputs @ read.v[head].T, given, atol=1e-4 * np.abs(given).max())


def test_batches_change_nothing(toy: Any, windows: Windows) -> None:
    tokens = toy.tokenize(windows)
    whole = gather(toy, tokens)
    with in_batches(toy, 4):
        parts = gather(toy, tokens)
    for name, one in whole.items():
        for root in ("queries", "inputs", "keys", "head_outputs"):
            ours, theirs = getattr(one, root), getattr(parts[name], root)
            gram = ours.T @ ours
            assert np.allclose(gram, theirs.T @ theirs, rtol=0, atol=1e-6 * np.abs(gram).max())


@pytest.mark.parametrize("batch", [2, 3, 64])
def test_keys_of_a_group_are_less_the_mean_of_the_series_that_may_be_forecast_together(
    windows: Windows, batch: int
) -> None:
    """Chronos-2's groups, place by place, over a data set and not over a batch: whatever another's are like."""
    model = family_class("chronos-2").new(CHRONOS_2, seed=0)
    rng = np.random.default_rng(1)
    walks = 1000 + rng.normal(size=(4, 40)).cumsum(axis=1).astype(np.float32)
    walks[0, :9] = np.nan
    others = Windows(walks[:, :32], walks[:, 32:], list("abcd"), np.full(4, 32), "others", "D", 1)
    parts = [model.tokenize(one) for one in (windows, others)]
    with in_batches(model, batch):
        found, first, second = (gather(model, *some) for some in (parts, parts[:1], parts[1:]))
    groups = [layer for layer in model.attentions() if layer.kind == "group"]
    assert groups
    for layer in groups:
        expected = []
        for tokens in parts:
            z, some = inputs_of(model, tokens)[layer.name, "k"], valid(tokens, "encoder").T
            assert z.shape[:2] == some.shape and not some.all()
            expected += [rows[mask] - rows[mask].mean(axis=0) for rows, mask in zip(z, some, strict=True) if mask.any()]
        grams = [one[layer.name].keys.T @ one[layer.name].keys for one in (found, first, second)]
        want = np.concatenate(expected).T @ np.concatenate(expected)
        np.testing.assert_allclose(grams[0], want, rtol=0, atol=1e-5 * np.abs(want).max())
        np.testing.assert_allclose(grams[0], grams[1] + grams[2], rtol=0, atol=1e-5 * np.abs(want).max())


def test_plain_keys_are_weighed_less_their_mean_and_rotated_ones_whole(windows: Windows) -> None:
    """Chronos-2 has both. Twin: the trace of W C Wᵀ that rank 3 loses, C of rows collected whole."""
    model = family_class("chronos-2").new(CHRONOS_2, seed=0)
    tokens = model.tokenize(windows)
    given, layers = inputs_of(model, tokens), list(copy.deepcopy(model).attentions())
    method = Method(method="activation-aware-svd", ranks=Ranks(share=3 / 16))
    cut = compress(model, method, gather(model, tokens))
    found = {(row["layer"], row["attention"]): row for row in cut if row["part"] == "k"}
    assert {layer.plain for layer in layers} == {True, False}
    for layer in layers:
        z, mask = given[layer.name, "k"], valid(tokens, "encoder")
        mask = mask.T if layer.kind == "group" else mask
        groups = [rows[some] for rows, some in zip(z, mask, strict=True) if some.any()]
        less = [rows - layer.plain * rows.mean(axis=0) for rows in groups]
        weight = layer.linear("k").weight.detach().double().numpy()
        values = np.linalg.svd(np.concatenate(less) @ weight.T, compute_uv=False)
        row = found[layer.layer, layer.kind]
        assert row["rank"] == 3
        lost = np.sqrt(np.square(values[3:]).sum() / np.square(values).sum())
        assert row["relative_error"] == pytest.approx(lost, rel=1e-4)


def test_a_window_s_one_key_leaves_nothing_to_tell(toys: dict[str, Any], windows: Windows) -> None:
    """Chronos-Bolt's decoder reads one token: whatever its self-attention scores, the softmax is 1."""
    found = gather(toys["chronos-bolt"], toys["chronos-bolt"].tokenize(windows))
    assert not found["decoder.1.self"].keys.any() and found["decoder.1.cross"].keys.any()


def test_a_window_without_kept_tokens_stays_and_is_not_divided_by_zero() -> None:
    states = np.ones((2, 3, 4), np.float32)
    assert np.array_equal(centre(states, np.array([[False] * 3, [True] * 3])), np.stack((states[0], 0 * states[1])))


def test_a_family_that_says_nothing_of_its_attention_is_named(toys: dict[str, Any], windows: Windows) -> None:
    class Silent(ChronosBolt):
        name = "silent"

        def attentions(self) -> Any:
            return iter(())

    model = Silent(toys["chronos-bolt"].network)
    with pytest.raises(ModelError, match="silent"):
        gather(model, model.tokenize(windows))
    with pytest.raises(ModelError, match="no calibration window"):
        gather(toys["chronos-bolt"], toys["chronos-bolt"].tokenize(windows).take([]))


def test_states_that_are_not_finite_are_refused(toy: Any, windows: Windows) -> None:
    with torch.no_grad():
        next(iter(toy.attentions())).linear("o").weight[0, 0] = float("nan")
    with pytest.raises((HealthError, ValueError), match="NaN or infinity"):
        gather(toy, toy.tokenize(windows))


@pytest.mark.parametrize(("heads", "groups"), [(4, 4), (4, 2), (3, 1)])
@pytest.mark.parametrize("biased", [True, False])
def test_white_inputs_weigh_all_directions_alike(heads: int, groups: int, biased: bool) -> None:
    """What is best on them is what is best without data: the same errors, the same products at every rank."""
    rng = np.random.default_rng(heads + groups)
    q, k, v = (rng.normal(size=(count, 3, 7)) for count in (heads, groups, groups))
    biases = (*(rng.normal(size=(len(one), 3)) for one in (q, k, v)), rng.normal(size=7))
    layer = Projections(q, k, v, rng.normal(size=(heads, 7, 3)), *(biases if biased else ()))
    moments = white(layer)
    weighted = (
        weighted_score_factors(layer, moments.queries, moments.keys),
        weighted_output_factors(layer, moments.head_outputs),
    )
    for found, expected in zip(weighted, (score_factors(layer), output_factors(layer)), strict=True):
        for one, other in zip(found, expected, strict=True):
            assert np.allclose(one.errors(3), other.errors(3))
            for rank in (1, 2, 3):
                assert np.allclose(np.matmul(*one.truncate(rank)), np.matmul(*other.truncate(rank)))


def test_layers_that_no_token_reaches_are_taken_as_of_white_inputs() -> None:
    """VisionTS' decoder, which is no stack: it is cut as without data, and not as if it were given nothing."""
    model = family_class("visionts").new(VISIONTS, seed=1)
    values = np.random.default_rng(0).normal(size=(4, 48)).cumsum(axis=1).astype(np.float32)
    given = Windows(values[:, :40], values[:, 40:], list("abcd"), np.full(4, 40), "walks", "D", 7)
    moments = gather(model, model.tokenize(given))
    errors = {}
    for name in ("activation-aware", "joint"):
        method = Method.model_validate({"method": name, "ranks": {"share": 0.5}})
        rows = compress(copy.deepcopy(model), method, moments)
        errors[name] = {(one["stack"], one["part"]): one["relative_error"] for one in rows}
    for part in ("qk", "vo"):
        assert errors["activation-aware"]["decoder", part] == pytest.approx(errors["joint"]["decoder", part])
        assert errors["activation-aware"]["encoder", part] != pytest.approx(errors["joint"]["encoder", part], rel=0.1)


def inputs_of(model: Any, tokens: Any) -> dict[tuple[str, str], np.ndarray]:
    """(layer, q, k or o) -> what the projection is given for all windows at once, [W, T, d]."""
    found: dict[tuple[str, str], np.ndarray] = {}
    handles = []
    for layer in model.attentions():
        for what in ("q", "k", "o"):

            def keep(module: Any, args: tuple[Any, ...], key: tuple[str, str] = (layer.name, what)) -> None:
                found[key] = args[0].detach().double().numpy()

            handles.append(layer.linear(what).register_forward_pre_hook(keep))
    list(model.hidden_states(tokens))
    for handle in handles:
        handle.remove()
    return found


def valid(tokens: Any, stack: str) -> np.ndarray:
    mask: np.ndarray = tokens.kinds[stack] != TokenKind.PADDING
    return mask


def same_moments(root: np.ndarray, rows: np.ndarray) -> bool:
    gram = rows.T @ rows
    return np.allclose(root.T @ root, gram, rtol=1e-9, atol=1e-9 * np.abs(gram).max())


def short_and_long() -> dict[str, Any]:
    """One data set with room for three windows, and one with room for many."""
    rng = np.random.default_rng(0)
    values = {"short": rng.normal(size=30), "long": rng.normal(size=400)}
    return {name: series_table([Series(name, name, row.astype(np.float32))]) for name, row in values.items()}


def test_every_data_set_has_the_same_number_of_windows(toys: dict[str, Any]) -> None:
    spec: dict[str, Any] = {"windows": 8, "context": 32, "horizon": 6, "held_out": 0.2, "seed": 0}
    spec |= {"datasets": ["short", "long"]}
    model, tables = toys["chronos-bolt"], short_and_long()
    assert [len(one) for one in calibration_windows(model, tables, Calibration(**spec))] == [3, 8]
    short, long = calibration_tokens(model, tables, Calibration(**spec))
    assert len(short) == len(long) == 8
    assert short.origin.tolist() == [*short.origin[:3], *short.origin[:3], *short.origin[:2]]


def test_synthetic_sets_follow_the_data_depend_on_the_seed_alone_and_need_no_data(toys: dict[str, Any]) -> None:
    spec: dict[str, Any] = {"windows": 16, "context": 32, "horizon": 6, "held_out": 0.2}
    model, tables = toys["chronos-bolt"], short_and_long()
    with_data = calibration_windows(model, tables, Calibration(**spec, datasets=["long"], seed=0, synthetic=2))
    without = [Calibration(**spec, datasets=[], seed=seed, synthetic=2) for seed in (0, 1)]
    alone, other = (calibration_windows(model, {}, options) for options in without)
    assert [one.dataset for one in with_data] == ["long", "synthetic", "synthetic"]
    for ours, theirs in zip(with_data[1:], alone, strict=True):
        assert np.array_equal(ours.context, theirs.context, equal_nan=True)
    assert not np.array_equal(alone[0].context, alone[1].context, equal_nan=True)
    assert not np.array_equal(alone[0].context, other[0].context, equal_nan=True)
    n_observed = alone[0].count_observed(32)
    assert n_observed.min() >= 16 and n_observed.max() == 32 and (n_observed < 32).sum() >= 4


def test_series_that_are_constant_before_the_last_fifth_do_not_calibrate(toys: dict[str, Any]) -> None:
    values = np.r_[np.ones(80), np.arange(20)].astype(np.float32)
    spec = Calibration(datasets=("flat",), windows=8, context=32, horizon=6, held_out=0.2, seed=0)
    tables = {"flat": series_table([Series("flat", "a", values)])}
    with pytest.raises(DataError, match=r"give no window before the last 20% .*: constant \(1 series\)"):
        calibration_windows(toys["chronos-bolt"], tables, spec)
