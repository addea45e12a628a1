"""The params file and the checkpoints that come with the package, for folders that have none of their own."""

from __future__ import annotations

import importlib.metadata
import tomllib
from pathlib import Path

from stages.params import PARAMS_FILE, Params, load

PACKAGE = "tsfm-lens"
PACKAGED = Path(__file__).with_name("default")  # in a wheel; pyproject.toml puts it there
PROJECT = Path(__file__).parents[1] / "pyproject.toml"  # of a checkout


def folder() -> Path | None:
    """Where they lie: in the installed package, or at the root of a checkout whose params file is still there."""
    root = PROJECT.parent if PROJECT.is_file() else PACKAGED
    return root if (root / PARAMS_FILE).is_file() else None


def params() -> Params | None:
    """The default params, with checkpoints that are found from any folder; None where they did not come along."""
    where = folder()
    if where is None:
        return None
    found = load(where / PARAMS_FILE)
    committed = found.checkpoints.committed
    kept = None if committed is None else str(where / committed)
    return found.model_copy(update={"checkpoints": found.checkpoints.model_copy(update={"committed": kept})})


def version() -> str:
    """Of this package: pyproject.toml's, where this is a checkout; else that of the installed one's metadata."""
    if PROJECT.is_file():
        return str(tomllib.loads(PROJECT.read_text())["project"]["version"])
    return importlib.metadata.version(PACKAGE)
