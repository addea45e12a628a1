"""Windows of MOMENT: scaled context and masked forecast, cut into patches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64

from tsfmscope.models.common.scale import observed_moments

# Added to the standard deviation, in the data's units: eps of the package's RevIN.
EPSILON = 1e-5


class Cut(NamedTuple):
    """Patches of a context and of the steps to forecast, and how the context was scaled.

    values: (step - loc) / scale, 0 where a step is unknown. is_known: patches whose steps are all observed and not
    masked; the others are masked. attended: patches without padding; the others are read by no patch. loc, scale: in
    the data's units.
    """

    values: Float32[np.ndarray, "window token patch"]
    is_known: Bool[np.ndarray, "window token"]
    attended: Bool[np.ndarray, "window token"]
    loc: Float64[np.ndarray, " window"]
    scale: Float64[np.ndarray, " window"]

    def arrays(self) -> dict[str, np.ndarray]:
        """Return what the network reads."""
        return {"values": self.values, "is_known": self.is_known, "attended": self.attended}

    @staticmethod
    def inputs(arrays: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the arguments of the network."""
        return arrays["values"], arrays["is_known"], arrays["attended"]


def scale_and_cut(
    context: Float[np.ndarray, "window context"],
    ahead: int,
    *,
    longest: int,
    size: int,
    hidden: np.ndarray | None = None,
) -> Cut:
    """Return the patches of contexts and of `ahead` masked steps after them, at most `longest` steps together.

    `ahead` is a multiple of `size`. As in the package, mean and standard deviation are those of the last `longest`
    steps, also of those that the masked steps leave no room for. A patch with a missing step is masked as a whole.
    Steps before the first observed one are padding, and nothing attends to a patch that contains padding.
    hidden: context steps [W, C] that are masked too, and that loc and scale do not read.
    """
    values = context[:, -longest:].astype(np.float64)
    is_padding = np.logical_and.accumulate(np.isnan(values), axis=1)
    observed = ~np.isnan(values) if hidden is None else ~np.isnan(values) & ~hidden[:, -longest:]
    loc, spread = observed_moments(values, observed)
    scale = np.where(observed.any(axis=1), spread + EPSILON, 1.0)
    scaled = np.where(observed, values - loc[:, None], 0.0) / scale[:, None]
    kept = slice(-(longest - ahead), None)
    scaled, observed, is_padding = scaled[:, kept], observed[:, kept], is_padding[:, kept]
    left = -scaled.shape[1] % size
    around = ((0, 0), (left, ahead))
    is_padding = np.pad(np.pad(is_padding, ((0, 0), (left, 0)), constant_values=True), ((0, 0), (0, ahead)))
    parts = (np.pad(scaled, around), np.pad(observed, around), is_padding)
    patches, seen, padding = (part.reshape(len(part), -1, size) for part in parts)
    seen, unpadded = np.all(seen, axis=-1), ~np.any(padding, axis=-1)
    return Cut(patches.astype(np.float32), seen, unpadded, loc, scale)
