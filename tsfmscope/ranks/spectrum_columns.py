"""Columns of the table `spectra`: singular values of hidden states and of weights, with their rounding error."""

from __future__ import annotations

from typing import Any

import numpy as np

from tsfmscope.ranks.spectrum import matrix_floor, rounding_floor, singular_values
from tsfmscope.ranks.tall import TallQR

NO_ROWS = "no token of these kinds"


def input_row(states: np.ndarray, *, dtype: str, tokens: str, what: str = "input") -> dict[str, Any]:
    """Return the columns of `spectra` for a layer's input tokens [N, d], without the columns that identify it."""
    qr = TallQR.of([states])
    values, centred = qr.singular_values(), qr.singular_values(centred=True)
    floor = rounding_floor(
        float(values.max(initial=0.0)),
        dtype=dtype,
        shape=(qr.rows, qr.width),
        longest_row=qr.longest_row,
        longest_column=qr.longest_column,
    )
    reason = None if values.any() else "all tokens are zero" if qr.rows else NO_ROWS
    return {
        **dict.fromkeys(("matrix", "attention", "head", "heads", "step")),
        "what": what,
        "tokens": tokens,
        "n_rows": qr.rows,
        "n_columns": qr.width,
        "dtype": dtype,
        "floor": floor,
        "singular_values": values.tolist(),
        "singular_values_centred": centred.tolist(),
        "reason": reason,
    }


def weight_row(matrix: np.ndarray, *, dtype: str) -> dict[str, Any]:
    """Return the columns of `spectra` for one matrix [out, in], without those that identify the matrix."""
    values = singular_values(matrix)
    return {
        **dict.fromkeys(("normed", "tokens", "singular_values_centred")),
        "what": "weight",
        "n_rows": matrix.shape[0],
        "n_columns": matrix.shape[1],
        "dtype": dtype,
        "floor": matrix_floor(matrix, float(values.max(initial=0.0)), dtype=dtype),
        "singular_values": values.tolist(),
        "reason": None if values.any() else "all entries are zero",
    }
