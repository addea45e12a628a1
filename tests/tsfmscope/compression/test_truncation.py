"""Compressed toy models: states of explicitly substituted matrices, ranks as asked for, saved, loaded, forecasting."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tsfmscope.compression.test_export import CONFIGS
from tsfmscope.compression.calibration import gather
from tsfmscope.compression.candidates import count_parameters
from tsfmscope.compression.options import METHODS, Method
from tsfmscope.compression.truncation import compress, model_candidates
from tsfmscope.errors import ModelError
from tsfmscope.models.chronos import ChronosBolt
from tsfmscope.models.common.attention import NAMES, Projections
from tsfmscope.models.common.layers import factors
from tsfmscope.models.registry import family_class
from tsfmscope.series.types import Windows

RULES: dict[str, Any] = {
    "budget": "half of what can go", "share": 0.4, "epsilon": 0.7, "flat": 2, "flow": {"first": 1.5, "growth": 0.5},
}  # fmt: skip

TRUNCATIONS = [name for name, entry in METHODS.items() if entry.candidates]
Substitute = Callable[[Projections, int], Projections]


def truncate_svd(matrix: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Two factors of numpy's truncated SVD of an explicit matrix."""
    u, values, vt = np.linalg.svd(matrix)
    return u[:, :rank] * values[:rank], vt[:rank]


def with_cut_products(read: Projections, rank: int) -> Projections:
    """Every head's explicit d x d products cut by numpy, written as heads of the original width with zeros."""
    q, k, v, o = (np.zeros_like(one) for one in read[:4])
    for head in range(len(read.q)):
        left, right = truncate_svd(read.q[head].T @ read.k[head], rank)
        q[head, :rank], k[head, :rank] = left.T, right
        o[head, :, :rank], v[head, :rank] = truncate_svd(read.o[head] @ read.v[head], rank)
    return Projections(q, k, v, o)


def with_cut_matrices(read: Projections, rank: int) -> Projections:
    """Every whole matrix cut by numpy."""
    q, k, v = (np.matmul(*truncate_svd(one.reshape(16, 16), rank)).reshape(2, 8, 16) for one in read[:3])
    o = np.matmul(*truncate_svd(np.moveaxis(read.o, 0, 1).reshape(16, 16), rank))
    return Projections(q, k, v, np.moveaxis(o.reshape(16, 2, 8), 1, 0))


@pytest.mark.parametrize(("method", "rank", "whole", "substitute"), [
    ("joint", 3, 3, with_cut_products),
    ("joint", 8, 8, with_cut_products),
    ("svd", 3, 6, with_cut_matrices),
    ("svd", 5, 10, with_cut_matrices),
])  # fmt: skip
def test_states_are_those_of_explicitly_substituted_matrices(
    toy: Any, windows: Windows, method: str, rank: int, whole: int,
    substitute: Callable[[Projections, int], Projections],
) -> None:  # fmt: skip
    tokens, twin = toy.tokenize(windows), copy.deepcopy(toy)
    rows = iter(compress(toy, Method.model_validate({"method": method, "ranks": {"flat": rank}})))
    for layer in twin.attentions():
        read = layer.read()
        layer.write(made := substitute(read, whole))
        for (part, old), new in zip(
            head_products(read, method).items(), head_products(made, method).values(), strict=True
        ):
            apart = [np.linalg.norm(a - b) / np.linalg.norm(a) for a, b in zip(old, new, strict=True)]
            row = next(rows)
            assert (row["part"], row["rank"]) == (part, whole)
            assert row["relative_error"] == pytest.approx(np.sqrt(np.mean(np.square(apart))), rel=1e-5, abs=1e-7)
    assert next(rows, None) is None
    for ours, theirs in zip(toy.hidden_states(tokens), twin.hidden_states(tokens), strict=True):
        assert np.allclose(ours.states, theirs.states, atol=1e-4 * np.abs(theirs.states).max())


def head_products(read: Projections, method: str) -> dict[str, list[np.ndarray]]:
    """What a method cuts, by part: the products of every head, or whole matrices."""
    if method == "joint":
        heads = range(len(read.q))
        return {"qk": [read.q[i].T @ read.k[i] for i in heads], "vo": [read.o[i] @ read.v[i] for i in heads]}
    whole = {what: [one.reshape(16, 16)] for what, one in zip("qkv", read[:3], strict=True)}
    return whole | {"o": [np.moveaxis(read.o, 0, 1).reshape(16, 16)]}


@pytest.mark.parametrize("method", TRUNCATIONS)
@pytest.mark.parametrize("rule", RULES)
def test_every_method_takes_every_rule(toys: dict[str, Any], windows: Windows, method: str, rule: str) -> None:
    model, before = copy_toy(toys, "chronos-bolt")
    size, moments = count_parameters(before), gather(model, model.tokenize(windows))
    flat = Method.model_validate({"method": method, "ranks": {"flat": 1}})
    candidates = model_candidates(model, flat, moments)
    least = 1 - sum(candidate.before - candidate.costs[0] for candidate in candidates) / size
    value = (1 + least) / 2 if rule == "budget" else RULES[rule]
    rows = compress(model, Method.model_validate({"method": method, "ranks": {rule: value}}), moments)
    parts = {"project": "qkv", "joint": ("qk", "vo"), "activation-aware": ("qk", "vo")}.get(method, "qkvo")
    assert [(row["stack"], row["layer"], row["attention"], row["part"]) for row in rows] == [
        (layer.stack, layer.layer, layer.kind, part) for layer in before for part in parts
    ]
    assert all(1 <= row["rank"] <= row["full_width"] and 0 <= row["relative_error"] <= 1 for row in rows)
    assert count_parameters(list(model.attentions())) < size
    assert np.isfinite(model.forecast(windows, seeds=[0] * 6).values).all()


@pytest.mark.parametrize("method", ["svd", "joint", "activation-aware", "activation-aware-svd"])
@pytest.mark.parametrize("share", [0.15, 0.6, 1.0])
def test_a_budget_is_kept_and_nearly_spent(toys: dict[str, Any], windows: Windows, method: str, share: float) -> None:
    model, before = copy_toy(toys, "chronos-t5")
    size, moments = count_parameters(before), gather(model, model.tokenize(windows))
    rows = compress(model, Method.model_validate({"method": method, "ranks": {"budget": share}}), moments)
    left = count_parameters(list(model.attentions()))
    assert left <= share * size
    if method not in ("activation-aware", "activation-aware-svd") or share < 1:  # a part without error asks for no more
        assert left > share * size - 2 * 16 * 2
    assert rows[0]["full_width"] == (16 if method.endswith("svd") else 8)


def test_more_budget_errs_less_and_all_of_it_changes_nothing(toy: Any, windows: Windows) -> None:
    tokens = toy.tokenize(windows)
    states = [layer.states for layer in toy.hidden_states(tokens)]
    errors = []
    for share in (0.15, 0.3, 0.6, 1.0):
        one = copy.deepcopy(toy)
        rows = compress(one, Method.model_validate({"method": "joint", "ranks": {"budget": share}}))
        head_products = [
            row for row in rows if (row["stack"], row["attention"], row["part"][0]) not in toy.inert_projections
        ]
        errors.append(sum(row["relative_error"] ** 2 for row in head_products))
    assert errors == sorted(errors, reverse=True) and errors[-1] == 0
    for ours, theirs in zip(one.hidden_states(tokens), states, strict=True):
        assert np.array_equal(ours.states, theirs)


def test_aware_heads_err_least_on_what_they_were_weighed_by(toy: Any, windows: Windows) -> None:
    """On calibration windows the first block's scores and outputs are nearer than those of the plain products."""
    tokens = toy.tokenize(windows)
    moments = gather(toy, tokens)
    plain, aware = copy.deepcopy(toy), copy.deepcopy(toy)
    compress(plain, Method.model_validate({"method": "joint", "ranks": {"flat": 2}}))
    rows = compress(aware, Method.model_validate({"method": "activation-aware", "ranks": {"flat": 2}}), moments)
    name, read = "encoder.1.self", next(iter(toy.attentions())).read()
    queries, keys = moments[name].queries[:, 1:], moments[name].keys
    found = []
    for one in (plain, aware):
        new = next(iter(one.attentions())).read()
        pairs = [(queries @ (a.T @ b) @ keys.T, queries @ (c.T @ d) @ keys.T) for a, b, c, d in heads(read, new)]
        found.append(np.sqrt(np.mean([(np.linalg.norm(a - b) / np.linalg.norm(a)) ** 2 for a, b in pairs])))
    assert found[1] <= found[0] * (1 + 1e-5)
    assert rows[0]["relative_error"] == pytest.approx(found[1], rel=1e-3)


def heads(old: Projections, new: Projections) -> list[tuple[np.ndarray, ...]]:
    return list(zip(old.q, old.k, new.q, new.k, strict=True))


@pytest.mark.parametrize("method", TRUNCATIONS)
@pytest.mark.parametrize("budget", [0.7, 1.0])
def test_scores_that_no_softmax_sees_get_rank_one(
    toys: dict[str, Any], windows: Windows, method: str, budget: float
) -> None:
    """Chronos-Bolt's decoder attends to its one token: a budget spends nothing on those scores."""
    model, before = copy_toy(toys, "chronos-bolt")
    moments = gather(model, model.tokenize(windows))
    rows = compress(model, Method.model_validate({"method": method, "ranks": {"budget": budget}}), moments)
    is_idle = [(row["stack"], row["attention"]) == ("decoder", "self") and row["part"] in "qk" for row in rows]
    idle = [row for row, found in zip(rows, is_idle, strict=True) if found]
    assert [row["rank"] for row in idle] == [1] * (2 if method in ("joint", "activation-aware") else 4)
    assert method != "activation-aware" or [row["relative_error"] for row in idle] == [0.0, 0.0]
    assert max(row["rank"] for row in rows) > 1
    assert count_parameters(list(model.attentions())) <= budget * count_parameters(before)
    if budget == 1 and method in ("svd", "joint"):
        seeds = [0] * len(windows)
        dense = toys["chronos-bolt"].forecast(windows, seeds=seeds).values
        assert np.array_equal(model.forecast(windows, seeds=seeds).values, dense)


@pytest.mark.parametrize("method", ["svd", "activation-aware-svd", "joint", "activation-aware", "project"])
def test_scores_of_groups_get_rank_one_only_where_single_series_are_promised(windows: Windows, method: str) -> None:
    """Chronos-2's group attention is idle for a series by itself, not for several that are forecast together."""
    found = {}
    for univariate in (False, True):
        model = family_class("chronos-2").new(CONFIGS["chronos-2"], seed=0)
        moments = gather(model, model.tokenize(windows))
        how = Method.model_validate({"method": method, "ranks": {"budget": 0.8}, "univariate": univariate})
        rows = compress(model, how, moments)
        found[univariate] = [
            row["rank"] for row in rows if row["attention"] == "group" and row["part"] in ("q", "k", "qk")
        ]
        assert model.compression is not None and model.compression.get("univariate", False) is univariate
    assert set(found[True]) == {1} and max(found[False]) > 1


@pytest.mark.parametrize("share", [0.3, 0.5, 0.8])
def test_a_budget_of_svd_is_one_tolerance_for_all_matrices_that_have_effect(toys: dict[str, Any], share: float) -> None:
    """The rule `epsilon` (Yu et al. 2026, Table 2) at a tolerance just below the one found breaks the budget."""
    model, before = copy_toy(toys, "chronos-bolt")
    rows = compress(model, Method.model_validate({"method": "svd", "ranks": {"budget": share}}))
    idle = [
        (layer.name, what)
        for layer in before
        for what in NAMES
        if (layer.stack, layer.kind, what) in model.inert_projections
    ]
    values = {
        (layer.name, what): np.linalg.svd(layer.linear(what).weight.detach().double().numpy(), compute_uv=False)
        for layer in before
        for what in NAMES
    }
    relative = {name: one / one[0] for name, one in values.items()}

    def ranks_at(tolerance: float) -> list[int]:
        counts = {name: 1 if name in idle else max(1, int((one > tolerance).sum())) for name, one in relative.items()}
        return [16 if count * 32 >= 256 else count for count in counts.values()]  # dense where factors have no fewer

    def size(ranks: list[int]) -> int:
        return sum(min(rank * 32, 256) for rank in ranks)

    tolerances = sorted({0.0, *(value for one in relative.values() for value in one)})
    allowed = [one for one in tolerances if size(ranks_at(one)) <= share * count_parameters(before)]
    assert [row["rank"] for row in rows] == ranks_at(allowed[0])
    assert allowed[0] == 0 or len(allowed) < len(tolerances)
    assert count_parameters(list(model.attentions())) <= share * count_parameters(before)


@pytest.mark.parametrize(("rule", "expected"), [
    ({"flat": 3}, {"encoder.1.self": 3, "encoder.2.self": 3, "decoder.1.cross": 3, "decoder.2.cross": 3}),
    ({"share": 0.3}, {"encoder.1.self": 2, "encoder.2.self": 2, "decoder.1.cross": 2, "decoder.2.cross": 2}),
    ({"flow": {"first": 2, "growth": 1}}, {"encoder.1.self": 2, "encoder.2.self": 4, "decoder.2.cross": 4}),
    ({"flow": {"first": 2, "growth": 1, "origin": 2}}, {"encoder.1.self": 4, "decoder.1.cross": 4}),
    (
        {"flow": {"first": 1, "growth": 1, "cross_offset": True}},
        {"encoder.2.self": 2, "decoder.1.self": 1, "decoder.1.cross": 3, "decoder.2.cross": 4},
    ),
    ({"flow": {"first": 7, "growth": 1}}, {"encoder.1.self": 7, "encoder.2.self": 8}),
])  # fmt: skip
def test_ranks_are_those_of_the_rule(toys: dict[str, Any], rule: dict[str, Any], expected: dict[str, int]) -> None:
    model, _ = copy_toy(toys, "chronos-t5")
    compress(model, Method.model_validate({"method": "joint", "ranks": rule}))
    widths = {layer.name: tuple(layer.read().widths) for layer in model.attentions()}
    assert {name: widths[name] for name in expected} == {name: (rank, rank) for name, rank in expected.items()}


@pytest.mark.parametrize("method", ["joint", "svd"])
def test_epsilon_keeps_what_is_above_it_in_every_matrix_or_in_the_head_that_needs_most(
    toys: dict[str, Any], method: str
) -> None:
    model, before = copy_toy(toys, "chronos-t5")
    rows = iter(compress(model, Method.model_validate({"method": method, "ranks": {"epsilon": 0.4}})))
    apart = False
    for layer in before:
        for part, matrices in head_products(layer.read(), method).items():
            values = [np.linalg.svd(one, compute_uv=False) for one in matrices]
            ranks = [int((one > 0.4 * one[0]).sum()) for one in values]
            row = next(rows)
            assert (row["part"], row["rank"]) == (part, max(ranks))
            apart |= len(set(ranks)) > 1
    assert apart == (method == "joint"), "heads that agree would prove nothing"


@pytest.mark.parametrize(("method", "wrong"), [
    ({"method": "activation-aware-2step", "ranks": {"budget": 0.5}}, r"got 'activation-aware-2step', expected one"),
    ({"method": "activation-aware", "ranks": {"flat": 1}}, r"no inputs of \['encoder.1.self'"),
    ({"method": "joint", "ranks": {"flat": 9}}, "got 9 for encoder.1.self .*, expected 1 to 8"),
    ({"method": "svd", "ranks": {"flat": 9}}, "got 18 for encoder.1.self .*, expected 1 to 16"),
    ({"method": "joint", "ranks": {"budget": 0.1}}, "budget: got 0.1, expected at least 0.1250"),
])  # fmt: skip
def test_what_cannot_be_is_named(toys: dict[str, Any], method: dict[str, Any], wrong: str) -> None:
    model, _ = copy_toy(toys, "chronos-t5")
    with pytest.raises(ValueError, match=wrong):
        compress(model, Method.model_validate(method))
    assert model.compression is None


def test_a_model_of_thin_factors_is_refused_and_one_of_narrower_heads_keeps_its_budget(toy: Any) -> None:
    thin, narrow = copy.deepcopy(toy), toy
    compress(thin, Method.model_validate({"method": "svd", "ranks": {"share": 0.25}}))
    size = count_parameters(list(thin.attentions()))
    with pytest.raises(
        ModelError, match=r"^chronos.*: q, k, v, o of encoder\.1\.self are thin factors.* compress the original"
    ):
        compress(thin, Method.model_validate({"method": "svd", "ranks": {"budget": 0.5}}))
    assert count_parameters(list(thin.attentions())) == size
    for method in ("joint", "svd"):
        size = count_parameters(list(narrow.attentions()))
        compress(narrow, Method.model_validate({"method": method, "ranks": {"budget": 0.5}}))
        assert 0 < count_parameters(list(narrow.attentions())) <= 0.5 * size


def test_broken_weights_and_silent_families_are_named(toys: dict[str, Any]) -> None:
    class Silent(ChronosBolt):
        name = "silent"

        def attentions(self) -> Any:
            return iter(())

    with pytest.raises(ModelError, match="silent"):
        compress(Silent(toys["chronos-bolt"].network), Method.model_validate({"method": "joint", "ranks": {"flat": 1}}))
    model, _ = copy_toy(toys, "chronos-t5")
    next(iter(model.attentions())).linear("k").weight.data[0, 0] = np.inf
    with pytest.raises(ModelError, match=r"encoder\.1\.self: weights contain NaN or infinity"):
        compress(model, Method.model_validate({"method": "joint", "ranks": {"flat": 1}}))


def copy_toy(toys: dict[str, Any], name: str) -> tuple[Any, list[Any]]:
    """A copy to be compressed, and the layers of the original."""
    model = copy.deepcopy(toys[name])
    return model, list(copy.deepcopy(toys[name]).attentions())


@pytest.mark.parametrize("method", ["svd", "activation-aware"])
def test_keys_and_values_that_a_file_holds_as_one_matrix_are_cut_each_for_itself(
    windows: Windows, tmp_path: Path, method: str
) -> None:
    """Lag-Llama's, in factors or with narrower values, keys as wide as the rotation needs."""
    config = {"n_layer": 1, "n_head": 2, "n_embd_per_head": 8, "context_length": 8, "lags": [0, 1, 2]}
    model = family_class("lag-llama").new(config, seed=0)
    moments, size = gather(model, model.tokenize(windows)), count_parameters(list(model.attentions()))
    assert size == sum(one.numel() for name, one in model.network.named_parameters() if "attn" in name)
    compress(model, Method.model_validate({"method": method, "ranks": {"budget": 0.8}}), moments)
    (layer,) = model.attentions()
    assert layer.widths.key == 8
    assert layer.widths.value < 8 if method == "activation-aware" else any(map(factors([layer])[layer.name].get, "kv"))
    left = sum(one.numel() for name, one in model.network.named_parameters() if "attn" in name)
    assert left == count_parameters(list(model.attentions())) <= 0.8 * size
    model.save(tmp_path)
    again = type(model).load(tmp_path)
    assert again.compression == model.compression
    ours, theirs = model.hidden_states(model.tokenize(windows)), again.hidden_states(model.tokenize(windows))
    assert all(np.array_equal(one.states, other.states) for one, other in zip(ours, theirs, strict=True))
