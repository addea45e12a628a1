"""Hidden states as points in three dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int

if TYPE_CHECKING:
    import pandas as pd


def project(
    states: Float[np.ndarray, "token width"],
    clusters: Int[np.ndarray, " token"],
    series: Sequence[str],
    positions: Int[np.ndarray, " token"],
    identity: Mapping[str, object],
) -> pd.DataFrame:
    """First three principal components of the centred states, a row a token (isotropy.md, Fig. 2 and section 4.3).

    identity: model, stack, layer, dataset, condition, written into every row. `explained` is the share of variance
    that the three hold. A component's sign makes its largest entry positive, so that the picture does not flip between
    machines. Fewer than three dimensions, or constant states, leave zeros. Raises ValueError for no rows or NaN.
    """
    import pandas as pd

    matrix = np.asarray(states, dtype=np.float64)
    if not len(matrix) or not np.isfinite(matrix).all():
        raise ValueError(f"states: got shape {matrix.shape}, expected at least one row and only finite values")
    centred = matrix - matrix.mean(axis=0)
    left, scale, right = np.linalg.svd(centred, full_matrices=False)
    kept = min(3, len(scale))
    sign = np.sign(right[np.arange(kept), np.abs(right[:kept]).argmax(axis=1)])
    points = np.zeros((len(matrix), 3))
    points[:, :kept] = left[:, :kept] * scale[:kept] * np.where(sign == 0, 1.0, sign)
    total = float((scale**2).sum())
    explained = float((scale[:kept] ** 2).sum() / total) if total > 0 else float("nan")
    return pd.DataFrame(
        {
            **identity,
            "series": list(series),
            "position": np.asarray(positions),
            "cluster": np.asarray(clusters),
            "pc1": points[:, 0],
            "pc2": points[:, 1],
            "pc3": points[:, 2],
            "explained": explained,
        }
    )
