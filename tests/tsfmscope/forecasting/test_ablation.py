"""Parts of the network of every family, and forecasts without them, against networks whose weights are zero."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from tests.tsfmscope.models.families import FORECASTERS, example_model
from tsfmscope.forecasting import ablation
from tsfmscope.forecasting.ablation import KINDS, WAYS, Calls, Part, Site
from tsfmscope.series.types import Series, Windows
from tsfmscope.series.windows import last_windows

# Blocks of the form x + branch(norm(x)) whose branches end with one matrix. Toto 2 scales the stream too, the norms of
# Totem and PatchTST follow the sums, and the others have branches of another form.
PRE_NORM = [name for name in FORECASTERS if name not in ("toto-2", "totem", "ttm", "flowstate", "patchtst")]
SAMPLERS = ("chronos-t5", "wavetoken")


def draw_windows(count: int = 5, *, alike: bool = False) -> Windows:
    rng, steps = np.random.default_rng(0), np.arange(80)
    rows = [5 + np.sin(steps / 3 + number) + 0.2 * rng.normal(size=80) for number in range(count)]
    rows = [rows[0]] * count if alike else rows
    series = [Series("d", f"s{n}", row.astype(np.float32), freq="D", season=7) for n, row in enumerate(rows)]
    windows, _ = last_windows(series, context=48, horizon=12)
    return windows


def forecast(model: Any, windows: Windows, make_context: Any = contextlib.nullcontext) -> np.ndarray:
    return ablation.forecast_errors(model, [windows], samples=3, seed=0, make_context=make_context)


def find_calls(model: Any, windows: Windows) -> Calls:
    calls: Calls = {}
    forecast(model, windows, lambda donors: ablation.record_calls(model, calls, donors))
    return calls


def without(model: Any, windows: Windows, parts: Sequence[Part], way: str, calls: Calls) -> np.ndarray:
    return forecast(model, windows, lambda donors: ablation.without(parts, way, calls, donors))


def set_zero(module: Any) -> None:
    with torch.no_grad():
        for values in module.parameters():
            values.zero_()


@pytest.mark.parametrize("name", PRE_NORM)
def test_skipping_a_layer_is_zero_output_matrices(name: str) -> None:
    model, windows = example_model(name), draw_windows()
    calls = find_calls(model, windows)
    layer = next(part for part in ablation.list_parts(model, ["layer"], calls, {}))
    twin = copy.deepcopy(model)
    block = twin.blocks[layer.stack][0]
    for attention in twin.attentions():
        if (attention.stack, attention.layer) == (layer.stack, 1):
            set_zero(attention.linear("o"))
    for path, matrix in twin.mlp_paths().items():
        if matrix.startswith("mlp_out") and path in dict(block.named_modules()):
            set_zero(block.get_submodule(path))
    expected = forecast(twin, windows)
    np.testing.assert_allclose(without(model, windows, [layer], "skip", calls), expected, rtol=1e-4)
    assert not np.allclose(expected, forecast(model, windows), rtol=1e-6)


@pytest.mark.parametrize("name", [name for name in FORECASTERS if name not in ("ttm", "flowstate")])
def test_skipping_a_head_is_zero_columns_of_the_output_matrix(name: str) -> None:
    model, windows = example_model(name), draw_windows()
    calls = find_calls(model, windows)
    heads = [part for part in ablation.list_parts(model, ["head"], calls, {}) if part.layer == 1]
    twin = copy.deepcopy(model)
    attention = next(iter(twin.attentions()))
    own = [part for part in heads if part.stack == attention.stack and part.name.startswith(attention.kind)]
    assert len(own) == attention.heads
    width = attention.widths.value
    with torch.no_grad():
        attention.linear("o").weight[:, width : 2 * width] = 0
    np.testing.assert_allclose(without(model, windows, [own[1]], "skip", calls), forecast(twin, windows), rtol=1e-4)


@pytest.mark.parametrize("name", FORECASTERS)
def test_parts_of_every_family_can_be_skipped_and_weights_and_hooks_stay(name: str) -> None:
    model, windows = example_model(name), draw_windows(3)
    before = {key: value.clone() for key, value in model.network.state_dict().items()}
    calls = find_calls(model, windows)
    bases = ablation.directions(model, [model.tokenize(windows)], 0)
    parts = list(ablation.list_parts(model, KINDS, calls, bases))
    assert {part.stack for part in parts} == set(model.blocks)
    layers = sum(map(len, model.blocks.values()))
    assert sum(part.kind == "layer" for part in parts) == sum(part.kind == "mlp" for part in parts) == layers
    assert {"layer", "attention", "mlp", "directions"} <= {part.kind for part in parts}
    assert all(ablation.can_ablate(part, "skip", calls) for part in parts)
    assert any(ablation.can_ablate(part, "resample", calls) for part in parts) == (name not in SAMPLERS)
    intact = forecast(model, windows)
    for kind in KINDS:
        for part in [part for part in parts if part.kind == kind][:1]:
            for way in [way for way in WAYS if ablation.can_ablate(part, way, calls)]:
                assert np.isfinite(without(model, windows, [part], way, calls)).all()
    for way in WAYS:
        np.testing.assert_array_equal(without(model, windows, [], way, calls), intact)
    with pytest.raises(KeyError, match="stop"), ablation.without(parts, "skip", calls, np.arange(3)):
        raise KeyError("stop")
    np.testing.assert_array_equal(forecast(model, windows), intact)
    assert not any(m._forward_hooks or m._forward_pre_hooks for blocks in model.blocks.values() for m in blocks)
    assert all(torch.equal(value, before[key]) for key, value in model.network.state_dict().items())


@pytest.mark.parametrize("name", ["chronos-bolt", "chronos-2", "toto-2", "ttm", "totem", "flowstate"])
def test_means_and_other_windows_of_equal_windows_change_nothing(name: str) -> None:
    model, windows = example_model(name), draw_windows(4, alike=True)
    calls, intact = find_calls(model, windows), forecast(model, windows)
    parts = [part for part in ablation.list_parts(model, KINDS, calls, {}) if part.layer == 1]
    for part in parts:
        for way in ("mean", "resample"):
            if ablation.can_ablate(part, way, calls):
                np.testing.assert_allclose(without(model, windows, [part], way, calls), intact, rtol=1e-3)


def test_all_directions_together_are_the_layer() -> None:
    model, windows = example_model("chronos-bolt"), draw_windows()
    calls = find_calls(model, windows)
    bases = ablation.directions(model, [model.tokenize(windows)], 0)
    parts = [
        part for part in ablation.list_parts(model, KINDS, calls, bases) if (part.stack, part.layer) == ("encoder", 2)
    ]
    groups = [part for part in parts if part.kind == "directions"]
    layer = next(part for part in parts if part.kind == "layer")
    joint = without(model, windows, groups, "skip", calls)
    np.testing.assert_allclose(joint, without(model, windows, [layer], "skip", calls), rtol=1e-4)
    assert len({float(without(model, windows, [group], "skip", calls)[0].sum()) for group in groups}) == len(groups)


def test_directions_are_the_singular_vectors_of_what_a_layer_adds_and_their_groups_hold_the_shares() -> None:
    model, windows = example_model("patchtst"), draw_windows()
    tokens = model.tokenize(windows)
    bases = ablation.directions(model, [tokens], 0)
    states = [layer.states.reshape(-1, model.width) for layer in model.hidden_states(tokens) if not layer.normed]
    padded = tokens.kinds["encoder"].reshape(-1) == 1
    added = (states[1] - states[0])[~padded].astype(np.float64)
    values, vectors = np.linalg.svd(added, full_matrices=False)[1:]
    groups = bases["encoder", 1]
    whole = np.concatenate(groups, axis=1)
    np.testing.assert_allclose(whole.T @ whole, np.eye(model.width), atol=1e-9)
    np.testing.assert_allclose(np.abs(np.sum(whole[:, :3] * vectors[:3].T, axis=0)), 1, atol=1e-6)
    shares = np.cumsum(values**2) / np.sum(values**2)
    ends = np.cumsum([group.shape[1] for group in groups]).tolist()
    for end, share in zip(ends, (0.5, 0.9), strict=False):
        assert shares[end - 1] >= share
        assert end == 1 or shares[end - 2] < share


def test_a_value_is_replaced_as_worked_out_by_hand() -> None:
    value = torch.tensor([[[1.0, 2.0]], [[3.0, 6.0]], [[5.0, 1.0]]])
    donors = np.array([1, 2, 0])
    whole = Part("s", 1, "layer", "layer", (), ())
    first = Part("s", 1, "head", "head 1", (), (), columns=slice(0, 1))
    second = Part("s", 1, "directions", "direction 2", (), (), basis=torch.tensor([[0.0], [1.0]]))
    for part, way, expected in (
        (whole, "skip", [[0, 0], [0, 0], [0, 0]]), (whole, "mean", [[3, 3], [3, 3], [3, 3]]),
        (whole, "resample", [[3, 6], [5, 1], [1, 2]]), (first, "skip", [[0, 2], [0, 6], [0, 1]]),
        (first, "mean", [[3, 2], [3, 6], [3, 1]]), (second, "resample", [[1, 6], [3, 1], [5, 2]]),
    ):  # fmt: skip
        assert ablation._replace(part, way, 0, donors, value)[:, 0].tolist() == expected, (part.name, way)
        turned = ablation._replace(part, way, 1, donors, value.transpose(0, 1))
        assert turned[0].tolist() == expected, (part.name, way)


def test_two_samples_of_a_window_are_replaced_by_those_of_one_other_window() -> None:
    value = torch.arange(4.0)[:, None, None]
    part = Part("s", 1, "layer", "layer", (), ())
    assert ablation._replace(part, "resample", 0, np.array([1, 0]), value).flatten().tolist() == [2, 3, 0, 1]


@pytest.mark.parametrize("counts", [(2,), (3,), (1, 1), (3, 3, 3), (4, 2, 1, 1), (5, 1), (1,) * 7])
def test_donors_are_a_permutation_without_fixed_points_of_other_series_where_there_are_enough(
    counts: tuple[int, ...],
) -> None:
    series = [f"s{number}" for number, count in enumerate(counts) for _ in range(count)]
    for seed in range(5):
        donors = ablation.choose_donors(series, seed)
        assert sorted(donors.tolist()) == list(range(len(series)))
        assert not (donors == np.arange(len(series))).any()
        if 2 * max(counts) <= len(series):
            assert all(series[own] != series[other] for own, other in enumerate(donors.tolist()))
    assert ablation.choose_donors(["a"], 0).tolist() == [0]


def test_products_and_bytes_are_counted() -> None:
    network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2, bias=False))
    products = ablation.count_products(network, lambda: network(torch.zeros(5, 3)))
    assert [products.get(module, 0) for module in network] == [60, 0, 40]
    part = Part("s", 1, "head", "head 1", (Site(network),), (), ((network, 0.5),))
    assert part.count(lambda module: products.get(module, 0)) == 50
    assert np.isnan(Part("s", 1, "directions", "direction 1", (), ()).count(lambda module: 1))


def test_narrow_factors_and_low_precision_are_set_to_zero_and_restored() -> None:
    from tsfmscope.models.common.layers import LowRank

    output = LowRank(6, 4, 2, bias=True)
    torch.nn.init.normal_(output.wide.bias)
    before = {key: value.clone() for key, value in output.state_dict().items()}
    states = torch.randn(3, 6)
    whole = Part("s", 1, "attention", "attention", (Site(output),), (output,))
    with ablation.without([whole], "skip", {}, np.arange(3)):
        assert not output(states).any()
    head = Part("s", 1, "head", "head 1", (Site(output, "input"),), (output,), columns=slice(0, 3))
    changed = states.clone()
    changed[:, :3] = 0
    with ablation.without([head], "skip", {}, np.arange(3)):
        after = output(states)
    torch.testing.assert_close(after, output(changed))
    assert all(torch.equal(value, before[key]) for key, value in output.state_dict().items())
