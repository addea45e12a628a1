"""Colour scales for ordered quantities: tolerances, layers, grids of models, angles."""

from __future__ import annotations

import itertools

# viridis (van der Walt and Smith 2015), perceptually uniform: brighter is larger.
HEAT = (
    (0.0, "#440154"), (0.125, "#472d7b"), (0.25, "#3b528b"), (0.375, "#2c728e"), (0.5, "#21918c"),
    (0.625, "#28ae80"), (0.75, "#5ec962"), (0.875, "#addc30"), (1.0, "#fde725"),
)  # fmt: skip
# For lines and points: colours of similar lightness, readable on white and on black.
ORDER = ((0.0, "#7b4fc9"), (0.25, "#2f86c4"), (0.5, "#1a9c88"), (0.75, "#7ba81f"), (1.0, "#e08a00"))
GREY = "#7f7f7f"
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def interpolate_colour(position: int, count: int) -> str:
    """Return the colour of item `position` (from 0) of `count` ordered items, interpolated along ORDER."""
    at = position / (count - 1) if count > 1 else 0.0
    (low, first), (high, last) = next(pair for pair in itertools.pairwise(ORDER) if at <= pair[1][0])
    share = (at - low) / (high - low)
    mixed = (round(a + share * (b - a)) for a, b in zip(_parts(first), _parts(last), strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def set_opacity(colour: str, alpha: float) -> str:
    """Return the colour with this opacity."""
    red, green, blue = _parts(colour)
    return f"rgba({red},{green},{blue},{alpha:g})"


def format_power(exponent: float) -> str:
    """Return a power of ten as text, the exponent rounded to an integer."""
    return "10" + str(round(exponent)).translate(SUPERSCRIPTS)


def _parts(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
