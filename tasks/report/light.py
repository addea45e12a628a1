"""A picture in fewer bytes."""

from __future__ import annotations

import io

COLOURS = 256  # a palette PNG holds no more


def light(png: bytes) -> bytes:
    """The picture in its 256 most used colours, a third of the bytes: for a page that holds it once more, for print."""
    from PIL import Image

    picture = Image.open(io.BytesIO(png))
    buffer = io.BytesIO()
    few = picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    few.save(buffer, "png", optimize=True, dpi=picture.info.get("dpi", (150, 150)))
    return buffer.getvalue()
