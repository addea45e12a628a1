"""Changes that a float16 store makes in every measure of the geometry; bench/embedding.py prints them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tsfmscope.geometry.measures import measure_states, presets
from tsfmscope.geometry.spectrum import effective_dimension
from tsfmscope.models.base import Family
from tsfmscope.models.types import Tokens

# shares of variance of the effective dimension
LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)


def half_changes(family: Family, tokens: Tokens, rows: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Return the largest change of each measure if first and last states of a stack are rounded to float16.

    Eigenvalues are relative to the largest. The change is infinite if a list changes its length, or if a
    value is null on one side only.
    """
    changes: dict[str, float] = {}
    for layer in family.hidden_states(tokens, rows):
        if 0 < layer.layer < family.layers[layer.stack]:
            continue
        types = tokens.types.get(layer.stack)
        types = None if types is None else types.reshape(-1)[rows[layer.stack]]
        full, half = (
            measure_states(states.astype(np.float32), types, presets=presets(), seed=0)
            for states in (layer.states, layer.states.astype(np.float16))
        )
        for name in full:
            if name not in ("n_tokens", "n_types", "n_zero", "reason"):
                changes[name] = max(changes.get(name, 0.0), _change(name, full, half))
        for level in LEVELS if full["eigenvalues"] and half["eigenvalues"] else ():
            first, second = (effective_dimension(np.array(row["eigenvalues"]), level) for row in (full, half))
            changes[f"d({level})"] = max(changes.get(f"d({level})", 0.0), float(abs(first - second)))
    return changes


def _change(name: str, full: Mapping[str, Any], half: Mapping[str, Any]) -> float:
    first, second = full[name], half[name]
    if first is None or second is None:
        return 0.0 if first is second else math.inf
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if first.shape != second.shape:
        return math.inf
    scale = first.max(initial=0.0) if name == "eigenvalues" else 1.0
    return float(np.abs(first - second).max(initial=0.0) / (scale or 1.0))
