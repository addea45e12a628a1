"""Projection of hidden states onto their first three principal components."""

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
    """Project the centred states onto their first three principal components; one row per token.

    Source: Shelim et al. 2025, Fig. 2 and section 4.3.

    identity: model, stack, layer, dataset, condition; written into every row.

    Column `explained` is the share of variance that the three components hold; NaN for constant states. Each
    component's sign makes its entry of largest magnitude positive, so that the plot does not flip between
    machines. With fewer than three dimensions the missing components are zero; constant states have only
    zeros. Raises ValueError if there are no rows or if a value is not finite.
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
