"""Windows of FlowState: steps scaled by what precedes them, and masked steps of the forecast."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64

# Smallest variance of the steps up to one of them, in the data's units: `eps` of the package's FlowStateCausalRevIN.
LEAST_VARIANCE = 1e-5


class Scaled(NamedTuple):
    """Steps of a context and masked steps after it, each scaled by the observed steps up to itself.

    values: (step - loc) / scale, 0 where a step is missing or masked. missing: 1 there, else 0. attended: False before
    the first observed step of a series. loc, scale: in the data's units.
    """

    values: Float32[np.ndarray, "window token"]
    missing: Float32[np.ndarray, "window token"]
    attended: Bool[np.ndarray, "window token"]
    loc: Float64[np.ndarray, "window token"]
    scale: Float64[np.ndarray, "window token"]

    def arrays(self) -> dict[str, np.ndarray]:
        """Return what the network reads."""
        return {"values": self.values, "missing": self.missing, "attended": self.attended}


def scale_causally(context: Float[np.ndarray, "window context"], steps: int, masked: int) -> Scaled:
    """Return the last `steps` of contexts, and `masked` unknown steps after them.

    Equation: loc[t] is the mean of the observed steps up to t, scale[t]² the mean of (x[s] - loc[s])² over these, at
    least LEAST_VARIANCE. Source: FlowStateCausalRevIN of granite-tsfm, there in float32.
    """
    values = context[:, -steps:].astype(np.float64)
    observed = ~np.isnan(values)
    # A series that began before these steps is read from the first of them on, observed or not.
    attended = np.logical_or.accumulate(~np.isnan(context), axis=1)[:, -steps:]
    # Relative to the first observed step, so that equal steps have a deviation of exactly 0.
    first = np.take_along_axis(values, observed.argmax(axis=1)[:, None], axis=1)
    first = np.where(observed.any(axis=1, keepdims=True), first, 0.0)
    centred = np.where(observed, values - first, 0.0)
    count = np.maximum(observed.cumsum(axis=1), 1)
    mean = centred.cumsum(axis=1) / count
    deviation = np.where(observed, centred - mean, 0.0)
    scale = np.sqrt(np.maximum((deviation**2).cumsum(axis=1) / count, LEAST_VARIANCE))
    after = ((0, 0), (0, masked))
    return Scaled(
        np.pad((deviation / scale).astype(np.float32), after),
        np.pad((~observed).astype(np.float32), after, constant_values=1.0),
        np.pad(attended, after, constant_values=True),
        np.pad(first + mean, after, mode="edge"),
        np.pad(scale, after, mode="edge"),
    )
