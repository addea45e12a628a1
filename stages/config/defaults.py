"""Default params file and checkpoints of the package, for folders without a params file."""

from __future__ import annotations

import importlib.metadata
import tomllib
from pathlib import Path

from stages.config.data import Model
from stages.config.params import PARAMS_FILE, Params, load
from tsfmscope.models.bundled import load_catalog
from tsfmscope.training.options import Recipe

PACKAGE = "tsfmscope"
# Folder in an installed wheel; the build of the wheel puts the files there.
PACKAGED = Path(__file__).parents[1] / "default"
# Exists in a checkout only.
PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


def default_file() -> Path:
    """Return the params file with every study: a checkout's, else the installed package's."""
    return PROJECT.parent / "params" / "full.yaml" if PROJECT.is_file() else PACKAGED / PARAMS_FILE


def _committed_folder() -> Path:
    """Return the folder of the package's committed checkpoints."""
    return (PROJECT.parent if PROJECT.is_file() else PACKAGED) / "checkpoints"


def params_here() -> Params:
    """Return the params of this folder, else the package's default params, with all models of the catalogue.

    If the folder of committed checkpoints is not here, it is that of the package.
    """
    here = load() if Path(PARAMS_FILE).exists() else load(default_file())
    catalog = load_catalog()
    models = {name: Model(**block) for name, block in catalog["models"].items()} | here.models
    recipes = {name: Recipe(**block) for name, block in catalog["recipes"].items()} | here.checkpoints.recipes
    committed = here.checkpoints.committed
    if committed is not None and not Path(committed).is_dir():
        committed = str(_committed_folder())
    checkpoints = here.checkpoints.model_copy(update={"recipes": recipes, "committed": committed})
    return here.model_copy(update={"models": models, "checkpoints": checkpoints})


def version() -> str:
    """Return the package's version: from pyproject.toml in a checkout, else from the installed metadata."""
    if PROJECT.is_file():
        return str(tomllib.loads(PROJECT.read_text())["project"]["version"])
    return importlib.metadata.version(PACKAGE)
