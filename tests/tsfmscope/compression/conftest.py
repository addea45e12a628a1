"""Toy models of two families, and windows with padding."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from tsfmscope.models.registry import family_class
from tsfmscope.series.types import Windows

# A busy machine may take longer for one example than the default of 0.2 s.
settings.register_profile("compression", deadline=None)
settings.load_profile("compression")

T5: dict[str, Any] = {"d_model": 16, "d_ff": 32, "d_kv": 8, "num_heads": 2, "num_layers": 2, "num_decoder_layers": 2}
T5 |= {"context_length": 32, "prediction_length": 8, "dropout_rate": 0.0, "initializer_factor": 1.0}
TOYS = {"chronos-t5": {**T5, "n_tokens": 64}, "chronos-bolt": {**T5, "input_patch_size": 4, "input_patch_stride": 4}}


@pytest.fixture(scope="module")
def toys() -> dict[str, Any]:
    return {name: family_class(name).new(config, seed=0) for name, config in TOYS.items()}


@pytest.fixture(params=sorted(TOYS))
def toy(request: pytest.FixtureRequest, toys: dict[str, Any]) -> Any:
    return copy.deepcopy(toys[request.param])


@pytest.fixture(scope="session")
def windows() -> Windows:
    """Six random walks, the first steps of two of them missing."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(6, 40)).cumsum(axis=1).astype(np.float32)
    values[:2, :13] = np.nan
    names = [f"s{i}" for i in range(6)]
    return Windows(values[:, :32], values[:, 32:], names, np.full(6, 32), "walks", "D", 1)
