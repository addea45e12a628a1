"""Statistics of the loss against their definitions: autograd by the weights and by added zeros, no padding."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.tsfmscope.compression.test_export import CONFIGS, OWN
from tsfmscope.compression.loss_statistics import (
    LARGEST_NORM,
    LEAST_NORM,
    LossStatistics,
    gather_gradients,
    loss_batches,
)
from tsfmscope.errors import HealthError, ModelError
from tsfmscope.models.chronos_bolt import ChronosBolt
from tsfmscope.models.common.attention import NAMES
from tsfmscope.models.registry import family_class
from tsfmscope.models.types import TokenKind
from tsfmscope.series.calendar import window_dates
from tsfmscope.series.types import Windows


def seeded_loss(model: Any, parts: tuple[torch.Tensor, ...]) -> torch.Tensor:
    torch.manual_seed(0)
    loss: torch.Tensor = model.loss(*parts)
    return loss


def trace(model: Any, linears: Sequence[Any], parts: Any) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Inputs of each matrix, gradients of the loss by zeros added to its outputs, and its `weight.grad`."""
    inputs, zeros = dict[int, torch.Tensor](), dict[int, torch.Tensor]()

    def add_zeros(module: Any, arguments: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor:
        inputs[id(module)] = arguments[0].detach().clone()
        zeros[id(module)] = torch.zeros_like(output, requires_grad=True)
        return output + zeros[id(module)]

    handles = [linear.register_forward_hook(add_zeros) for linear in linears]
    model.network.zero_grad(set_to_none=False)
    seeded_loss(model, parts).backward()
    for handle in handles:
        handle.remove()
    rows = [(inputs[id(one)], zeros[id(one)].grad, one.weight.grad) for one in linears]
    return [tuple(part.flatten(0, -2).double().numpy().copy() for part in one) for one in rows]  # type: ignore[misc]


def define_statistics(traced: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]], sizes: list[int]) -> LossStatistics:
    """Statistics of one matrix by their definitions, from the rows of each group and its number of windows."""
    xs, gs = [], []
    for (x, g, _), size in zip(traced, sizes, strict=True):
        x, g = x[g.any(axis=1)], g[g.any(axis=1)] * size
        norms = np.linalg.norm(g, axis=1)
        mean = norms.mean() if len(norms) else 0.0
        targets = np.minimum(np.maximum(norms, LEAST_NORM * mean), LARGEST_NORM * mean)
        xs.append(x)
        gs.append(g / norms[:, None] * targets[:, None])
    x, g = np.concatenate(xs), np.concatenate(gs)
    count = max(1, len(x))
    gradients = np.stack([gradient for *_, gradient in traced])
    return LossStatistics(x.T @ x / count, np.abs(x).sum(axis=0) / count, g.T @ g / count, gradients)


def assert_same(found: LossStatistics, expected: LossStatistics) -> None:
    for name in ("inputs", "magnitudes", "outputs", "gradients"):
        ours, theirs = getattr(found, name), getattr(expected, name)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4 * np.abs(theirs).max() + 1e-12, err_msg=name)


@pytest.mark.parametrize("group", [1, 4])
def test_statistics_are_those_of_their_definitions_and_the_model_stays_as_it_is(
    toy: Any, windows: Windows, group: int
) -> None:
    """Groups of four and of fewer windows: the loss of each is a mean over its windows."""
    before, state, parts = (
        copy.deepcopy(toy.network.state_dict()),
        torch.random.get_rng_state(),
        [windows, windows.take([0])],
    )
    found = gather_gradients(toy, parts, group=group)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(tensor, before[name]) for name, tensor in toy.network.state_dict().items())
    assert all(parameter.grad is None for parameter in toy.network.parameters())
    points = [(layer.name, name) for layer in toy.attentions() for name in NAMES]
    linears = [layer.linear(name) for layer in toy.attentions() for name in NAMES]
    assert not any(linear._forward_hooks for linear in linears)
    assert [(layer, name) for layer, by_name in found.items() for name in by_name] == points
    batches = list(loss_batches(toy, parts, group))
    sizes = [len(batch[0]) for batch in batches]
    assert sizes == ([4, 2, 1] if group == 4 else [1] * 7)
    traced = [trace(toy, linears, batch) for batch in batches]
    for (layer, name), rows in zip(points, zip(*traced, strict=True), strict=True):
        assert_same(found[layer][name], define_statistics(rows, sizes))


@pytest.mark.parametrize("family", ["chronos-2", "patchtst", "timesfm-2.5", "lag-llama"])
def test_gradients_of_families_of_every_kind_are_those_by_their_weights(family: str, windows: Windows) -> None:
    """No family changes the recorded inputs or outputs in place, and dates reach the loss of Lag-Llama."""
    model = family_class(family).new((CONFIGS | OWN)[family], seed=0)
    found = gather_gradients(model, [windows])
    for layer in list(model.attentions())[:2]:
        for name in NAMES:
            gradients = []
            for parts in loss_batches(model, [windows], 4):
                assert len(parts) == (3 if model.dated else 2)
                (one,) = torch.autograd.grad(seeded_loss(model, parts), [layer.linear(name).weight])
                gradients.append(one.numpy())
            expected = np.stack(gradients)
            ours = found[layer.name][name].gradients
            np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-4 * np.abs(expected).max() + 1e-9)


def test_rows_of_padding_are_left_out(toy: Any, windows: Windows) -> None:
    valid = toy.tokenize(windows).kinds["encoder"] != TokenKind.PADDING
    assert not valid.all()
    layer = next(layer for layer in toy.attentions() if layer.stack == "encoder")
    (parts,) = loss_batches(toy, [windows], 6)
    ((x, *_),) = trace(toy, [layer.linear("k")], parts)
    rows = x.reshape(*valid.shape, -1)[valid]
    found = gather_gradients(toy, [windows], group=6)[layer.name]["k"]
    np.testing.assert_allclose(found.inputs, rows.T @ rows / len(rows), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.magnitudes, np.abs(rows).mean(axis=0), rtol=1e-6)


def test_frozen_weights_change_nothing(toys: dict[str, Any], windows: Windows) -> None:
    toy = copy.deepcopy(toys["chronos-t5"])
    expected = gather_gradients(toy, [windows])
    toy.network.requires_grad_(False)
    for layer, by_name in gather_gradients(toy, [windows]).items():
        for name, one in by_name.items():
            assert_same(one, expected[layer][name])


def test_matrices_that_no_softmax_needs_have_statistics_of_zero(toys: dict[str, Any], windows: Windows) -> None:
    found = gather_gradients(toys["chronos-bolt"], [windows])["decoder.1.self"]
    for name, one in found.items():
        parts = (one.inputs, one.magnitudes, one.outputs, one.gradients)
        assert [part.any() for part in parts] == [name in "vo"] * 4


def test_futures_are_cut_or_filled_to_the_horizon_of_the_loss_and_dates_go_with_them(windows: Windows) -> None:
    model = family_class("lag-llama").new(OWN["lag-llama"], seed=0)
    short = replace(windows, future=windows.future[:, :5])
    batches = list(loss_batches(model, [windows, short], 4))
    assert [len(parts[0]) for parts in batches] == [4, 2, 4, 2]
    context, future, dates = (torch.cat(column).numpy() for column in zip(*batches, strict=True))
    assert np.array_equal(context[:6], windows.context, equal_nan=True)
    assert np.array_equal(future[:6], windows.future[:, :5], equal_nan=True)
    assert np.array_equal(dates[6:], window_dates(short, 32).astype(np.int64))
    bolt: Any = family_class("chronos-bolt").new(CONFIGS["chronos-bolt"], seed=0)
    _, filled = next(loss_batches(bolt, [short], 6))
    assert filled.shape[1] == (bolt.loss_horizon or 5) and filled[:, 5:].isnan().all()


def spoil_loss(model: Any, factor: float) -> Callable[..., torch.Tensor]:
    loss = model.loss
    return lambda *parts: loss(*parts) * factor


@pytest.mark.parametrize(("factor", "name"), [(float("nan"), "the loss"), (3e38, "gradient|the loss")])
def test_a_loss_or_a_gradient_that_is_not_finite_is_an_error(
    toys: dict[str, Any], windows: Windows, monkeypatch: pytest.MonkeyPatch, factor: float, name: str
) -> None:
    model = toys["chronos-bolt"]
    monkeypatch.setattr(model, "loss", spoil_loss(model, factor))
    with pytest.raises(HealthError, match=f"({name}).* is not finite"):
        gather_gradients(model, [windows])
    assert not any(layer.linear("q")._forward_hooks for layer in model.attentions())


def test_models_without_attention_and_calibration_without_windows_are_errors(
    toys: dict[str, Any], windows: Windows
) -> None:
    class Silent(ChronosBolt):
        name = "silent"

        def attentions(self) -> Any:
            return iter(())

    with pytest.raises(ModelError, match="silent: got no attention layers"):
        gather_gradients(Silent(toys["chronos-bolt"].network), [windows])
    with pytest.raises(ModelError, match="got no calibration window"):
        gather_gradients(toys["chronos-bolt"], [windows.take([])])
