"""Healing: the distance to the dense model falls on series that are not trained on, and never rises."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.tsfmscope.models.families import COMPRESSED, FORECASTERS
from tsfmscope.compression import bits, export
from tsfmscope.compression.options import Method
from tsfmscope.compression.schedules import factorise
from tsfmscope.compression.truncation import compress
from tsfmscope.errors import HealthError, ModelError
from tsfmscope.models.common.attention import shapes
from tsfmscope.models.common.layers import factors
from tsfmscope.models.common.low_bits import SHORTEST, find_grid
from tsfmscope.models.registry import family_class
from tsfmscope.series.calendar import window_dates
from tsfmscope.series.types import Windows
from tsfmscope.training import healing
from tsfmscope.training.healing import Check, heal, loss_batches

JOINT = Method.model_validate({"method": "joint", "ranks": {"share": 0.5}})


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(healing, "BATCH", 4)


@pytest.fixture(scope="module")
def windows() -> Windows:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(6, 60)).cumsum(axis=1).astype(np.float32)
    values[:2, :13] = np.nan
    return Windows(values[:, :48], values[:, 48:], [f"s{n}" for n in range(6)], np.full(6, 48), "walks", "D", 1)


def pair(family: str, method: Mapping[str, Any] = JOINT) -> tuple[Any, Any]:
    """Return a compressed model and its dense original."""
    dense = family_class(family).new_example(seed=0)
    small = copy.deepcopy(dense)
    compress(small, method)
    return small, dense


def weights(model: Any) -> dict[str, np.ndarray]:
    return {name: tensor.numpy().copy() for name, tensor in model.network.state_dict().items()}


def are_equal(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> bool:
    return ours.keys() == theirs.keys() and all(np.array_equal(ours[name], theirs[name]) for name in ours)


def test_the_distance_falls_the_ranks_stay_and_the_model_is_saved_as_before(windows: Windows, tmp_path: Path) -> None:
    small, dense = pair("chronos-bolt", Method.model_validate({"method": "svd", "ranks": {"share": 0.5}}))
    layers = list(small.attentions())
    ranks, widths, before = factors(layers), shapes(layers), weights(dense)
    steps: list[tuple[int, int]] = []
    checks = heal(small, dense, [windows], steps=40, learning_rate=3e-3, watch=lambda *done: steps.append(done))
    assert [check.step for check in checks] == [0, 7, 14, 21, 28, 35, 40] and steps[-1] == (40, 40)
    assert min(check.error for check in checks) < 0.9 * checks[0].error
    layers = list(small.attentions())
    assert ranks and (factors(layers), shapes(layers)) == (ranks, widths)
    assert are_equal(weights(dense), before)
    after = weights(small)
    assert all(np.array_equal(after[name], before[name]) for name in after if "Attention" not in name)

    forecast = small.forecast(windows, seeds=[0] * 6).values
    export.save(small, tmp_path / "small")
    loaded = family_class("chronos-bolt").load(tmp_path / "small")
    np.testing.assert_allclose(loaded.forecast(windows, seeds=[0] * 6).values, forecast, rtol=1e-5, atol=1e-5)
    export.save(export.densify(loaded), tmp_path / "dense")
    stock = family_class("chronos-bolt").load(tmp_path / "dense")
    np.testing.assert_allclose(stock.forecast(windows, seeds=[0] * 6).values, forecast, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "family",
    [name for name in FORECASTERS if name in COMPRESSED and name not in ("chronos-bolt", "timesfm", "wavetoken")],
)
def test_families_of_every_kind_of_output_are_healed(family: str, windows: Windows) -> None:
    small, dense = pair(family)
    first, *others = heal(small, dense, [windows], steps=2)
    assert first.error > 0 and len(others) == 2 and all(np.isfinite(check.error) for check in others)
    # The dense model is at no distance from itself.
    assert heal(copy.deepcopy(dense), dense, [windows], steps=1)[0] == Check(0, 0.0)


def test_the_distance_is_the_mean_over_windows_of_the_errors_of_scaled_quantiles(windows: Windows) -> None:
    """Recomputed from the package's output, in units of the context's standard deviation; then the geometric mean."""

    small, dense = pair("chronos-bolt")
    random = healing._Batches(dense, [windows], 0)(0, healing.VALIDATION)[0].numpy()
    by_hand = []
    for context in (random, windows.context, windows.context[:3]):
        with torch.no_grad():
            inputs = torch.from_numpy(context)
            ours, theirs = (model.network(context=inputs).quantile_preds.numpy() for model in (small, dense))
        # The package takes 1e-5 for a scale of 0.
        scale = np.maximum(np.nanstd(context, axis=1), 1e-5)
        by_hand.append((np.abs(ours - theirs).mean(axis=(1, 2)) / scale).mean())
    expected = np.sqrt(by_hand[0] * np.sqrt(by_hand[1] * by_hand[2]))
    assert heal(small, dense, [windows, windows.take([0, 1, 2])], steps=1)[0].error == pytest.approx(expected, rel=1e-3)


def test_a_training_that_only_hurts_leaves_the_weights_from_before(windows: Windows) -> None:
    small, dense = pair("chronos-bolt")
    before = weights(small)
    checks = heal(small, dense, [windows], steps=6, learning_rate=30.0)
    assert all(check.error > checks[0].error for check in checks[1:])
    assert are_equal(weights(small), before)


def test_the_seed_determines_the_weights(windows: Windows) -> None:
    small, dense = pair("chronos-bolt")
    healed = [copy.deepcopy(small) for _ in range(3)]
    for model, seed in zip(healed, (0, 0, 1), strict=True):
        heal(model, dense, [windows], steps=3, seed=seed)
    first, second, other = map(weights, healed)
    assert are_equal(first, second) and not are_equal(first, other)


def test_a_distance_that_is_not_finite_is_an_error_and_leaves_the_weights_from_before(windows: Windows) -> None:
    small, dense = pair("chronos-bolt")
    before = weights(small)
    with pytest.raises(HealthError, match=r"is nan at step \d, expected a finite number; the model is as before"):
        heal(small, dense, [windows], steps=4, learning_rate=1e30)
    assert are_equal(weights(small), before)


def test_an_interrupted_healing_leaves_the_weights_from_before(windows: Windows) -> None:
    small, dense = pair("chronos-bolt")
    before = weights(small)

    def interrupt(step: int, steps: int) -> None:
        if step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        heal(small, dense, [windows], steps=4, watch=interrupt)
    assert are_equal(weights(small), before)


@pytest.mark.parametrize("family", ["chronos-bolt", "chronos-t5"])
def test_of_a_rounded_model_scales_and_vectors_are_trained_and_numbers_and_bytes_stay(
    family: str, windows: Windows
) -> None:
    dense = family_class(family).new_example(seed=0)
    small = copy.deepcopy(dense)
    method = Method.model_validate({"method": "whole-model", "ranks": {"bytes": 0.4}})
    rows = bits.measure(small, [windows]).apply(small, method)
    before, size = weights(small), export.file_bytes(small)

    def interrupt(step: int, steps: int) -> None:
        if step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        heal(small, dense, [windows], steps=9, watch=interrupt)
    assert are_equal(weights(small), before)
    checks = heal(small, dense, [windows], steps=60, learning_rate=3e-3)
    assert min(check.error for check in checks) < 0.95 * checks[0].error
    after = weights(small)
    assert after.keys() == before.keys() and export.file_bytes(small) <= size
    changed = {name for name in after if not np.array_equal(after[name], before[name])}
    matrices = {name for name in changed if after[name].ndim == 2 and after[name].shape[1] >= SHORTEST}
    assert matrices and changed - matrices
    for name in matrices:
        found = find_grid(after[name])
        assert found is not None and found.bits <= max(row["bits"] for row in rows)
        # Each group is the former one, times a factor.
        width = found.group or after[name].shape[1]
        for ours, theirs in zip(after[name].reshape(-1, width), before[name].reshape(-1, width), strict=True):
            ratios = ours[theirs != 0] / theirs[theirs != 0]
            assert not ours[theirs == 0].any() and np.ptp(ratios) <= 1e-6 * np.abs(ratios).max(initial=1e-9)


def test_factors_that_heads_share_stay_factors(windows: Windows) -> None:
    small, dense = pair("chronos-bolt")
    small = copy.deepcopy(dense)
    factorise(small, {layer.name: 2 for layer in small.attentions()})
    before = weights(small)
    heal(small, dense, [windows], steps=4)
    assert all(parameter.requires_grad for parameter in small.network.parameters())
    assert weights(small).keys() == before.keys() and not are_equal(weights(small), before)
    ranks = [np.linalg.matrix_rank(layer.linear("q").weight.detach().numpy()) for layer in small.attentions()]
    assert ranks == [2] * len(ranks)


def test_a_family_that_reads_no_series_is_refused(windows: Windows) -> None:
    small, dense = pair("t5-text")
    with pytest.raises(ModelError, match="t5-text: cannot be healed"):
        heal(small, dense, [windows], steps=1)


def test_futures_are_cut_or_filled_to_the_horizon_of_the_loss_and_dates_go_with_them(windows: Windows) -> None:
    model = family_class("lag-llama").new(dict(family_class("lag-llama").example), seed=0)
    short = replace(windows, future=windows.future[:, :5])
    batches = list(loss_batches(model, [windows, short], 4))
    assert [len(parts[0]) for parts in batches] == [4, 2, 4, 2]
    context, future, dates = (torch.cat(column).numpy() for column in zip(*batches, strict=True))
    assert np.array_equal(context[:6], windows.context, equal_nan=True)
    assert np.array_equal(future[:6], windows.future[:, :5], equal_nan=True)
    assert np.array_equal(dates[6:], window_dates(short, 48).astype(np.int64))
    bolt: Any = family_class("chronos-bolt").new(dict(family_class("chronos-bolt").example), seed=0)
    _, filled = next(loss_batches(bolt, [short], 6))
    assert filled.shape[1] == (bolt.loss_horizon or 5) and filled[:, 5:].isnan().all()
