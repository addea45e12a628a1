"""griffe's extension: docstrings are prose with equations, in which * and ][ are no Markdown."""

from __future__ import annotations

import re
from typing import Any

import griffe

CODE = re.compile(r"(`[^`]*`)")


class Prose(griffe.Extension):
    """Escapes what Markdown would take for emphasis or for a reference."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change a docstring before it is rendered."""
        if obj.docstring is not None:
            parts = CODE.split(obj.docstring.value)
            parts[::2] = [part.replace("*", r"\*").replace("][", r"]\[") for part in parts[::2]]
            obj.docstring.value = "".join(parts)
