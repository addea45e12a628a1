"""Bits of matrices under one budget: the file has the bytes that were asked for, and loads as the saved model."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open

from tests.tsfmscope.compression.conftest import TOYS
from tests.tsfmscope.compression.test_export import CONFIGS, OWN, stock_windows
from tests.tsfmscope.compression.test_rounding import assert_on_grid
from tsfmscope.compression import bits, export
from tsfmscope.compression.budget import BudgetError
from tsfmscope.compression.compress import reduce_bits
from tsfmscope.compression.options import Method, Ranks
from tsfmscope.compression.truncation import compress
from tsfmscope.errors import ModelError
from tsfmscope.models.base import Family, Forecaster
from tsfmscope.models.common.checkpoint_folder import COMPRESSED
from tsfmscope.models.common.low_bits import RECORD, is_roundable
from tsfmscope.models.registry import facts, family_class
from tsfmscope.series.types import Windows

FAMILIES = CONFIGS | OWN
FAMILIES["moirai"] = CONFIGS["moirai"] | {"d_model": 64, "num_layers": 2}


def new_model(family: str) -> Family:
    return family_class(family).new(FAMILIES[family], seed=1)


def method_of(share: float) -> Method:
    return Method(method="whole-model", ranks=Ranks(bytes=share))


def assert_equal(found: Family, expected: Family) -> None:
    """Assert that two models have the same weights, bit for bit."""
    ours, theirs = (model.network.state_dict() for model in (found, expected))
    assert ours.keys() == theirs.keys() and found.compression == expected.compression
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def answers(model: Family, windows: Windows) -> list[np.ndarray]:
    """Return all states, and the forecasts of a family that forecasts."""
    found = [layer.states for layer in model.hidden_states(model.tokenize(windows))]
    return found + ([model.forecast(windows, seeds=[0] * len(windows)).values] if isinstance(model, Forecaster) else [])


def least_share(model: Family, plan: bits.Plan) -> float:
    """Return the share of the bytes that the fewest bits take, as the error for a smaller one states it."""
    with pytest.raises(BudgetError, match=r"^ranks bytes: got 0\.001, expected at least 0\.\d+, .*$") as caught:
        plan.apply(copy.deepcopy(model), method_of(0.001))
    return float(str(caught.value).split("at least ")[1].split(",")[0])


@pytest.mark.parametrize("family", FAMILIES)
def test_the_file_has_the_bytes_that_were_asked_for_and_loads(family: str, tmp_path: Path) -> None:
    model, windows = new_model(family), stock_windows(family)
    base, full = copy.deepcopy(model), export.file_bytes(model)
    plan = bits.measure(model, [windows])
    assert_equal(model, base)
    least = least_share(model, plan)
    for share in (least, least + 0.08):
        model = copy.deepcopy(base)
        rows = plan.apply(model, method_of(share))
        size = export.file_bytes(model)
        assert 0.97 * share * full < size <= share * full
    assert {row["bits"] for row in rows} <= {0, 2, 3, 4, 5, 6, 8} and len({row["bits"] for row in rows}) > 1
    for row in rows:
        assert row["relative_error"] == 1 if not row["bits"] else 0 <= row["relative_error"] < 1
        assert row["rank"] == (row["full_width"] if row["bits"] else 0)
    export.save(model, tmp_path)
    assert (tmp_path / COMPRESSED).stat().st_size == size
    assert facts(tmp_path)["parameters"] >= sum(np.prod(matrix.shape) for matrix in rounded(base).values())
    loaded = family_class(family).load(tmp_path)
    assert_equal(loaded, model)
    found = answers(model, windows)
    assert all(np.array_equal(*pair) for pair in zip(answers(loaded, windows), found, strict=True))
    assert_same_when_dense(loaded, base, windows, found)


def assert_same_when_dense(loaded: Family, base: Family, windows: Windows, expected: list[np.ndarray]) -> None:
    """Assert that a dense export has the shapes of the base and the answers of the compressed model."""
    dense = export.densify(loaded)
    shapes = [{name: weight.shape for name, weight in one.network.state_dict().items()} for one in (dense, base)]
    assert dense.compression is None and shapes[0] == shapes[1]
    for theirs, ours in zip(answers(dense, windows), expected, strict=True):
        np.testing.assert_allclose(theirs, ours, atol=1e-5 * np.abs(ours).max())


def rounded(model: Family) -> dict[str, torch.Tensor]:
    """Return the matrices of a model that are rounded, by path, shared ones once."""
    return {path: weight.detach() for path, weight in bits.saved_tensors(model.network).items() if is_roundable(weight)}


def test_every_matrix_has_a_row_with_its_bits_and_error(toy: Any, windows: Windows) -> None:
    base, plan = copy.deepcopy(toy), bits.measure(toy, [windows])
    rows = plan.apply(toy, method_of(0.3))
    assert len(rows) == len(rounded(toy)) and {row["stack"] for row in rows} >= {"encoder", "decoder", bits.OUTSIDE}
    matrices = [matrix for choice in plan.choices for matrix in choice.matrices]
    for row, matrix in zip(rows, matrices, strict=True):
        assert row["stack"] != bits.OUTSIDE or row["part"] == matrix.path
        weight, original = (rounded(model)[matrix.path].double().numpy() for model in (toy, base))
        assert_on_grid(weight.astype(np.float32), row["bits"])
        assert row["full_width"] == row["rank"] == min(weight.shape)
        assert np.array_equal(original, matrix.weight)
        # Embeddings see no inputs, so that all numbers weigh the same.
        assert (matrix.moments is None) == (row["part"] == "shared.weight" and not toy.softmax_head)
        moments = np.eye(weight.shape[1]) if matrix.moments is None else matrix.moments
        sizes = [np.trace(one @ moments @ one.T) for one in (weight - original, original)]
        assert row["relative_error"] == pytest.approx(np.sqrt(sizes[0] / sizes[1]))


def test_moments_are_those_of_the_inputs_in_the_original_model(toys: dict[str, Any], windows: Windows) -> None:
    """Recorded here by a hook; off the diagonal they are shrunk by rows / (rows + columns)."""
    model = copy.deepcopy(toys["chronos-bolt"])
    layer = model.network.encoder.block[1].layer[-1].DenseReluDense.wo
    inputs: list[np.ndarray] = []
    # A copy of the network keeps the hook.
    layer.register_forward_pre_hook(lambda _, arguments: inputs.append(arguments[0].flatten(0, 1).double().numpy()))
    plan = bits.measure(model, [windows])
    matrices = (matrix for choice in plan.choices for matrix in choice.matrices)
    found = next(one.moments for one in matrices if np.array_equal(one.weight, layer.weight.detach()))
    count, columns = inputs[0].shape
    expected = inputs[0].T @ inputs[0] / (count + columns)
    np.fill_diagonal(expected, np.square(inputs[0]).mean(axis=0))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-12)


def test_smaller_files_change_the_forecasts_more_and_repeat_bit_for_bit(toy: Any, windows: Windows) -> None:
    base, plan = copy.deepcopy(toy), bits.measure(toy, [windows])
    least = least_share(toy, plan)
    expected, changes = answers(base, windows), []
    for share in (least + 0.16, least + 0.08, least):
        model, again = copy.deepcopy(base), copy.deepcopy(base)
        rows = plan.apply(model, method_of(share))
        changes.append(np.square(answers(model, windows)[-2] - expected[-2]).mean())
    assert 0 < changes[0] < changes[1] < changes[2]
    # From the start, with the last share.
    assert bits.measure(again, [windows]).apply(again, method_of(share)) == rows
    assert_equal(again, model)


def test_matrices_without_effect_get_the_fewest_bits(toys: dict[str, Any], windows: Windows) -> None:
    """Of a decoder that reads one token, scores are always 1. Between series they are, if only one is forecast."""
    model = copy.deepcopy(toys["chronos-bolt"])
    for row in bits.measure(model, [windows]).apply(model, method_of(0.35)):
        is_inert = (row["stack"], row["attention"]) == ("decoder", "self") and row["part"] in "qk"
        assert (row["bits"] == 2) == is_inert
    for univariate in (True, False):
        model = new_model("chronos-2")
        rows = bits.measure(model, [stock_windows("chronos-2")], univariate=univariate).apply(model, method_of(0.3))
        found = [row["bits"] == 2 for row in rows if row["attention"] == "group" and row["part"] in "qk"]
        assert found and all(found) == any(found) == univariate


def test_a_matrix_with_a_larger_effect_gets_more_bits(toys: dict[str, Any], windows: Windows) -> None:
    """One MLP writes much more than another of the same shape into the residual stream."""
    model = copy.deepcopy(toys["chronos-bolt"])
    with torch.no_grad():
        for block, factor in zip(model.network.encoder.block, (30.0, 1e-3), strict=True):
            block.layer[-1].DenseReluDense.wo.weight.mul_(factor)
    rows = bits.measure(model, [windows]).apply(model, method_of(0.28))
    assert np.diff([row["bits"] for row in rows if row["stack"] == "encoder" and row["part"] == "mlp_out"]) < 0


def with_useless_mlp(family: str) -> tuple[Family, str]:
    """Return a new model whose second MLP adds almost nothing, and the path of its output matrix."""
    model = new_model(family)
    path = [path for path, one in bits._named_matrices(model) if one.name == "mlp_out"][1]
    with torch.no_grad():
        bits.saved_tensors(model.network)[path].mul_(1e-6)
    return model, path


@pytest.mark.parametrize("family", ["chronos-bolt", "patchtst", "patchtst-fm"])
def test_a_useless_branch_goes_first_and_takes_no_bytes(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All its matrices have 0 bits; the model is saved, loaded and exported with zeros."""
    # Any gain counts: one MLP of a tiny model has few of its bytes.
    monkeypatch.setattr(bits, "LARGEST_CHANGE", 1.0)
    (model, path), windows = with_useless_mlp(family), stock_windows(family)
    base, plan = copy.deepcopy(model), bits.measure(model, [windows])
    own = next(paths for paths in bits._branch_paths(model, univariate=False) if path in paths)
    effect, numbers = min(plan.branches)
    assert {matrix.path for number in numbers for matrix in plan.choices[number].matrices} == own and effect < 1e-8
    rows = plan.apply(model, method_of(least_share(base, plan) + 0.04))
    matrices = [matrix for choice in plan.choices for matrix in choice.matrices]
    removed = {matrix.path for matrix, row in zip(matrices, rows, strict=True) if row["bits"] == 0}
    assert own <= removed
    assert all(bool(weight.any()) != (path in removed) for path, weight in rounded(model).items())
    found = answers(model, windows)
    export.save(model, tmp_path)
    with safe_open(tmp_path / COMPRESSED, "pt") as file:
        entries = json.loads(file.metadata()[RECORD]).values()
    assert sum(entry[:2] == [0, 0] for entry in entries) >= len(numbers)
    loaded = family_class(family).load(tmp_path)
    assert_equal(loaded, model)
    assert_same_when_dense(loaded, base, windows, found)
    # Weights that were loaded can be changed.
    with torch.no_grad():
        bits.saved_tensors(loaded.network)[path].add_(1)


@pytest.mark.parametrize("family", ["chronos-bolt", "chronos-t5", "toto-2"])
@pytest.mark.parametrize("spare", [0.0, 0.06])
def test_removal_never_changes_the_calibration_windows_more(family: str, spare: float) -> None:
    """Compared with the search that may remove nothing; with false effects of 0, only the comparison prevents it."""
    base, windows = new_model(family), stock_windows(family)
    plan = bits.measure(base, [windows])
    run_base = bits._runner(base, plan.windows)()
    method, changes = method_of(least_share(base, plan) + spare), []
    for branches in ((), plan.branches, [(0.0, numbers) for _, numbers in plan.branches]):
        model = copy.deepcopy(base)
        plan._replace(branches=branches).apply(model, method)
        changes.append(bits._distance(model, bits._runner(model, plan.windows)(), run_base))
    assert changes[1] <= changes[0] and changes[2] <= changes[0]


def test_attention_between_series_goes_only_if_single_series_are_forecast() -> None:
    model, windows = new_model("chronos-2"), stock_windows("chronos-2")
    counts = [len(bits.measure(model, [windows], univariate=univariate).branches) for univariate in (False, True)]
    assert counts[1] - counts[0] == len(model.blocks["encoder"])


@pytest.mark.parametrize("family", ["chronos-bolt", "patchtst-fm", "toto-2"])
def test_matrices_make_up_for_the_errors_of_those_before_them(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    base, windows = new_model(family), stock_windows(family)
    plan = bits.measure(base, [windows])
    fitted, plain, kept = (copy.deepcopy(base) for _ in range(3))
    method = method_of(least_share(base, plan) + 0.08)
    rows = plan.apply(fitted, method)
    with monkeypatch.context() as patch:
        # No inputs are near enough.
        patch.setattr(bits, "FARTHEST_INPUTS", 0.0)
        plan.apply(kept, method)
        patch.setattr(bits, "_fit_in_order", lambda *_: {})
        others = plan.apply(plain, method)
    assert_equal(kept, plain)
    assert [row["bits"] for row in rows] == [row["bits"] for row in others]
    expected = answers(base, windows)[-2]
    near, far = (np.square(answers(model, windows)[-2] - expected).mean() for model in (fitted, plain))
    assert near < far


@pytest.mark.parametrize(("family", "joined"), [
    ("lag-llama", {"k_proj v_proj": 2}), ("patchtst-fm", {"q_proj k_proj v_proj": 3}), ("timesfm", {}),
    ("toto-2", {"q_proj k_proj v_proj": 4, "fc1_value fc1_gate": 4}),
])  # fmt: skip
def test_matrices_that_a_file_joins_have_the_same_bits(family: str, joined: dict[str, int]) -> None:
    """Those of a file are packed with the bits of the widest of them."""
    model = new_model(family)
    plan = bits.measure(model, [stock_windows(family)])
    names = [" ".join(one.path.split(".")[-2] for one in choice.matrices) for choice in plan.choices]
    assert {name: names.count(name) for name in names if " " in name} == joined


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_weights_that_are_no_numbers_are_refused_in_one_line(toy: Any, windows: Windows, wrong: float) -> None:
    path, weight = list(rounded(toy).items())[5]
    weight[1, 1] = wrong
    with pytest.raises(ModelError, match=f"^{toy.name}: {re.escape(path)} contains NaN or infinity.*$"):
        bits.measure(toy, [windows])
    with pytest.raises(ModelError, match="bits 8: weights contain NaN or infinity"):
        bits.round_network(toy.network, 8)


def test_a_model_with_short_rows_only_is_refused(windows: Windows) -> None:
    model = family_class("chronos-bolt").new(TOYS["chronos-bolt"] | {"d_model": 8, "d_ff": 8, "d_kv": 4}, seed=0)
    with pytest.raises(ModelError, match="has no matrix with rows of 16 numbers or more"):
        bits.measure(model, [windows])


@pytest.mark.parametrize("family", ["chronos-bolt", "patchtst"])
def test_eight_bits_of_a_truncated_model_are_stored_as_such(family: str, tmp_path: Path) -> None:
    model = new_model(family)
    method = Method.model_validate({"method": "joint", "ranks": {"share": 0.5}, "bits": 8})
    compress(model, method)
    before, full = rounded(copy.deepcopy(model)), export.file_bytes(new_model(family))
    reduce_bits(model, method)
    for path, weight in rounded(model).items():
        assert float((weight - before[path]).norm() / before[path].norm()) < 0.01
    export.save(model, tmp_path)
    assert (tmp_path / COMPRESSED).stat().st_size < 0.5 * full
    loaded, windows = family_class(family).load(tmp_path), stock_windows(family)
    assert_equal(loaded, model)
    assert_same_when_dense(loaded, new_model(family), windows, answers(model, windows))


def test_a_weight_that_an_embedding_shares_is_not_fitted() -> None:
    model = family_class("chronos-t5").new_example(seed=0)
    tied = {path for path, weight in bits.saved_tensors(model.network).items() if weight is model.network.shared.weight}
    tokens = torch.zeros(1, 4, dtype=torch.int64)
    found = bits._paths_in_order(
        model.network.eval(), lambda: model.network(input_ids=tokens, decoder_input_ids=tokens)
    )
    assert model.network.lm_head.weight is model.network.shared.weight and tied
    assert found and not tied & {path for paths in found for path in paths}
