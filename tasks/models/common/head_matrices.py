"""Weight matrices of attention heads: the numbers of heads, their parts, and the pairs of W_Q and W_K."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tsfmscope.tasks.models.types import WeightMatrix

if TYPE_CHECKING:
    from tsfmscope.tasks.models.base import Family

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
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for one in model.weights():
        if one.attention == "self" and one.name in ("q", "k"):
            found.setdefault((one.stack, one.layer), {})[one.name] = one
    return {
        where: Projections(pair["q"].matrix.astype(np.float64), pair["k"].matrix.astype(np.float64), pair["q"].heads)
        for where, pair in found.items()
    }


def head_counts(model: Family) -> dict[Place, int]:
    """Return the number of heads of q, k, v and o of each attention.

    With grouped attention, k and v have fewer heads than `heads`: the rows of k over the rows of one query
    head. ValueError where that is not a whole number.
    """
    found: dict[Place, int] = {}
    widths = {(one.stack, one.layer, one.attention): _width(one) for one in model.weights() if one.name == "q"}
    for one in model.weights():
        where, rows = (one.stack, one.layer, one.attention), len(one.matrix)
        if one.heads and one.name in ("q", "o"):
            found[*where, one.name] = one.heads
        elif one.heads and one.name == "k":
            width = widths[where]
            if rows % width or not rows:
                raise ValueError(f"{_name(one)}: got {rows} rows, expected heads of {width} rows")
            found[*where, "k"] = found[*where, "v"] = rows // width
    return found


def split_heads(one: WeightMatrix, count: int) -> list[np.ndarray]:
    """Return the heads of a matrix: parts [d_h, in] of q, k or v, and [out, d_h] of o.

    ValueError where `count` does not divide the rows (or the columns of o).
    """
    axis = 1 if one.name == "o" else 0
    if one.matrix.shape[axis] % count:
        raise ValueError(f"{_name(one)}: got {one.matrix.shape[axis]} {SIDES[axis]}, expected a multiple of {count}")
    return np.split(one.matrix, count, axis=axis)


def _width(query: WeightMatrix) -> int:
    """Return the number of rows of one query head."""
    return len(split_heads(query, query.heads or 1)[0])


def _name(one: WeightMatrix) -> str:
    return f"{one.stack} block {one.layer} {one.name}"
