"""Windows of Toto 2.0: contexts scaled by mean and deviation up to each patch, and masked patches after them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64

from tsfmscope.models.common.scale import carry_forward

# Least standard deviation, as in the package.
LEAST_SCALE = 1e-6
# Largest scaled forecast. The next step is sinh, which overflows float32 above 89.
LARGEST_SCALED = 80.0


class Scaled(NamedTuple):
    """Patches of contexts and of the steps to forecast, and the scale of each.

    values: asinh((step - loc) / scale), 0 where a step is unknown. unknown: 1 where a step is missing or to be
    forecast, else 0. attended: False for a context patch without an observed step. observed: False where a context
    patch has no observed step of its own. loc, scale: of the steps up to the end of each patch, in the data's units.
    """

    values: Float32[np.ndarray, "window token patch"]
    unknown: Float32[np.ndarray, "window token patch"]
    attended: Bool[np.ndarray, "window token"]
    observed: Bool[np.ndarray, "window token"]
    loc: Float64[np.ndarray, "window token"]
    scale: Float64[np.ndarray, "window token"]

    def arrays(self) -> dict[str, np.ndarray]:
        """Return what the network reads."""
        return {"values": self.values, "unknown": self.unknown, "attended": self.attended}

    @staticmethod
    def of(arrays: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the arguments of the network."""
        return arrays["values"], arrays["unknown"], arrays["attended"]

    def unscale(
        self, values: Float[np.ndarray, "window token patch quantile"]
    ) -> Float64[np.ndarray, "window quantile step"]:
        """Return ascending quantiles of the last patches in the data's units, with the scale of the whole context.

        values: scaled quantiles of the patches after the last tokens.
        """
        bounded = np.clip(values.astype(np.float64), -LARGEST_SCALED, LARGEST_SCALED)
        ends = (slice(None), slice(-1, None), None, None)
        steps = np.sort(np.sinh(bounded) * self.scale[ends[:2]][..., None, None] + self.loc[ends[:2]][..., None, None])
        return np.moveaxis(steps.reshape(len(steps), -1, steps.shape[-1]), 2, 1)


def scale_and_cut(context: Float[np.ndarray, "window context"], ahead: int, size: int) -> Scaled:
    """Return the patches of contexts and of `ahead` patches after them.

    The context is padded on the left to whole patches of `size` steps. As in the package, the last patch counts as
    observed: its missing steps are the last value before them, or 0. Sums run in float64.
    """
    values = np.pad(context.astype(np.float64), ((0, 0), (-context.shape[1] % size, 0)), constant_values=np.nan)
    is_observed = ~np.isnan(values)
    own = is_observed.reshape(len(values), -1, size).any(axis=-1)
    values[:, -size:] = np.where(is_observed, values, carry_forward(values))[:, -size:]
    is_observed[:, -size:] = True
    values = np.where(is_observed, values, 0.0)
    loc, scale = (part[:, size - 1 :: size] for part in _running_scale(values, is_observed))
    patches, masks = (part.reshape(len(part), -1, size) for part in (values, is_observed))
    scaled = np.where(masks, np.arcsinh((patches - loc[:, :, None]) / scale[:, :, None]), 0.0)
    after = ((0, 0), (0, ahead))
    return Scaled(
        np.pad(scaled, (*after, (0, 0))).astype(np.float32),
        np.pad(np.logical_not(masks), (*after, (0, 0)), constant_values=True).astype(np.float32),
        np.pad(masks.any(axis=-1), after, constant_values=True),
        np.pad(own, after),
        np.pad(loc, after, mode="edge"),
        np.pad(scale, after, mode="edge"),
    )


def _running_scale(
    values: Float64[np.ndarray, "window step"], is_observed: Bool[np.ndarray, "window step"]
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation (divided by n - 1) of the steps so far, [W, T] each.

    The sum of squares grows by the product of a step's distances to the mean before and after it (Welford 1962).
    Where all steps so far are equal, the mean is their value, without rounding.
    """
    count = is_observed.cumsum(axis=1)
    loc = np.where(is_observed, values, 0.0).cumsum(axis=1) / np.maximum(count, 1)
    low, high = (
        of.accumulate(np.where(is_observed, values, edge), axis=1)
        for of, edge in ((np.minimum, np.inf), (np.maximum, -np.inf))
    )
    loc = np.where(low == high, low, loc)
    before = np.pad(loc[:, :-1], ((0, 0), (1, 0)))
    squares = np.where(is_observed, (values - before) * (values - loc), 0.0).cumsum(axis=1)
    scale = np.sqrt(np.maximum(squares, 0.0) / np.maximum(count - 1, 1))
    return loc, np.maximum(scale, LEAST_SCALE)
