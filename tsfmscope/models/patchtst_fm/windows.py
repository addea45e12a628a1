"""Windows of PatchTST-FM: scaled context and masked forecast, cut into patches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64

from tsfmscope.models.common.scale import observed_moments

# Standard deviations up to this count as 1, as in the package.
LEAST_SCALE = 1e-5
# Largest scaled forecast. The next step, sinh, would overflow float64 above 710; float32 overflows before.
LARGEST_SCALED = 200.0


class Scaled(NamedTuple):
    """Patches of a context and of the steps to forecast, and how the context was scaled.

    values: asinh((step - loc) / scale), 0 where a step is unknown. observed: 1 where a step was observed and is not
    masked, else 0. attended: patches that are not padding; the others are read by no patch. loc, scale: in the data's
    units.
    """

    values: Float32[np.ndarray, "window token patch"]
    observed: Float32[np.ndarray, "window token patch"]
    attended: Bool[np.ndarray, "window token"]
    loc: Float64[np.ndarray, " window"]
    scale: Float64[np.ndarray, " window"]

    def arrays(self) -> dict[str, np.ndarray]:
        """Return what the network reads."""
        return {"values": self.values, "observed": self.observed, "attended": self.attended}

    @staticmethod
    def of(arrays: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the arguments of the network."""
        return arrays["values"], arrays["observed"], arrays["attended"]

    def unscale(self, values: Float[np.ndarray, "window quantile step"]) -> Float64[np.ndarray, "window quantile step"]:
        """Return scaled values in the data's units."""
        bounded = np.clip(values.astype(np.float64), -LARGEST_SCALED, LARGEST_SCALED)
        return np.asarray(np.sinh(bounded) * self.scale[:, None, None] + self.loc[:, None, None])


def scale_and_cut(
    context: Float[np.ndarray, "window context"],
    ahead: int,
    *,
    longest: int,
    size: int,
    hidden: np.ndarray | None = None,
) -> Scaled:
    """Return the patches of contexts and of `ahead` masked steps after them, at most `longest` steps together.

    A missing step is unknown, as in the package. Steps before the first observed one are padding: the package gets the
    series without them. A patch is padding if more than 0.9 of its steps are. Patches that are padding in every
    context of this length are left out, as the package does.
    hidden: context steps [W, C] that are masked too, and that loc and scale do not read.
    """
    kept = longest - ahead
    values = context[:, -kept:].astype(np.float64)
    is_padding = np.logical_and.accumulate(np.isnan(values), axis=1)
    observed = ~np.isnan(values) if hidden is None else ~np.isnan(values) & ~hidden[:, -kept:]
    loc, spread = observed_moments(values, observed)
    scale = np.where(spread > LEAST_SCALE, spread, 1.0)
    scaled = np.arcsinh((np.where(observed, values, loc[:, None]) - loc[:, None]) / scale[:, None])
    left = -(values.shape[1] + ahead) % size
    # Padding first, so that all patches are whole; the package cuts from the start of the longest window.
    parts = (np.pad(scaled, ((0, 0), (left, ahead))), np.pad(observed, ((0, 0), (left, ahead))))
    is_padding = np.pad(np.pad(is_padding, ((0, 0), (left, 0)), constant_values=True), ((0, 0), (0, ahead)))
    patches, masks, padding = (part.reshape(len(part), -1, size) for part in (*parts, is_padding))
    attended = 10 * padding.sum(axis=-1) <= 9 * size
    return Scaled(patches.astype(np.float32), masks.astype(np.float32), attended, loc, scale)
