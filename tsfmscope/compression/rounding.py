"""Rounding of a matrix to few bits so that its outputs change little, given the second moments of its inputs."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Float32

# Columns that are rounded one by one before the rest of the matrix is corrected.
BLOCK = 32
# Share of the mean squared input that is added to all of them, so that the moments can be inverted.
DAMPING = 0.01
# Candidates for the scale of a group, relative to the one with which its largest number fills the range.
FACTORS = np.linspace(0.4, 1.1, 36)
# Passes over the columns that round each again, with all others as they are.
SWEEPS = 4


def round_plainly(
    weight: Float[np.ndarray, "row column"], bits: int, group: int, importance: Float[np.ndarray, " column"]
) -> Float[np.ndarray, "row column"]:
    """Return the nearest numbers of the grid, each group with the scale of the least squared error.

    bits: of a number. group: neighbouring numbers of a row that share a scale; 0: the whole row. importance: weight of
    the squared errors of a column, here the mean square of its input.
    """
    columns = weight.shape[1]
    width = group or columns
    rounded = np.empty_like(weight)
    for start in range(0, columns, width):
        part = slice(start, start + width)
        scales = best_scales(weight[:, part], bits, importance[part])
        rounded[:, part] = to_grid(weight[:, part], scales[:, None], bits)
    return rounded


def round_matrix(
    weight: Float32[np.ndarray, "row column"], bits: int, group: int, moments: Float[np.ndarray, "column column"] | None
) -> Float32[np.ndarray, "row column"]:
    """Return numbers of the grid whose products with the inputs are near those of the weight.

    Columns are rounded in their order, and the error of each is made up for by the columns that follow (GPTQ, Frantar
    et al. 2022, arXiv 2210.17323). Deviations: scales have the least squared error among FACTORS instead of the range
    of a group, and SWEEPS passes then round every column again, given all others (coordinate descent, as in QuantEase,
    arXiv 2309.01885), which never raises the error.

    bits, group: as in `round_plainly`. moments: mean of the outer products of the inputs with themselves. None
    counts as the identity, with which all numbers are the nearest ones. So are those of a column whose input is
    always 0.
    """
    columns = weight.shape[1]
    if moments is None:
        return round_plainly(weight.astype(np.float64), bits, group, np.ones(columns)).astype(np.float32)
    width = group or columns
    penalty = DAMPING * float(np.diagonal(moments).mean()) or 1.0
    moments = moments + penalty * np.eye(columns)
    original, importance = weight.astype(np.float64), np.diagonal(moments)
    # Row j of the upper triangle, over its diagonal, is the best correction of the later columns for column j.
    triangle = np.linalg.cholesky(np.linalg.inv(moments)).T
    left, rounded, scales = original.copy(), np.empty_like(original), np.empty_like(original)
    for start in range(0, columns, BLOCK):
        stop = min(start + BLOCK, columns)
        if start % width == 0:
            part = slice(start, start + width)
            scales[:, part] = best_scales(left[:, part], bits, importance[part])[:, None]
        errors = np.empty((len(weight), stop - start))
        for column in range(start, stop):
            rounded[:, column] = to_grid(left[:, column], scales[:, column], bits)
            errors[:, column - start] = (left[:, column] - rounded[:, column]) / triangle[column, column]
            left[:, column + 1 : stop] -= np.outer(errors[:, column - start], triangle[column, column + 1 : stop])
        left[:, stop:] -= errors @ triangle[start:stop, stop:]
    for _ in range(SWEEPS):
        slopes = (original - rounded) @ moments
        for start in range(0, columns, BLOCK):
            stop = min(start + BLOCK, columns)
            changes = np.empty((len(weight), stop - start))
            for column in range(start, stop):
                best = rounded[:, column] + slopes[:, column] / importance[column]
                new = to_grid(best, scales[:, column], bits)
                changes[:, column - start] = new - rounded[:, column]
                slopes[:, column:stop] -= np.outer(changes[:, column - start], moments[column, column:stop])
                rounded[:, column] = new
            slopes[:, stop:] -= changes @ moments[start:stop, stop:]
    return rounded.astype(np.float32)


def output_error(change: Float[np.ndarray, "row column"], moments: Float[np.ndarray, "column column"] | None) -> float:
    """Return the mean squared norm of the change of the outputs; moments as in `round_matrix`."""
    return float(np.sum((change if moments is None else change @ moments) * change))


def to_grid(values: np.ndarray, scales: np.ndarray, bits: int) -> np.ndarray:
    """Return the nearest multiples of the scales, from -2^(bits - 1) to 2^(bits - 1) - 1 of them."""
    nearest: np.ndarray = np.clip(np.rint(values / scales), -(2 ** (bits - 1)), 2 ** (bits - 1) - 1) * scales
    return nearest


def best_scales(
    groups: Float[np.ndarray, "row column"], bits: int, importance: Float[np.ndarray, " column"]
) -> Float[np.ndarray, " row"]:
    """Return, for each row, the bfloat16 scale of FACTORS with the least weighted squared error; 1 for zeros.

    The sign of a scale is such that the number of largest size is negative, where the range is larger by one.
    """
    largest = np.take_along_axis(groups, np.abs(groups).argmax(axis=1)[:, None], axis=1)[:, 0]
    best, least = np.ones(len(groups)), np.full(len(groups), np.inf)
    for factor in FACTORS:
        scales = torch.from_numpy(largest * (-factor / 2 ** (bits - 1))).bfloat16().double().numpy()
        scales[scales == 0] = 1.0
        errors = np.square(groups - to_grid(groups, scales[:, None], bits)) @ importance
        is_better = errors < least
        best[is_better], least[is_better] = scales[is_better], errors[is_better]
    return best
