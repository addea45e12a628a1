"""Matrices that a family declares idle: exactly those that change no forecast."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from tests.tsfmscope.compression.test_export import CONFIGS, OWN, stock_windows
from tsfmscope.compression.candidates import inert_matrices
from tsfmscope.models.base import Family, Forecaster
from tsfmscope.models.registry import family_class
from tsfmscope.series.types import Windows


@pytest.mark.parametrize("name", [*CONFIGS, *OWN])
def test_idle_queries_and_keys_are_exactly_those_that_change_nothing(name: str) -> None:
    """Weights of zero, kind of attention by kind: what comes out is the same to the last bit, or differs."""
    model = family_class(name).new((CONFIGS | OWN)[name], seed=1)
    before, windows = {}, stock_windows(name)
    answer = forecast_or_states(model, windows)
    for layer in model.attentions():
        before.setdefault((layer.stack, layer.kind), []).append(layer.name)
    for (stack, kind), names in before.items():
        zeroed = copy.deepcopy(model)
        for layer in zeroed.attentions():
            if layer.name in names:
                set_to_zero(layer)
        is_same = np.array_equal(forecast_or_states(zeroed, windows), answer)
        assert (
            is_same
            == ((stack, kind, "q") in model.inert_projections)
            == ((stack, kind, "k") in model.inert_projections)
        ), (stack, kind)


def test_group_attention_is_inert_only_for_single_series() -> None:
    chronos_2 = family_class("chronos-2").new(CONFIGS["chronos-2"], seed=0)
    assert inert_matrices(chronos_2, univariate=True) == chronos_2.inert_projections != frozenset()
    assert inert_matrices(chronos_2, univariate=False) == frozenset()
    bolt = family_class("chronos-bolt").new(CONFIGS["chronos-bolt"], seed=0)
    assert (
        inert_matrices(bolt, univariate=True)
        == inert_matrices(bolt, univariate=False)
        == bolt.inert_projections
        != frozenset()
    )


def set_to_zero(layer: Any) -> None:
    """Queries and keys of zero, whose scores are all alike."""
    with torch.no_grad():
        for what in "qk":
            for parameter in layer.linear(what).parameters():
                parameter.zero_()


def forecast_or_states(model: Family, windows: Windows) -> np.ndarray:
    """Forecasts, or the last states of a family that does not forecast."""
    if isinstance(model, Forecaster):
        return model.forecast(windows, seeds=[0] * len(windows)).values
    *_, last = model.hidden_states(model.tokenize(windows))
    return last.states
