"""Names that are valid for files and folders."""

from __future__ import annotations

import re


def slug(text: str) -> str:
    """Return the text as a name that is valid for files and folders; it may be empty."""
    return re.sub(r"[^A-Za-z0-9._@=+-]", "-", text).lstrip("._@=+-")
