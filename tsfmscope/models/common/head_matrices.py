"""Weight matrices of attention heads: the numbers of heads, their parts, and the pairs of W_Q and W_K."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tsfmscope.models.types import WeightMatrix

if TYPE_CHECKING:
    from tsfmscope.models.base import Family

# Stack, layer, attention, what.
Place = tuple[str, int, str | None, str]
# Heads are groups of rows of q, k and v, and of columns of o.
SIDES = ("rows", "columns")


class Projections(NamedTuple):
    """W_Q and W_K of one self-attention, [h d_h, d], head after head, without biases."""

    query: np.ndarray
    key: np.ndarray
    heads: int


def projections(model: Family) -> dict[tuple[str, int], Projections]:
    """Return, for each (stack, layer), W_Q and W_K of its self-attention in float64."""
    by_key: dict[tuple[str, int], dict[str, Any]] = {}
    for weight in model.weights():
        if weight.attention == "self" and weight.name in ("q", "k"):
            by_key.setdefault((weight.stack, weight.layer), {})[weight.name] = weight
    return {
        key: Projections(pair["q"].matrix.astype(np.float64), pair["k"].matrix.astype(np.float64), pair["q"].heads)
        for key, pair in by_key.items()
    }


def head_counts(model: Family) -> dict[Place, int]:
    """Return the number of heads of q, k, v and o of each attention.

    With grouped attention, k and v have fewer heads than `heads`: the rows of k over the rows of one query
    head. ValueError where that is not a whole number.
    """
    counts: dict[Place, int] = {}
    widths = {
        (weight.stack, weight.layer, weight.attention): len(split_heads(weight, weight.heads or 1)[0])
        for weight in model.weights()
        if weight.name == "q"
    }
    for weight in model.weights():
        key, rows = (weight.stack, weight.layer, weight.attention), len(weight.matrix)
        if weight.heads and weight.name in ("q", "o"):
            counts[*key, weight.name] = weight.heads
        elif weight.heads and weight.name == "k":
            width = widths[key]
            if rows % width or not rows:
                raise ValueError(f"{_name(weight)}: got {rows} rows, expected heads of {width} rows")
            counts[*key, "k"] = counts[*key, "v"] = rows // width
    return counts


def split_heads(weight: WeightMatrix, count: int) -> list[np.ndarray]:
    """Return the heads of a matrix: parts [d_h, in] of q, k or v, and [out, d_h] of o.

    ValueError where `count` does not divide the rows (or the columns of o).
    """
    axis = 1 if weight.name == "o" else 0
    if weight.matrix.shape[axis] % count:
        raise ValueError(
            f"{_name(weight)}: got {weight.matrix.shape[axis]} {SIDES[axis]}, expected a multiple of {count}"
        )
    return np.split(weight.matrix, count, axis=axis)


def _name(weight: WeightMatrix) -> str:
    return f"{weight.stack} block {weight.layer} {weight.name}"
