"""Floors of the scaling: where a family's states depend on the unit of the series, and the note that says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tsfmscope as ts
from tests.tsfmscope.models.families import CLASSES, FORECASTERS, example_model
from tsfmscope.compression.record import NO_CALIBRATION
from tsfmscope.functions.load import Model
from tsfmscope.models.base import NEAR_FLOOR
from tsfmscope.series.types import Series
from tsfmscope.series.windows import last_contexts

FLOORED = [name for name in FORECASTERS if CLASSES[name].deviation_floor]
# Standard deviation of the series in the reference unit, where every floor is negligible.
REFERENCE = 100.0


def walks(deviation: float, steps: int = 64) -> np.ndarray:
    """Return two exchange rates: random walks around ten of their standard deviations."""
    values = np.random.default_rng(0).normal(size=(2, steps)).cumsum(axis=1)
    values /= values.std(axis=1, keepdims=True)
    return np.asarray((values + 10.0) * deviation, dtype=np.float32)


def vectors(family: Any, deviation: float) -> np.ndarray:
    """Return the states of the observed tokens of the last layer of the first stack."""
    series = [Series("data", str(i), row) for i, row in enumerate(walks(deviation))]
    tokens, stack = family.tokenize(last_contexts(series, 64)), family.stacks[0]
    rows = np.flatnonzero(tokens.kinds[stack].ravel() == ts.TokenKind.OBSERVATION)
    states: np.ndarray = [layer.states for layer in family.hidden_states(tokens, {stack: rows})][-1]
    return states


def change(family: Any, deviation: float) -> float:
    reference = vectors(family, REFERENCE)
    return float(np.linalg.norm(vectors(family, deviation) - reference) / np.linalg.norm(reference))


@pytest.mark.parametrize("name", ["moirai", "moirai-2", "patchtst", "timesfm"])
def test_a_declared_floor_is_that_of_the_package_or_the_config(name: str) -> None:
    family = example_model(name)
    if name == "timesfm":
        found = family.network.config.tolerance
    else:
        scaler = family.network.model.scaler.scaler if name == "patchtst" else family.network.scaler
        found = scaler.minimum_scale**0.5
    assert found == pytest.approx(family.deviation_floor)


@pytest.mark.parametrize("name", FLOORED)
def test_states_depend_on_the_unit_below_the_floor_and_not_far_above(name: str) -> None:
    family = example_model(name)
    assert change(family, 0.3 * family.deviation_floor) > 0.01
    # FlowState and TimesFM scale by a part of the context, which varies less than the whole.
    assert change(family, 300 * family.deviation_floor) < 5e-3


@pytest.mark.parametrize("name", [name for name in FORECASTERS if name not in (*FLOORED, "lag-llama")])
def test_families_without_a_floor_have_the_same_states_in_every_unit(name: str) -> None:
    assert change(example_model(name), 1e-9) < 1e-4


@pytest.mark.parametrize("name", FLOORED)
def test_a_note_counts_contexts_near_the_floor_only_in_the_small_unit(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    family: Any = example_model(name)
    model = Model("example", family, ts.load("chronos-bolt-mini").source, "cpu", NO_CALIBRATION)
    rates = walks(100 * family.deviation_floor)
    note = f"data: 2 of 2 contexts have a standard deviation of at most {NEAR_FLOOR * family.deviation_floor:.2g}"
    ts.embed(model, rates, context=64)
    assert not any(note in line for line in caplog.messages)
    ts.embed(model, rates * np.float32(0.001), context=64)
    assert any(note in line and "docs/models.md" in line for line in caplog.messages)
    # A constant context has the same states in every unit.
    constant = np.full((3, 64), 1e-9, np.float32)
    assert family.count_near_floor(constant) == 0


def test_every_command_that_measures_or_scores_has_the_note(caplog: pytest.LogCaptureFixture) -> None:
    rates = walks(1.0, steps=200) * np.float32(0.001)
    note = "contexts have a standard deviation of at most 0.032, where results of"

    def count() -> int:
        number = sum(note in line for line in caplog.messages)
        caplog.clear()
        return number

    model = ts.load("ttm-mini")
    ts.inspect(model, rates, context=64, horizon=8, rows=50)
    assert count() == 1
    ts.states(model, rates, context=64, horizon=8, rows=50)
    assert count() == 1
    ts.certify(model, ts.load("moirai-mini"), [rates], context=64, horizon=8)
    assert count() == 2
    ts.compress("patchtst-mini", rates, method="svd", context=64, horizon=8)
    assert count() == 1
