"""Compression of a whole model: the bytes that were asked for, the file that has them, and refusals."""

from __future__ import annotations

import copy
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tsfmscope.compression import whole_model
from tsfmscope.compression.budget import BudgetError
from tsfmscope.compression.compress import reduce_bits
from tsfmscope.compression.export import densify, save
from tsfmscope.compression.options import Method
from tsfmscope.errors import ModelError
from tsfmscope.models.common import int8
from tsfmscope.models.common.compression_block import NEURONS
from tsfmscope.models.registry import family_class
from tsfmscope.series.types import Windows


@pytest.fixture(autouse=True)
def few_divisions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both methods at one share, and none at all, since every division takes five passes."""
    monkeypatch.setattr(whole_model, "DIVISIONS", [one for one in whole_model.DIVISIONS if one.share in (0.5, 1.0)])


def method_of(share: float) -> Method:
    return Method.model_validate({"method": "whole-model", "ranks": {"bytes": share}, "bits": 8})


def states(model: Any, tokens: Any) -> list[np.ndarray]:
    return [layer.states for layer in model.hidden_states(tokens)]


@pytest.mark.parametrize("share", [0.3, 0.25])
def test_the_file_has_the_bytes_that_were_asked_for_and_loads(
    toy: Any, windows: Windows, share: float, tmp_path: Path
) -> None:
    tokens, base = toy.tokenize(windows), copy.deepcopy(toy)
    full = int8.stored_bytes(base.network, rounded=False)
    method = method_of(share)
    rows = whole_model.compress(toy, method, [tokens.take(np.arange(3)), tokens.take(np.arange(3, 6))])
    reduce_bits(toy, method)
    assert 0.85 * share * full < int8.stored_bytes(toy.network, rounded=True) <= share * full
    mlps = [row for row in rows if row["part"] == "mlp"]
    assert len(mlps) == 4 and all(row["attention"] is None and 1 <= row["rank"] <= 32 for row in mlps)
    assert len(toy.compression[NEURONS]) == sum(row["rank"] < 32 for row in mlps) > 0
    save(toy, tmp_path / "small")
    again = type(toy).load(tmp_path / "small")
    for ours, theirs in zip(states(toy, tokens), states(again, tokens), strict=True):
        assert np.array_equal(ours, theirs)
    dense = densify(again)
    assert {name: value.shape for name, value in dense.network.state_dict().items()} == {
        name: value.shape for name, value in base.network.state_dict().items()
    }
    for ours, theirs in zip(states(toy, tokens), states(dense, tokens), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_eight_bits_alone_where_they_suffice(toy: Any, windows: Windows) -> None:
    base = copy.deepcopy(toy)
    rows = whole_model.compress(toy, method_of(0.9), [toy.tokenize(windows)])
    assert [row["rank"] for row in rows] == [row["full_width"] for row in rows] and NEURONS not in toy.compression
    for name, tensor in toy.network.state_dict().items():
        assert tensor.equal(base.network.state_dict()[name])


def test_the_division_with_the_least_held_out_error_is_taken(
    toy: Any, windows: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = toy.tokenize(windows)
    errors = iter(np.linspace(1.0, 2.0, 100))
    good = whole_model.DIVISIONS[2]
    chosen: list[Any] = []
    apply = whole_model._Search.apply

    def watched(*arguments: Any) -> Any:
        chosen.append(arguments[2])
        return apply(*arguments)

    def error(*_: Any) -> np.ndarray:
        return np.full(3, 0.1 if chosen[-1] == good else next(errors))

    monkeypatch.setattr(whole_model._Search, "apply", watched)
    monkeypatch.setattr(whole_model, "window_errors", error)
    whole_model.compress(toy, method_of(0.3), [tokens.take(np.arange(3)), tokens.take(np.arange(3, 6))])
    assert chosen[-1] == good and chosen.count(good) == 3


def test_too_few_bytes_are_refused_with_the_least_possible(toy: Any, windows: Windows) -> None:
    tokens = toy.tokenize(windows)
    with pytest.raises(BudgetError, match=r"ranks bytes: got 0.01, expected at least 0\.\d{4}") as caught:
        whole_model.compress(copy.deepcopy(toy), method_of(0.01), [tokens])
    least = float(str(caught.value).rpartition(" ")[2])
    method = method_of(least)
    size = int8.stored_bytes(toy.network, rounded=False)
    whole_model.compress(toy, method, [tokens])
    reduce_bits(toy, method)
    assert int8.stored_bytes(toy.network, rounded=True) <= least * size


def time_method(share: float) -> Method:
    return Method.model_validate({"method": "whole-model", "ranks": {"time": share}})


def count(model: Any) -> int:
    return sum(parameter.numel() for parameter in model.network.parameters())


@pytest.mark.parametrize("share", [0.8, 0.6])
def test_seconds_that_grow_with_the_parameters_are_met_with_the_largest_mlps_that_meet_them(
    toy: Any, windows: Windows, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, tokens = copy.deepcopy(toy), toy.tokenize(windows)
    measured: dict[Any, float] = {}
    pairs = []

    def time_ratio(search: Any, division: Any, statistics: Any, _: Any, count_of_pairs: int) -> float:
        trial = copy.deepcopy(base)
        search.apply(trial, division, statistics)
        pairs.append(count_of_pairs)
        measured.pop(division, None)
        measured[division] = count(trial) / count(base)
        return measured[division]

    monkeypatch.setattr(whole_model._Search, "_time_ratio", time_ratio)
    parts = [tokens.take(np.arange(3)), tokens.take(np.arange(3, 6))]
    whole_model.compress(toy, time_method(share), parts, windows)
    chosen = list(measured)[-1]
    assert count(toy) / count(base) == measured[chosen] <= share
    assert pairs[-1] == 3 * whole_model.PAIRS and set(pairs[:-1]) == {whole_model.PAIRS}
    larger = [mlps for mlps in whole_model.MLP_SHARES if mlps > chosen.mlps]
    assert all(measured[chosen._replace(mlps=mlps)] > share for mlps in larger)


@pytest.mark.parametrize(("repeated", "is_refused"), [(1.1, False), (9.0, True)])
def test_a_first_measurement_that_was_lucky_is_measured_again(
    toy: Any, windows: Windows, repeated: float, is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens, measured = toy.tokenize(windows), []

    def time_ratio(_: Any, division: Any, statistics: Any, timed: Any, pairs: int) -> float:
        ratio = 0.2 + 0.5 * division.mlps
        measured.append(ratio * repeated if pairs > whole_model.PAIRS else ratio)
        return measured[-1]

    monkeypatch.setattr(whole_model._Search, "_time_ratio", time_ratio)
    if is_refused:
        with pytest.raises(BudgetError, match=r"got 0\.45 .* expected at least 0\.58, measured with"):
            whole_model.compress(toy, time_method(0.45), [tokens], windows)
        return
    rows = whole_model.compress(toy, time_method(0.45), [tokens], windows)
    # Half of the MLPs takes 0.45 at first and 0.495 again, a quarter 0.325 and 0.3575.
    assert measured[-2:] == pytest.approx([0.495, 0.3575])
    mlps = [row for row in rows if row["part"] == "mlp"]
    assert sum(row["rank"] for row in mlps) < 0.35 * sum(row["full_width"] for row in mlps)


def test_all_of_the_seconds_change_nothing(toy: Any, windows: Windows) -> None:
    base = copy.deepcopy(toy)
    whole_model.compress(toy, time_method(1.0), [toy.tokenize(windows)], windows)
    assert count(toy) == count(base) and NEURONS not in toy.compression
    for ours, theirs in zip(states(toy, toy.tokenize(windows)), states(base, base.tokenize(windows)), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-3)


def test_seconds_that_nothing_meets_are_refused_with_the_least_share_that_was_measured(
    toy: Any, windows: Windows
) -> None:
    expected = (
        r"ranks time: got 0\.01 of the seconds of a forecast, expected at least (\d+\.?\d*), measured with "
        r"(all|0\.5 \(activation-aware(-svd)?\)) of attention and 0\.1 of the MLPs left"
    )
    with pytest.raises(BudgetError) as caught:
        whole_model.compress(toy, time_method(0.01), [toy.tokenize(windows)], windows)
    match = re.match(expected, str(caught.value))
    assert match and 0.01 < float(match[1]) < 3


@pytest.mark.slow
def test_a_model_within_a_budget_of_seconds_is_faster_when_its_forecasts_are_timed_in_turn_with_the_original(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Only MLPs, since most of the time is theirs: every division of attention takes further passes.
    monkeypatch.setattr(whole_model, "DIVISIONS", whole_model.DIVISIONS[:1])
    config = {"d_model": 256, "d_ff": 2048, "d_kv": 32, "num_heads": 4, "num_layers": 2, "num_decoder_layers": 1}
    config |= {"context_length": 256, "prediction_length": 8, "input_patch_size": 4, "input_patch_stride": 4}
    base = family_class("chronos-bolt").new(config, seed=0)
    values = np.random.default_rng(0).normal(size=(8, 264)).cumsum(axis=1).astype(np.float32)
    windows = Windows(values[:, :256], values[:, 256:], list("abcdefgh"), np.full(8, 256), "walks", "D", 1)
    small = copy.deepcopy(base)
    whole_model.compress(small, time_method(0.7), [base.tokenize(windows)], windows)
    ratios = []
    for _ in range(15):
        seconds = []
        for model in (base, small):
            began = time.perf_counter()
            model.forecast(windows, seeds=list(range(8)))
            seconds.append(time.perf_counter() - began)
        ratios.append(seconds[1] / seconds[0])
    assert np.median(ratios) < 0.85


def test_no_calibration_window_and_no_mlp_are_refused(
    toy: Any, windows: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ModelError, match="no calibration window"):
        whole_model.compress(copy.deepcopy(toy), method_of(0.3), [toy.tokenize(windows).take(np.arange(0))])
    monkeypatch.setattr(whole_model.refit, "find_mlps", lambda _: [])
    with pytest.raises(ModelError, match="names no MLP whose matrices are Linears"):
        whole_model.compress(toy, method_of(0.3), [toy.tokenize(windows)])


@pytest.mark.parametrize(("block", "message"), [
    ({"method": "whole-model", "ranks": {"budget": 0.3}, "bits": 8},
        "got budget, expected bytes or time with method whole-model"),
    ({"method": "joint", "ranks": {"bytes": 0.3}}, "with method joint; methods that take bytes: whole-model"),
    ({"method": "whole-model", "ranks": {"bytes": 0.3}}, "bits: got 32, expected 8"),
])  # fmt: skip
def test_params_that_do_not_fit_are_refused(block: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Method.model_validate(block)
