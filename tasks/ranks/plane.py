"""Rows on the plane of their two leading directions, as a picture has them."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from tasks.ranks.tall import TallQR


def leading_plane(rows: Float[np.ndarray, "row width"]) -> Float[np.ndarray, "row 2"]:
    """Coordinates of the rows on their two leading right singular vectors, not centred, in the rows' own units.

    Source: rank_structure.md Fig. 2b and 2c. A direction's sign is free: here its entry of largest absolute value (the
    first among equals) is positive. Rows of rank 1 have second coordinates of rounding, rows of width 1 of 0.
    Raises ValueError for a wrong shape, NaN or infinity.
    """
    rows = np.asarray(rows)
    directions = TallQR.of([rows]).directions()[:, :2]
    largest = np.abs(directions).argmax(axis=0)
    directions = directions * np.where(directions[largest, np.arange(directions.shape[1])] < 0, -1.0, 1.0)
    plane = np.zeros((len(rows), 2))
    plane[:, : directions.shape[1]] = rows.astype(np.float64) @ directions
    return plane
