"""Default params file and checkpoints of the package, for folders without a params file."""

from __future__ import annotations

import importlib.metadata
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tsfmscope.stages.config.params import PARAMS_FILE, Params, load

PACKAGE = "tsfmscope"
# Folder in an installed wheel; the build of the wheel puts the files there.
PACKAGED = Path(__file__).parents[1] / "default"
# Exists in a checkout only.
PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"

STUDY = {"inspect": {"title": "inspect", "measures": ["weights"], "models": "all"}}
# Replaces params.yaml in a folder without one.
BARE: Mapping[str, Any] = {
    "models": {}, "datasets": {"sets": {}}, "conditions": {}, "studies": STUDY, "report": {"study": "inspect"},
}  # fmt: skip


def folder() -> Path | None:
    """Return the folder of the defaults: the root of a checkout, else the installed package's folder.

    Returns None if that folder has no params file.
    """
    root = PROJECT.parent if PROJECT.is_file() else PACKAGED
    return root if (root / PARAMS_FILE).is_file() else None


def params() -> Params | None:
    """Return the default params; None if the package was installed without them.

    The path of the committed checkpoints in them is valid from any current folder.
    """
    root = folder()
    if root is None:
        return None
    defaults = load(root / PARAMS_FILE)
    committed = defaults.checkpoints.committed
    absolute = None if committed is None else str(root / committed)
    return defaults.model_copy(update={"checkpoints": defaults.checkpoints.model_copy(update={"committed": absolute})})


def params_here() -> Params:
    """Return the params of this folder, else the package's default params, else params without any models."""
    return load() if Path(PARAMS_FILE).exists() else params() or Params.model_validate(BARE)


def version() -> str:
    """Return the package's version: from pyproject.toml in a checkout, else from the installed metadata."""
    if PROJECT.is_file():
        return str(tomllib.loads(PROJECT.read_text())["project"]["version"])
    return importlib.metadata.version(PACKAGE)
