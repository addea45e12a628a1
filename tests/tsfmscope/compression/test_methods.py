"""A method that is added to the registry is a method like the others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tsfmscope.compression import candidates
from tsfmscope.compression.candidates import Candidate, dense_matrices, matrices_candidate, plain_factors
from tsfmscope.compression.compress import save_compressed
from tsfmscope.compression.options import METHODS, RULES, CompressionMethod, Method, Ranks
from tsfmscope.models.common.attention import AttentionLayer


def value_matrices(layer: AttentionLayer, *_: Any) -> Iterator[Candidate]:
    """Yield the values' matrix alone."""
    matrix = dense_matrices(layer)["v"]
    yield matrices_candidate(layer, {"v": matrix}, [plain_factors(matrix)], min(matrix.shape))


@pytest.mark.parametrize("rule", [{"budget": 0.9}, {"share": 0.25}, {"epsilon": 0.5}, {"flat": 2}])
def test_an_added_method_takes_the_rules_and_is_saved(
    toy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: dict[str, Any]
) -> None:
    monkeypatch.setattr(candidates, "value_matrices", value_matrices, raising=False)
    monkeypatch.setitem(METHODS, "values", CompressionMethod(RULES, "value_matrices", reads_data=False))
    # Its name is not in `MethodName`, so it is not validated.
    method = Method.model_construct(method="values", ranks=Ranks(**rule))
    row = save_compressed(toy, tmp_path / "small", name="small", base_model="toy", method=method, tables={}, recipe={})
    assert row["method"] == "values" and row["attention_ratio"] < 1
    again = type(toy).load(tmp_path / "small")
    assert again.compression == toy.compression
    for layer, other in zip(toy.attentions(), again.attentions(), strict=True):
        assert np.array_equal(layer.read().v, other.read().v)


@pytest.mark.parametrize(("block", "message"), [
    ({"method": "whole-model", "ranks": {"budget": 0.3}, "bits": 8},
        "got budget, expected bytes with method whole-model"),
    ({"method": "whole-model", "ranks": {"time": 0.3}}, "expected bytes .* take time: joint, activation-aware"),
    ({"method": "joint", "ranks": {"bytes": 0.3}}, "with method joint; methods that take bytes: whole-model"),
    ({"method": "whole-model", "ranks": {"bytes": 0.3}, "bits": 8}, "bits: got 8 with a share of bytes"),
])  # fmt: skip
def test_params_that_do_not_fit_are_refused(block: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Method.model_validate(block)
