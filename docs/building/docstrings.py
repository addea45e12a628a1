"""Extension of griffe for docstrings: prose with equations, in which * and ][ are not Markdown."""

from __future__ import annotations

import re
from typing import Any

import griffe

CODE = re.compile(r"(`[^`]*`)")


class Prose(griffe.Extension):
    """Escape of characters that Markdown reads as emphasis or as a reference; code is left unchanged."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Escape an object's docstring before it is rendered."""
        if obj.docstring is not None:
            parts = CODE.split(obj.docstring.value)
            parts[::2] = [part.replace("*", r"\*").replace("][", r"]\[") for part in parts[::2]]
            obj.docstring.value = "".join(parts)
