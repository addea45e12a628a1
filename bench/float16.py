"""What a float16 store changes in every measure of the geometry; bench/embedding.py prints it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tasks.geometry.dimension import effective_dimension
from tasks.geometry.measure import PRESETS, measure_states
from tasks.models.base import Family
from tasks.models.types import Tokens

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)  # ε of the effective dimension


def half_changes(family: Family, tokens: Tokens, kept: Mapping[str, np.ndarray]) -> dict[str, float]:
    """The largest change of each measure when the first and last states of a stack go through float16.

    Eigenvalues are taken relative to the largest; a list that changes its length, or a value that appears, is infinite.
    """
    found: dict[str, float] = {}
    for layer in family.hidden_states(tokens, kept):
        if 0 < layer.layer < family.layers[layer.stack]:
            continue
        types = tokens.types.get(layer.stack)
        types = None if types is None else types.reshape(-1)[kept[layer.stack]]
        full, half = (
            measure_states(states.astype(np.float32), types, presets=PRESETS, seed=0)
            for states in (layer.states, layer.states.astype(np.float16))
        )
        for name in full:
            if name not in ("n_tokens", "n_types", "n_zero", "reason"):
                found[name] = max(found.get(name, 0.0), _change(name, full, half))
        for level in LEVELS if full["eigenvalues"] and half["eigenvalues"] else ():
            one, other = (effective_dimension(np.array(row["eigenvalues"]), level) for row in (full, half))
            found[f"d({level})"] = max(found.get(f"d({level})", 0.0), float(abs(one - other)))
    return found


def _change(name: str, full: Mapping[str, Any], half: Mapping[str, Any]) -> float:
    one, other = full[name], half[name]
    if one is None or other is None:
        return 0.0 if one is other else math.inf
    one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
    if one.shape != other.shape:
        return math.inf
    scale = one.max(initial=0.0) if name == "eigenvalues" else 1.0
    return float(np.abs(one - other).max(initial=0.0) / (scale or 1.0))
