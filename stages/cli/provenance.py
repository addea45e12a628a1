"""Base model and licence of a checkpoint folder, as its recipe.json and its model card tell."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tsfmscope.stages.config.compression import CALIBRATED
from tsfmscope.stages.config.defaults import params_here
from tsfmscope.stages.pipeline.model_folders import key_of
from tsfmscope.stages.pipeline.model_reference import Source
from tsfmscope.stages.pipeline.training_jobs import MODELS
from tsfmscope.tasks import hub
from tsfmscope.tasks.compression.onnx_forecaster import DESCRIPTION, read_description
from tsfmscope.tasks.models.licenses import License, license_of, read_recipe
from tsfmscope.tasks.series.content import CALIBRATION_SERIES


class Calibration(NamedTuple):
    """Series that calibrated or healed a model.

    series: their digests. datasets: names of data sets, from a recipe.json without digests.
    """

    series: frozenset[str] = frozenset()
    datasets: frozenset[str] = frozenset()

    def contains(self, series: frozenset[str], *names: str) -> bool:
        """Return whether one of the series, or of the names of a data set, is recorded."""
        return not self.series.isdisjoint(series) or not self.datasets.isdisjoint(names)


NO_CALIBRATION = Calibration()


def calibration_of(folder: Path) -> Calibration:
    """Return what calibrated or healed the model of a folder, as its recipe.json or onnx.json records it."""
    is_onnx = (folder / DESCRIPTION).is_file()
    facts: Mapping[str, Any] = read_description(folder) if is_onnx else read_recipe(folder)
    if isinstance(series := facts.get(CALIBRATION_SERIES), list):
        return Calibration(series=frozenset(map(str, series)))
    block = facts.get("recipe")
    method, calibration = (block.get(key) if isinstance(block, dict) else None for key in ("method", "calibration"))
    if not isinstance(method, dict) or not isinstance(calibration, dict):
        return NO_CALIBRATION
    if str(method.get("method")) not in CALIBRATED and not method.get("heal"):
        return NO_CALIBRATION
    names = calibration.get("datasets")
    return Calibration(datasets=frozenset(map(str, names if isinstance(names, list) else [])))


def base_model(folder: Path) -> str | None:
    """Return the base model of a compressed model: hub:ORG/NAME, or a name; None where none is recorded.

    The path of a folder is left out, since it means nothing on another machine.
    """
    reference = _base_reference(folder)
    if reference is None or reference.startswith(hub.PREFIX):
        return reference
    row = read_recipe(folder).get("row")
    name = row.get("base_model") if isinstance(row, dict) else None
    return Path(name if isinstance(name, str) else reference).name


def recipe_without_paths(folder: Path) -> bytes | None:
    """Return recipe.json with the name of the base model instead of its folder; None without the file."""
    recipe, reference = read_recipe(folder), _base_reference(folder)
    if reference is not None:
        recipe["recipe"] = {**_recipe_block(recipe), "base_model": base_model(folder)}
    return json.dumps(recipe, indent=2).encode() if recipe else None


def license_of_weights(folder: Path) -> str | None:
    """Return the licence that the folder or its base model states; None without."""
    license = license_of(folder, None)
    return license.name if license.is_stated else None


def license_of_source(source: Source) -> License:
    """Return the licence of the weights of a checkpoint.

    A checkpoint that the pipeline copied from the committed ones has the model card of the committed folder.
    """
    committed = Path(params_here().checkpoints.committed or "", source.folder.name)
    if source.folder.parent == MODELS and key_of(committed) == key_of(source.folder):
        return license_of(committed, source.family)
    return license_of(source.folder, source.family, source.reference)


def _base_reference(folder: Path) -> str | None:
    reference = _recipe_block(read_recipe(folder)).get("base_model")
    return reference if isinstance(reference, str) else None


def _recipe_block(recipe: dict[str, object]) -> dict[str, object]:
    block = recipe.get("recipe")
    return block if isinstance(block, dict) else {}
