"""Projection of rows onto the plane of their two leading directions, for figures."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from tsfmscope.ranks.tall import TallQR


def leading_plane(rows: Float[np.ndarray, "row width"]) -> Float[np.ndarray, "row 2"]:
    """Return the coordinates of the rows on their two leading right singular vectors.

    The rows are not centred, and coordinates are in the rows' own units. Source: Yu et al. 2026, Fig. 2b and
    2c. The sign of a direction is arbitrary: here its entry of largest absolute value (the first among
    equals) is positive. Rows of rank 1 have second coordinates at rounding level; rows of width 1 have second
    coordinate 0. Raises ValueError for a wrong shape, NaN or infinity.
    """
    rows = np.asarray(rows)
    directions = TallQR.of([rows]).directions()[:, :2]
    largest = np.abs(directions).argmax(axis=0)
    directions = directions * np.where(directions[largest, np.arange(directions.shape[1])] < 0, -1.0, 1.0)
    plane = np.zeros((len(rows), 2))
    plane[:, : directions.shape[1]] = rows.astype(np.float64) @ directions
    return plane
