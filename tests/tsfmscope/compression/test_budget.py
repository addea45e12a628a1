"""One budget over many parts: never beyond it, and equal to trying every combination where costs are equal."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsfmscope.compression.budget import (
    BudgetError,
    Curve,
    SavedSeconds,
    Spectrum,
    allocate,
    allocate_by_tolerance,
    compare_seconds,
    forecast_seconds,
    measure,
)
from tsfmscope.compression.calibration import gather
from tsfmscope.compression.candidates import Candidate
from tsfmscope.compression.options import Method, Ranks
from tsfmscope.compression.truncation import allocate_within, compress, model_candidates
from tsfmscope.models.registry import family_class
from tsfmscope.series.types import Windows

values = st.lists(st.floats(0, 10).filter(lambda value: value == 0 or value > 1e-3), min_size=1, max_size=4)

SLOPES = {
    "encoder.self": 0.003,
    "decoder.self": 0.001,
    "decoder.cross": 0.002,
}  # seconds a dimension of a layer's heads
ROTARY = {"n_layer": 1, "n_head": 2, "n_embd_per_head": 8, "context_length": 8, "lags": [0, 1, 2]}


@given(st.lists(values, min_size=1, max_size=4), st.integers(0, 12))
def test_equal_costs_are_shared_out_as_brute_force_does(singular: list[list[float]], spare: int) -> None:
    """Squared singular values as gains: the least error of all combinations of ranks within the budget."""
    curves = [decreasing_curve(one, cost=3) for one in singular]
    budget = 3 * len(curves) + spare
    assert total(curves, allocate(curves, budget)) == pytest.approx(least(curves, budget), abs=1e-9)


@given(st.lists(st.tuples(values, st.integers(1, 5)), min_size=1, max_size=4), st.integers(0, 20))
def test_other_costs_stay_within_the_budget_and_one_step_from_the_best(
    parts: list[tuple[list[float], int]], spare: int
) -> None:
    curves = [decreasing_curve(one, cost) for one, cost in parts]
    budget = sum(int(one.costs[0]) for one in curves) + spare
    ranks = allocate(curves, budget)
    assert sum(int(one.costs[rank - 1]) for one, rank in zip(curves, ranks, strict=True)) <= budget
    step = max((float(-np.diff(one.errors, append=0.0).min()) for one in curves), default=0.0)
    assert total(curves, ranks) <= least(curves, budget) + step + 1e-9


def test_a_last_step_that_costs_nothing_is_taken() -> None:
    """Two thin factors cost as much as the matrix before its full rank: then it stays whole."""
    curve = Curve(np.array([8, 16, 16, 16]), np.array([0.5, 0.2, 0.1, 0.0]))
    assert allocate([curve], 16) == [4]
    assert allocate([curve], 15) == [1]


def test_parts_without_error_stay_at_rank_one() -> None:
    idle = Curve(np.array([1, 2, 3]), np.zeros(3))
    assert allocate([idle, decreasing_curve([3.0, 2.0, 1.0], 1)], 10) == [1, 3]


def test_a_budget_below_rank_one_says_what_is_needed() -> None:
    with pytest.raises(ValueError, match="got 3, expected at least 4"):
        allocate([decreasing_curve([1.0, 1.0], 2)] * 2, 3)


parts_of_spectra = st.lists(
    st.tuples(st.lists(st.floats(0.01, 10), min_size=1, max_size=5), st.integers(1, 5), st.booleans()),
    min_size=1,
    max_size=4,
)


@given(parts_of_spectra, st.integers(0, 60))
def test_one_tolerance_is_the_smallest_of_all_that_the_budget_allows(
    parts: list[tuple[list[float], int, bool]], spare: int
) -> None:
    """Against a count of values above every tolerance that makes a difference, tried one by one."""
    spectra = [spectrum(*one) for one in parts]
    budget = price(spectra, [1] * len(spectra)) + spare
    ranks = allocate_by_tolerance(spectra, budget)
    assert price(spectra, ranks) <= budget
    for tolerance in sorted({0.0, *(value / max(one.values) for one in spectra for value in one.values)}):
        wanted = []
        for one in spectra:
            count = max(1, sum(value / max(one.values) > tolerance for value in one.values))
            wanted.append(len(one.costs) if one.costs[count - 1] == one.costs[-1] else count)
        if price(spectra, wanted) <= budget:
            break
    assert ranks == wanted


@given(parts_of_spectra, st.integers(0, 60), st.integers(0, 20))
def test_more_budget_lowers_no_rank_of_one_tolerance(
    parts: list[tuple[list[float], int, bool]], spare: int, more: int
) -> None:
    spectra = [spectrum(*one) for one in parts]
    budget = price(spectra, [1] * len(spectra)) + spare
    fewer, ranks = allocate_by_tolerance(spectra, budget), allocate_by_tolerance(spectra, budget + more)
    assert all(one <= other for one, other in zip(fewer, ranks, strict=True))


def test_one_tolerance_by_hand() -> None:
    """Tolerance 0.3 is spent on the part that falls slowly, nothing on the idle one or on one of zeros."""
    costs = np.array([2, 4, 6])
    idle, zero = Spectrum(costs, np.zeros(0)), Spectrum(costs, np.zeros(3))
    slow, fast = Spectrum(costs, np.array([10.0, 4.0, 3.0])), Spectrum(costs, np.array([0.5, 0.1, 0.01]))
    assert allocate_by_tolerance([idle, slow, fast, zero], 10) == [1, 2, 1, 1]
    assert allocate_by_tolerance([idle, slow, fast, zero], 12) == [1, 3, 1, 1]
    assert allocate_by_tolerance([idle, slow, fast, zero], 99) == [1, 3, 3, 1]
    with pytest.raises(BudgetError, match="got 7, expected at least 8, the cost of rank 1 of every part"):
        allocate_by_tolerance([idle, slow, fast, zero], 7)


def spectrum(values: list[float], cost: int, is_idle: bool) -> Spectrum:
    """A matrix whose last two ranks cost the same, as those of two thin factors and of the dense matrix do."""
    costs = cost * np.arange(1, len(values) + 1)
    costs[-1] = costs[max(0, len(values) - 2)]
    return Spectrum(costs, np.zeros(0) if is_idle else np.sort(values)[::-1])


def price(spectra: list[Spectrum], ranks: list[int]) -> int:
    return sum(int(one.costs[rank - 1]) for one, rank in zip(spectra, ranks, strict=True))


def decreasing_curve(singular: list[float], cost: int) -> Curve:
    squares = np.sort(np.square(singular))[::-1]
    tails = np.append(np.cumsum(squares[::-1])[::-1][1:], 0.0)
    return Curve(cost * np.arange(1, len(squares) + 1), tails)


def total(curves: list[Curve], ranks: list[int]) -> float:
    return float(sum(one.errors[rank - 1] for one, rank in zip(curves, ranks, strict=True)))


def least(curves: list[Curve], budget: int) -> float:
    combinations = product(*(range(1, len(one.costs) + 1) for one in curves))
    return min(
        total(curves, list(ranks))
        for ranks in combinations
        if sum(int(one.costs[rank - 1]) for one, rank in zip(curves, ranks, strict=True)) <= budget
    )


def by_width(model: Any) -> float:
    """A run of 1 s, and what each layer's heads take by the wider of their widths."""
    return 1.0 + sum(SLOPES[f"{one.stack}.{one.kind}"] * max(one.widths) for one in model.attentions())


def test_a_cost_that_grows_with_the_width_is_found_layer_by_layer(toy: Any) -> None:
    """Between the measured widths a line is exact here; the model keeps its own."""
    before = {name: one.clone() for name, one in toy.network.state_dict().items()}
    saved = measure(toy, by_width, rounds=1)
    assert saved.total == pytest.approx(1 + 2 * 8 * sum(SLOPES.values()))
    for layer in toy.attentions():
        slope = SLOPES[f"{layer.stack}.{layer.kind}"]
        assert saved.by_layer[layer.name] == pytest.approx(slope * (8 - np.arange(1, 9)), abs=1e-12)
    assert all(one.equal(before[name]) for name, one in toy.network.state_dict().items())


def test_the_fastest_of_the_rounds_counts_and_a_narrow_head_that_is_slower_saves_what_a_wider_one_does(
    toys: dict[str, Any],
) -> None:
    """As where a kernel is tuned for a width. The first run warms up, and every second one is disturbed."""
    runs = []

    def seconds(model: Any) -> float:
        runs.append(model)
        widths = [max(one.widths) for one in model.attentions() if one.stack == "encoder"]
        tuned = sum({1: 0.9, 2: 0.9, 4: 0.2, 8: 1.0}[width] for width in widths)
        return 100.0 if len(runs) == 1 else tuned + 50.0 * (len(runs) % 2)

    saved = measure(toys["chronos-bolt"], seconds, rounds=2)
    assert saved.total == pytest.approx(2.0)
    one = saved.by_layer["encoder.1.self"]
    assert one[[0, 1, 3]] == pytest.approx([0.8] * 3) and one[5] == pytest.approx(0.4) and one[7] == 0
    assert not saved.by_layer["decoder.2.cross"].any()


def test_two_models_are_timed_in_turn_and_one_disturbed_pair_changes_no_ratio() -> None:
    runs: list[str] = []
    # The first run of each is a warm-up; other load slows both runs of the second pair, and one of the third.
    times = {"base": iter([90.0, 2.0, 6.0, 2.0, 2.0, 3.0]), "small": iter([70.0, 1.0, 3.0, 50.0, 1.0, 1.5])}

    def seconds(model: Any) -> float:
        runs.append(model)
        return next(times[model])

    base: Any = "base"
    small: Any = "small"
    assert compare_seconds(seconds, base, small, rounds=5) == (2.0, 1.0, 0.5, 0.5, 25.0)
    assert runs == ["base", "small"] * 6


def test_keys_that_are_rotated_are_timed_as_wide_as_they_are() -> None:
    model = family_class("lag-llama").new(ROTARY, seed=0)
    (layer,) = model.attentions()
    seen = []

    def seconds(one: Any) -> float:
        seen.append(next(iter(one.attentions())).widths)
        return float(seen[-1].value)

    saved = measure(model, seconds, rounds=1)
    key, value = layer.widths
    assert {one.key for one in seen} == {key} and {one.value for one in seen} == {
        1,
        *(value // n for n in (8, 4, 2, 1)),
    }
    assert saved.by_layer[layer.name] == pytest.approx(value - np.arange(1, value + 1.0))


@pytest.mark.parametrize("family", ["chronos-bolt", "t5-text"])
def test_a_forecast_is_timed_and_a_pass_where_nothing_is_forecast(
    toys: dict[str, Any], windows: Windows, family: str
) -> None:
    if family == "t5-text":
        model = family_class("t5-text").new(TINY, seed=0)
        values = np.random.default_rng(0).integers(97, 122, (3, 40)).astype(np.float32)
        windows = Windows(values[:, :32], values[:, 32:], list("abc"), np.full(3, 32), "text", "", 1)
    else:
        model = toys[family]
    ran = []
    handle = model.network.encoder.register_forward_hook(lambda *_: ran.append(1))
    began = time.perf_counter()
    seconds = forecast_seconds(windows)(model)
    assert 0 < seconds <= time.perf_counter() - began
    handle.remove()
    assert ran


units = st.integers(0, 20)  # half a tenth of a second beside a whole one, so that no rounding decides what fits


@given(st.lists(st.lists(st.integers(0, 4), min_size=7, max_size=7), min_size=2, max_size=2), units)
def test_seconds_are_spent_within_a_step_of_what_brute_force_finds(drawn: list[list[int]], spare: int) -> None:
    """Any costs: never beyond the share, and one step of a layer at most from the least error of all combinations."""
    saved = with_costs(dict(zip(LAYERS, drawn, strict=True)))
    error, best = held_against_brute_force(saved, spare)
    assert best - 1e-9 <= error <= best + max(float(curve[0]) for curve in errors().values())


@given(units)
def test_equal_seconds_a_width_are_shared_out_as_brute_force_does(spare: int) -> None:
    error, best = held_against_brute_force(with_costs(dict.fromkeys(LAYERS, [1] * 7)), spare)
    assert error == pytest.approx(best, abs=1e-9)


def test_a_model_is_cut_to_its_seconds_one_width_a_layer(toy: Any, windows: Windows) -> None:
    saved, moments = measure(toy, by_width, rounds=1), gather(toy, toy.tokenize(windows))
    for method in ("joint", "activation-aware"):
        whole, half = copy.deepcopy(toy), copy.deepcopy(toy)
        rows = compress(whole, Method(method="joint", ranks=Ranks(time=1.0)), None, saved)
        assert all(row["rank"] == 8 for row in rows)
        compress(half, Method.model_validate({"method": method, "ranks": {"time": 0.95}}), moments, saved)
        assert all(one.widths.key == one.widths.value for one in half.attentions())
        assert len({one.widths for one in half.attentions()}) > 1
        assert 0.95 * saved.total - max(SLOPES.values()) < by_width(half) <= 0.95 * saved.total + 1e-6
        assert half.compression is not None and half.compression["ranks"] == {"time": 0.95}


@pytest.mark.parametrize(("method", "given", "wrong"), [
    ({"method": "joint", "ranks": {"time": 0.5}}, True, r"got 0\.5 of 1\.1 s, expected at least 0\.9"),
    ({"method": "svd", "ranks": {"time": 0.95}}, True,
        r"ranks: got time, expected .* with method svd; methods that take time: joint"),
    ({"method": "joint", "ranks": {"time": 0.95}}, False, "got no saved seconds"),
])  # fmt: skip
def test_what_cannot_be_is_named(toys: dict[str, Any], method: dict[str, Any], given: bool, wrong: str) -> None:
    model = copy.deepcopy(toys["chronos-t5"])
    with pytest.raises(ValueError, match=wrong):
        compress(model, Method.model_validate(method), None, measure(model, by_width, rounds=1) if given else None)
    assert model.compression is None


TINY = {"d_model": 16, "d_ff": 16, "d_kv": 8, "num_heads": 2, "num_layers": 1, "num_decoder_layers": 1}
LAYERS = ("encoder.1.self", "decoder.1.self")


@cache
def candidates_of() -> list[Candidate]:
    """Q-K and V-O of LAYERS of a random model."""
    config = {**TINY, "context_length": 16, "prediction_length": 4, "n_tokens": 32}
    model = family_class("chronos-t5").new(config, seed=3)
    return [
        one
        for one in model_candidates(model, Method(method="joint", ranks=Ranks(time=0.9)), None)
        if one.layer.name in LAYERS
    ]


@cache
def errors() -> dict[str, np.ndarray]:
    """Summed squared relative errors of a layer's heads by width, from explicit products."""
    summed: dict[str, np.ndarray] = {}
    for layer in (one.layer for one in candidates_of() if one.parts == ("qk",)):
        read, summed[layer.name] = layer.read(), np.zeros(8)
        for head in range(2):
            for made in (read.q[head].T @ read.k[head], read.o[head] @ read.v[head]):
                squares = np.square(np.linalg.svd(made, compute_uv=False)[:8])
                summed[layer.name] += np.append(np.cumsum(squares[::-1])[::-1][1:], 0) / squares.sum()
    return summed


def with_costs(steps: Mapping[str, list[int]]) -> SavedSeconds:
    """A second for all but the heads, and what each dimension beyond a head's first adds, in tenths of a second."""
    saved = {name: 0.1 * np.append(np.cumsum(more[::-1])[::-1], 0) for name, more in steps.items()}
    return SavedSeconds(1.0 + sum(float(one[0]) for one in saved.values()), saved)


def held_against_brute_force(saved: SavedSeconds, spare: int) -> tuple[float, float]:
    """Errors of the ranks found, which keep to the seconds, and of the best of all combinations that do."""
    most = min(saved.total, 1.05 + 0.1 * spare)

    def seconds(ranks: Iterable[int]) -> float:
        return saved.total - sum(saved.by_layer[name][rank - 1] for name, rank in zip(LAYERS, ranks, strict=True))

    def error(ranks: Iterable[int]) -> float:
        return float(sum(errors()[name][rank - 1] for name, rank in zip(LAYERS, ranks, strict=True)))

    ranks = allocate_within(most / saved.total, candidates_of(), saved)
    by_layer = dict(zip((one.layer.name for one in candidates_of()), ranks, strict=True))
    assert ranks == [by_layer[one.layer.name] for one in candidates_of()]  # one width a layer
    assert seconds(by_layer.values()) <= most + 1e-6
    combinations = product(range(1, 9), repeat=len(LAYERS))
    return error(by_layer.values()), min(error(ranks) for ranks in combinations if seconds(ranks) <= most + 1e-6)
