"""Version of the package."""

from __future__ import annotations

import importlib.metadata
import tomllib
from pathlib import Path

from tsfmscope.extras import PACKAGE

# Exists in a checkout only.
PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def version() -> str:
    """Return the package's version: from pyproject.toml in a checkout, else from the installed metadata."""
    if PROJECT.is_file():
        return str(tomllib.loads(PROJECT.read_text())["project"]["version"])
    return importlib.metadata.version(PACKAGE)
