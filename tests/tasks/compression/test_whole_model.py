"""Compression of a whole model: the bytes that were asked for, the file that has them, and refusals."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tsfmscope.stages.config.compression import Method
from tsfmscope.tasks.compression import whole_model
from tsfmscope.tasks.compression.budget import BudgetError
from tsfmscope.tasks.compression.compress import file_bytes, reduce_bits
from tsfmscope.tasks.compression.export import densify, save
from tsfmscope.tasks.errors import ModelError
from tsfmscope.tasks.models.common import int8
from tsfmscope.tasks.models.common.mlp import KEY
from tsfmscope.tasks.series.types import Windows


@pytest.fixture(autouse=True)
def few_divisions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both methods at one share, and none at all, since every division takes five passes."""
    monkeypatch.setattr(whole_model, "DIVISIONS", [one for one in whole_model.DIVISIONS if one.share in (0.5, 1.0)])


def method_of(share: float) -> dict[str, Any]:
    return Method.model_validate({"method": "whole-model", "ranks": {"bytes": share}, "bits": 8}).plain()


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
    assert 0.85 * share * full < file_bytes(toy) <= share * full
    mlps = [row for row in rows if row["part"] == "mlp"]
    assert len(mlps) == 4 and all(row["attention"] is None and 1 <= row["rank"] <= 32 for row in mlps)
    assert len(toy.compression[KEY]) == sum(row["rank"] < 32 for row in mlps) > 0
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
    assert [row["rank"] for row in rows] == [row["full_width"] for row in rows] and KEY not in toy.compression
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
    assert file_bytes(toy) <= least * size


def test_no_calibration_window_and_no_mlp_are_refused(
    toy: Any, windows: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ModelError, match="no calibration window"):
        whole_model.compress(copy.deepcopy(toy), method_of(0.3), [toy.tokenize(windows).take(np.arange(0))])
    monkeypatch.setattr(whole_model.neurons, "mlps", lambda _: [])
    with pytest.raises(ModelError, match="names no MLP whose matrices are Linears"):
        whole_model.compress(toy, method_of(0.3), [toy.tokenize(windows)])


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (
            {"method": "whole-model", "ranks": {"budget": 0.3}, "bits": 8},
            "got budget, expected bytes: method whole-model takes no other rule",
        ),
        ({"method": "joint", "ranks": {"bytes": 0.3}}, "ranks.bytes: got method joint, expected one of whole-model"),
        ({"method": "whole-model", "ranks": {"bytes": 0.3}}, "bits: got 32, expected 8"),
    ],
)
def test_params_that_do_not_fit_are_refused(block: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Method.model_validate(block)
