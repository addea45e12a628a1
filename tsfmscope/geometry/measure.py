"""All geometry measures of one layer's states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Integer

from tsfmscope.geometry.cosine import inter_token_cosine
from tsfmscope.geometry.measures import LEAST_ROWS, States, requested_measures, unmeasured_columns
from tsfmscope.geometry.options import IsotropyOptions

# Range of the largest entry in which squares and their products stay inside float64.
SMALL, LARGE = 1e-100, 1e100
# Columns with one value per direction, or per candidate number of clusters.
LIST_COLUMNS = tuple(name for name, value in unmeasured_columns().items() if isinstance(value, list))


def subsample(
    states: Float[np.ndarray, "token width"], types: Integer[np.ndarray, " token"] | None, tokens: int, *, seed: int
) -> tuple[np.ndarray, np.ndarray | None]:
    """Draw at most `tokens` rows without replacement, in their order: ζ, d(0.8) and K depend on N."""
    if len(states) <= tokens:
        return states, types
    rows = np.sort(np.random.default_rng([seed, 2]).choice(len(states), tokens, replace=False))
    return states[rows], None if types is None else types[rows]


def measure_states(
    states: Float[np.ndarray, "token width"],
    types: Integer[np.ndarray, " token"] | None = None,
    options: IsotropyOptions | None = None,
    *,
    presets: Sequence[str] = ("isoscore",),
    seed: int,
) -> dict[str, Any]:
    """Compute the measures of docs/science.md, Isotropy, as columns of `geometry`.

    Source: Shelim et al. 2025, eqs. 1, 5 and 6, and section 4.1. presets: measures of other papers to add.

    Rows of norm 0 are counted in n_tokens and n_zero and left out of every measure. A measure that the states
    do not define (one token, one type, equal rows, all zero) is None, or an empty list for a list column, and
    `reason` gives the cause. No measure is ever NaN. Raises ValueError for a wrong shape, for NaN or infinity
    (with the number of rows), and for an unknown preset.
    """
    measures = requested_measures(presets)
    check_states(states, types)
    cosine = inter_token_cosine(states, types)
    is_used = np.asarray(states).any(axis=1)
    rows = np.asarray(states)[is_used].astype(np.float64)
    row = unmeasured_columns() | {"n_tokens": len(states), "n_types": cosine.n_types, "n_zero": cosine.n_zero}
    if len(rows) < LEAST_ROWS:
        return row | {"reason": f"{len(rows)} rows that are not zero; at least {LEAST_ROWS} are needed"}
    used_types = None if types is None else np.asarray(types)[is_used]
    layer = States(rows, used_types, cosine, options or IsotropyOptions(), seed)
    reasons = []
    for measure in measures:
        values = dict(measure.compute(layer))
        reasons.append(values.pop("reason", None))
        row |= values
    return row | {"reason": "; ".join(filter(None, reasons)) or None}


def check_states(states: np.ndarray, types: np.ndarray | None) -> None:
    """Raise ValueError unless the states are [N, d], finite, of usable size, and have one type per row."""
    if states.ndim != 2 or states.shape[1] < 1:
        raise ValueError(f"states: got shape {states.shape}, expected [token, width]")
    if types is not None and np.shape(types) != (len(states),):
        raise ValueError(f"types: got shape {np.shape(types)}, expected one per row, ({len(states)},)")
    bad = int(np.count_nonzero(~np.isfinite(states).all(axis=1)))
    if bad:
        raise ValueError(f"states: {bad} of {len(states)} rows contain NaN or infinity; check the model and its dtype")
    largest = float(np.abs(states).max(initial=0))
    if largest and not SMALL <= largest <= LARGE:
        raise ValueError(f"states: largest entry {largest:.3g}, expected 0 or {SMALL:g} to {LARGE:g}; scale them")
