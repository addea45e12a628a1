"""Run of one stage in this process, with checked params."""

from __future__ import annotations

import importlib
from pathlib import Path

from stages.config.params import PARAMS_FILE, Params, ParamsError, load
from tsfmscope.models.registry import check_name


def read_params(path: str | Path = PARAMS_FILE) -> Params:
    """Load a params file and check that its families exist, here or in an installed package.

    Raises ParamsError with one line. The check of families stands here and not in stages/config/params.py,
    because no stage depends on the names of all families.
    """
    params = load(path)
    families = {f"models.{name}": model.family for name, model in params.models.items()}
    families |= {f"checkpoints.recipes.{name}": recipe.family for name, recipe in params.checkpoints.recipes.items()}
    for location, family in families.items():
        try:
            check_name(family)
        except ValueError as error:
            raise ParamsError(f"{path}: {location}.family: {error}; install the package that adds another") from None
    return params


def run_stage(name: str) -> None:
    """Run a stage with the params.yaml of this folder."""
    module = importlib.import_module(f"stages.{name}")
    module.main(read_params())
