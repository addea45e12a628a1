"""Matrices that a family declares idle: exactly those that change no forecast."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.tsfmscope.compression.test_export import CONFIGS, OWN, stock_windows
from tsfmscope.compression.candidates import (
    apply_products,
    inert_matrices,
    output_factors,
    output_shares,
    plain_factors,
    product,
    projected_factors,
    score_factors,
    weighted_factors,
    weighted_output_factors,
    weighted_score_factors,
)
from tsfmscope.models.base import Family, Forecaster
from tsfmscope.models.common.attention import Projections
from tsfmscope.models.registry import family_class
from tsfmscope.series.types import Windows

KINDS = ("gaussian", "duplicated", "rank one", "zero", "tiny", "huge", "decaying")


@pytest.mark.parametrize("name", [*CONFIGS, *OWN])
def test_idle_queries_and_keys_are_exactly_those_that_change_nothing(name: str) -> None:
    """Weights of zero, kind of attention by kind: what comes out is the same to the last bit, or differs."""
    model = family_class(name).new((CONFIGS | OWN)[name], seed=1)
    before, windows = {}, stock_windows(name)
    answer = forecast_or_states(model, windows)
    for layer in model.attentions():
        before.setdefault((layer.stack, layer.kind), []).append(layer.name)
    for (stack, kind), names in before.items():
        zeroed = copy.deepcopy(model)
        for layer in zeroed.attentions():
            if layer.name in names:
                set_to_zero(layer)
        is_same = np.array_equal(forecast_or_states(zeroed, windows), answer)
        assert (
            is_same
            == ((stack, kind, "q") in model.inert_projections)
            == ((stack, kind, "k") in model.inert_projections)
        ), (stack, kind)


def test_group_attention_is_inert_only_for_single_series() -> None:
    chronos_2 = family_class("chronos-2").new(CONFIGS["chronos-2"], seed=0)
    assert inert_matrices(chronos_2, univariate=True) == chronos_2.inert_projections != frozenset()
    assert inert_matrices(chronos_2, univariate=False) == frozenset()
    bolt = family_class("chronos-bolt").new(CONFIGS["chronos-bolt"], seed=0)
    assert (
        inert_matrices(bolt, univariate=True)
        == inert_matrices(bolt, univariate=False)
        == bolt.inert_projections
        != frozenset()
    )


def set_to_zero(layer: Any) -> None:
    """Queries and keys of zero, whose scores are all alike."""
    with torch.no_grad():
        for what in "qk":
            for parameter in layer.linear(what).parameters():
                parameter.zero_()


def forecast_or_states(model: Family, windows: Windows) -> np.ndarray:
    """Forecasts, or the last states of a family that does not forecast."""
    if isinstance(model, Forecaster):
        return model.forecast(windows, seeds=[0] * len(windows)).values
    *_, last = model.hidden_states(model.tokenize(windows))
    return last.states


@given(
    st.integers(1, 9),
    st.integers(1, 6),
    st.integers(1, 9),
    st.sampled_from(KINDS),
    st.integers(0, 99),
    st.integers(0, 6),
)
def test_a_product_is_cut_as_numpy_cuts_the_explicit_matrix(
    rows: int, inner: int, columns: int, kind: str, seed: int, rank: int
) -> None:
    rng = np.random.default_rng(seed)
    left, right = matrix(rng, kind, rows, inner), matrix(rng, kind, inner, columns)
    found = product(left, right)
    whole, scale = left @ right, np.linalg.norm(left) * np.linalg.norm(right)
    a, b = found.truncate(min(rank, inner))
    values = np.linalg.svd(whole, compute_uv=False)
    best = np.linalg.norm(values[rank:])
    assert np.linalg.norm(whole - a @ b) == pytest.approx(best, abs=1e-12 * scale)
    if best > 1e-9 * scale:
        assert found.errors(inner)[min(rank, inner)] == pytest.approx((best / np.linalg.norm(values)) ** 2, rel=1e-6)
    assert np.linalg.norm(a) == pytest.approx(np.linalg.norm(b), abs=1e-9 * np.sqrt(scale))  # neither dwarfs the other


@given(
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 5), st.booleans(), st.sampled_from(KINDS), st.integers(0, 99)
)
def test_at_full_rank_attention_is_what_it_was(
    groups: int, shared: int, width: int, biased: bool, kind: str, seed: int
) -> None:
    """Also where several query heads share a key head, where heads are wider than the input, and with any biases."""
    rng = np.random.default_rng(seed)
    layer = random_layer(rng, groups, shared, width, 4, biased, "gaussian" if kind in ("tiny", "huge") else kind)
    full = [width] * groups
    new = apply_products(layer, (score_factors(layer), full), (output_factors(layer), full))
    x, z = rng.normal(size=(5, 4)), rng.normal(size=(6, 4))
    assert np.allclose(attention(new, x, z), attention(layer, x, z), atol=1e-9)
    assert new.k_bias is None and new.v_bias is None


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize(("groups", "shared"), [(3, 1), (2, 2), (1, 3)])
def test_truncated_heads_are_the_factorised_products(groups: int, shared: int, rank: int) -> None:
    """Every head's explicit d x d products, truncated by numpy (stacked where heads share), in a naive attention."""
    rng = np.random.default_rng(rank)
    layer = random_layer(rng, groups, shared, 4, 6, True)
    new = apply_products(layer, (score_factors(layer), [rank] * groups), (output_factors(layer), [rank] * groups))
    x, z = rng.normal(size=(5, 6)), rng.normal(size=(7, 6))
    ones = np.concatenate((x, np.ones((5, 1))), axis=1)
    expected = layer.o_bias + np.zeros((5, 6))
    for group in range(groups):
        heads = range(group * shared, group * shared + shared)
        forms = [np.vstack((layer.q[i].T, layer.q_bias[i])) @ layer.k[group] for i in heads]  # [in + 1, in]
        maps = [layer.o[i] @ layer.v[group] for i in heads]
        for i, form, made in zip(heads, cut_stack(forms, rank), cut_stack(maps, rank), strict=True):
            expected = expected + softmax(ones @ form @ z.T) @ z @ made.T + layer.o[i] @ layer.v_bias[group]
    assert np.allclose(attention(new, x, z), expected, atol=1e-10)
    single = narrowed_to_float32(new)
    assert np.allclose(attention(single, x, z), expected, atol=1e-5 * np.abs(expected).max())


@given(st.integers(1, 2), st.booleans(), st.integers(1, 4), st.sampled_from(KINDS), st.integers(0, 99))
def test_weighed_scores_err_least_over_pairs(shared: int, biased: bool, rank: int, kind: str, seed: int) -> None:
    """Against numpy's SVD of all scores of sampled queries with sampled keys; deficient samples among them."""
    rng = np.random.default_rng(seed)
    layer = random_layer(rng, 2, shared, 4, 5, biased, kind)
    x, z = samples(rng, 30, 5), samples(rng, 20, 5)
    queries = np.linalg.qr(np.concatenate((np.ones((30, 1)), x), axis=1), mode="r")
    found = weighted_score_factors(layer, queries, z)  # any factor of the second moments will do, z itself among them
    new = apply_products(layer, (found, [rank] * 2), None)
    for group in range(2):
        old = all_scores(layer, group, x, z)
        values = np.linalg.svd(old, compute_uv=False)
        error, best = np.linalg.norm(old - all_scores(new, group, x, z)), np.linalg.norm(values[rank:])
        assert error == pytest.approx(best, rel=1e-6, abs=1e-6 * values[0])
        plain = apply_products(layer, (score_factors(layer), [rank] * 2), None)
        assert error <= np.linalg.norm(old - all_scores(plain, group, x, z)) * (1 + 1e-6) + 1e-6 * values[0]


@given(st.booleans(), st.integers(1, 4), st.sampled_from(KINDS), st.integers(0, 99))
def test_weighed_outputs_err_least_over_what_is_attended(biased: bool, rank: int, kind: str, seed: int) -> None:
    """A head's outputs W_O W_V Z against numpy's truncation of that matrix; plain truncation is never better."""
    rng = np.random.default_rng(seed)
    layer = random_layer(rng, 2, 1, 4, 5, biased, kind)
    inputs_by_head = [samples(rng, 30, 5) for _ in range(2)]  # Σ_j p_ij z_j of each head
    biases = [0.0, 0.0] if layer.v_bias is None else layer.v_bias
    values = [z @ v.T + bias for z, v, bias in zip(inputs_by_head, layer.v, biases, strict=True)]
    root = np.linalg.qr(np.concatenate((np.ones((30, 1)), *values), axis=1), mode="r")
    new = apply_products(layer, None, (weighted_output_factors(layer, root), [rank] * 2))
    plain = apply_products(layer, None, (output_factors(layer), [rank] * 2))
    for head, z in enumerate(inputs_by_head):
        old = layer.o[head] @ layer.v[head] @ z.T
        singular = np.linalg.svd(old, compute_uv=False)
        error = np.linalg.norm(old - new.o[head] @ new.v[head] @ z.T)
        assert error == pytest.approx(np.linalg.norm(singular[rank:]), rel=1e-6, abs=1e-9 * singular[0])
        assert error <= np.linalg.norm(old - plain.o[head] @ plain.v[head] @ z.T) * (1 + 1e-9) + 1e-9 * singular[0]


def test_shared_values_are_exact_at_full_rank_and_best_for_the_sum_of_moments() -> None:
    rng = np.random.default_rng(1)
    layer = random_layer(rng, 1, 3, 4, 6, False)
    seen = rng.normal(size=(50, 12)) * np.repeat([1.0, 5.0, 0.2], 4)
    (found,) = weighted_output_factors(layer, np.concatenate((np.ones((50, 1)), seen), axis=1))
    stacked, rows = np.concatenate(list(layer.o)), np.concatenate(np.split(seen, 3, axis=1))
    assert np.allclose(np.matmul(*found.truncate(4)), stacked @ layer.v[0])
    left, right = found.truncate(2)
    into = np.linalg.lstsq(layer.v[0].T, right.T, rcond=None)[0].T  # right = into W_V
    best = np.linalg.svd(stacked @ rows.T, compute_uv=False)
    assert np.linalg.norm(stacked @ rows.T - left @ into @ rows.T) == pytest.approx(np.linalg.norm(best[2:]))


@pytest.mark.parametrize("biased", [False, True])
def test_shares_are_squares_over_that_of_the_layer_s_output(biased: bool) -> None:
    """Straight from rows: outputs of a value head; its mean squared score times the spread of what it moves."""
    rng = np.random.default_rng(3)
    layer, z = random_layer(rng, 2, 2, 4, 6, biased), rng.normal(size=(25, 6)) + 1.0
    x, inputs_by_head = rng.normal(size=(40, 6)), rng.normal(size=(4, 40, 6))
    b_v = np.zeros((2, 4)) if layer.v_bias is None else layer.v_bias
    given = np.concatenate([inputs_by_head[i] @ layer.v[i // 2].T + b_v[i // 2] for i in range(4)], axis=1)
    keys, ones = z - z.mean(axis=0), np.ones((40, 1))
    factors = weighted_score_factors(layer, np.concatenate((ones, x), axis=1), keys)
    found = output_shares(layer, factors, np.concatenate((ones, given), axis=1), keys, 25)
    outs = [inputs_by_head[i] @ layer.v[i // 2].T @ layer.o[i].T for i in range(4)]
    whole = np.square(sum(outs)).sum(axis=1).mean()
    moved = [np.square(keys @ layer.v[i // 2].T @ layer.o[i].T).sum(axis=1).mean() for i in range(4)]
    for group, pair in enumerate([(0, 1), (2, 3)]):
        squares = sum(np.square(outs[i]).sum(axis=1).mean() for i in pair)
        assert found.vo[group] == pytest.approx(squares / whole)
        mean_score = np.square(all_scores(layer, group, x, keys)).mean()
        assert found.qk[group] == pytest.approx(mean_score * sum(moved[i] for i in pair) / whole)


def test_a_layer_without_output_weighs_nothing() -> None:
    layer = random_layer(np.random.default_rng(0), 2, 1, 3, 4, False, "zero")
    assert output_shares(layer, score_factors(layer), np.eye(7), np.eye(4), 4.0).vo == [0.0, 0.0]


def test_heads_of_their_own_ranks_are_filled_up_with_zeros() -> None:
    rng = np.random.default_rng(2)
    layer = random_layer(rng, 3, 1, 4, 6, True)
    new = apply_products(layer, (score_factors(layer), [1, 3, 2]), (output_factors(layer), [2, 1, 1]))
    assert new.widths == (3, 2)
    for head, (key, value) in enumerate([(1, 2), (3, 1), (2, 1)]):
        alone = apply_products(layer, (score_factors(layer), [key] * 3), (output_factors(layer), [value] * 3))
        assert np.array_equal(new.q[head, :key], alone.q[head]) and not new.q[head, key:].any()
        assert np.array_equal(new.o[head, :, :value], alone.o[head]) and not new.o[head, :, value:].any()


def random_layer(
    rng: np.random.Generator, groups: int, shared: int, width: int, inside: int, biased: bool, kind: str = "gaussian"
) -> Projections:
    heads = groups * shared
    q = np.stack([matrix(rng, kind, width, inside) for _ in range(heads)])
    k, v = (np.stack([matrix(rng, kind, width, inside) for _ in range(groups)]) for _ in range(2))
    o = np.stack([matrix(rng, kind, inside, width) for _ in range(heads)])
    if not biased:
        return Projections(q, k, v, o)
    scale = {"tiny": 1e-30, "huge": 1e30}.get(kind, 1.0)  # beside a bias of 1, tiny values are not in H any more
    biases = [rng.normal(size=shape) * scale for shape in ((heads, width), (groups, width), (groups, width), (inside,))]
    return Projections(q, k, v, o, *biases)


def matrix(rng: np.random.Generator, kind: str, rows: int, columns: int) -> np.ndarray:
    one: np.ndarray = rng.normal(size=(rows, columns))
    if kind == "duplicated":
        one[:] = one[:1]
    factor = {"zero": 0.0, "tiny": 1e-30, "huge": 1e30}.get(kind, 1.0)
    if kind == "rank one":
        one = np.outer(one[:, 0], one[0])
    if kind == "decaying":
        one = one * 10.0 ** -np.arange(columns)
    return one * factor


def samples(rng: np.random.Generator, count: int, width: int) -> np.ndarray:
    """Rows, some directions of which are hardly there, as hidden states are; at times one is not there at all."""
    rows: np.ndarray = rng.normal(size=(count, width)) * 10.0 ** -rng.integers(0, 4, size=width)
    return rows * (np.arange(width) != rng.integers(0, 2 * width))


def attention(layer: Projections, x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Naive: every head by itself, straight from the definition in Projections."""
    shared = len(layer.q) // len(layer.k)
    total = np.zeros((len(x), layer.o.shape[1]))
    for head in range(len(layer.q)):
        group = head // shared
        value = z @ layer.v[group].T + (0 if layer.v_bias is None else layer.v_bias[group])
        total += softmax(head_scores(layer, head, x, z)) @ value @ layer.o[head].T
    return total + (0 if layer.o_bias is None else layer.o_bias)


def head_scores(layer: Projections, head: int, x: np.ndarray, z: np.ndarray) -> np.ndarray:
    group = head // (len(layer.q) // len(layer.k))
    query = x @ layer.q[head].T + (0 if layer.q_bias is None else layer.q_bias[head])
    key = z @ layer.k[group].T + (0 if layer.k_bias is None else layer.k_bias[group])
    found: np.ndarray = query @ key.T
    return found


def all_scores(layer: Projections, group: int, x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Of the heads of a group, one below the other, without the key's bias."""
    shared = len(layer.q) // len(layer.k)
    unbiased = layer._replace(k_bias=None)
    return np.concatenate([head_scores(unbiased, group * shared + i, x, z) for i in range(shared)])


def softmax(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    found: np.ndarray = weights / weights.sum(axis=1, keepdims=True)
    return found


def cut_stack(parts: list[np.ndarray], rank: int) -> list[np.ndarray]:
    u, values, vt = np.linalg.svd(np.concatenate(parts), full_matrices=False)
    return np.split((u[:, :rank] * values[:rank]) @ vt[:rank], len(parts))


def narrowed_to_float32(layer: Projections) -> Any:
    return Projections(*(None if one is None else one.astype(np.float32) for one in layer))


@given(st.integers(1, 7), st.integers(1, 7), st.integers(1, 7), st.integers(0, 99))
def test_plain_is_numpy_s_truncated_svd(rows: int, columns: int, rank: int, seed: int) -> None:
    matrix = np.random.default_rng(seed).normal(size=(rows, columns))
    u, values, vt = np.linalg.svd(matrix, full_matrices=False)
    expected = (u[:, :rank] * values[:rank]) @ vt[:rank]
    assert np.allclose(np.matmul(*plain_factors(matrix).truncate(rank)), expected)
    assert plain_factors(matrix).errors(7)[min(rank, 7)] == pytest.approx(
        (values[rank:] ** 2).sum() / (values**2).sum()
    )


@given(st.integers(1, 7), st.integers(1, 7), st.integers(1, 20), st.integers(0, 99))
def test_weighed_is_best_for_the_outputs_of_the_inputs(rows: int, columns: int, count: int, seed: int) -> None:
    """Fewer inputs than columns among them: nothing is inverted."""
    rng = np.random.default_rng(seed)
    matrix, inputs = rng.normal(size=(rows, columns)), rng.normal(size=(count, columns)) * 0.1 ** np.arange(columns)
    factors, whole = weighted_factors(matrix, inputs), matrix @ inputs.T
    values = np.linalg.svd(whole, compute_uv=False)
    for rank in range(1, min(rows, columns) + 1):
        cut = np.matmul(*factors.truncate(rank))
        error = np.linalg.norm(whole - cut @ inputs.T)
        assert error == pytest.approx(np.linalg.norm(values[rank:]), rel=1e-6, abs=1e-12 * values[0])
        assert error <= np.linalg.norm(whole - np.matmul(*plain_factors(matrix).truncate(rank)) @ inputs.T) + 1e-12
    assert np.allclose(np.matmul(*factors.truncate(rows)), matrix)


def test_projected_is_the_matrix_on_the_leading_directions_of_the_inputs() -> None:
    rng = np.random.default_rng(0)
    matrix, inputs = rng.normal(size=(5, 6)), rng.normal(size=(40, 6)) * 0.5 ** np.arange(6)
    leading = np.linalg.svd(inputs.T)[0][:, :3]
    factors = projected_factors(matrix, inputs)
    assert np.allclose(np.matmul(*factors.truncate(3)), matrix @ leading @ leading.T)
    left = np.linalg.norm((matrix - matrix @ leading @ leading.T) @ inputs.T) / np.linalg.norm(matrix @ inputs.T)
    assert factors.errors(6)[3] == pytest.approx(left**2)
