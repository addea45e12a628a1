"""Contexts that float32 arithmetic would overflow on."""

from __future__ import annotations

import numpy as np

LARGEST = float(np.finfo(np.float32).max)
HUGE = 2.0**50  # above this, float32 sums of squares are near overflow: contexts are divided by a power of two first


def tamed(context: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The context [W, C] over a power of two a window where it is huge, and that factor [W] (1 elsewhere).

    Dividing by a power of two is exact. For a family that is equivariant to scale, ids, patches and forecasts (times
    the factor) are those of the original wherever the original does not overflow float32.
    """
    top = np.max(np.abs(np.where(np.isfinite(context), context, 0)), axis=-1, initial=0)
    power = np.ldexp(np.ones_like(top), np.frexp(top)[1] - 1)  # not log2: it rounds the largest floats up to 2^128
    factor = np.where(top > HUGE, power, np.ones_like(top))
    return (context / factor[:, None]).astype(np.float32), factor


def saturated(values: np.ndarray) -> np.ndarray:
    """Float32, what passes its largest number held there: a range of finite floats can be twice that."""
    kept: np.ndarray = np.clip(np.asarray(values, np.float64), -LARGEST, LARGEST).astype(np.float32)
    return kept
