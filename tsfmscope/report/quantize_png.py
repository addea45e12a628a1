"""Smaller PNG files by a reduced palette."""

from __future__ import annotations

import io

# Largest palette of a PNG.
COLOURS = 256


def quantize(png: bytes) -> bytes:
    """Return the PNG with a palette of 256 colours, about a third of the bytes; its resolution is kept.

    The page embeds this copy for print, in addition to the interactive figure.
    """
    from PIL import Image

    image = Image.open(io.BytesIO(png))
    buffer = io.BytesIO()
    reduced = image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    reduced.save(buffer, "png", optimize=True, dpi=image.info.get("dpi", (150, 150)))
    return buffer.getvalue()
