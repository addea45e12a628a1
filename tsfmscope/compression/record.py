"""Base model and licence of a checkpoint folder, as its recipe.json and its model card tell."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tsfmscope import hub
from tsfmscope.compression.onnx_forecaster import DESCRIPTION, read_description
from tsfmscope.compression.options import METHODS
from tsfmscope.errors import ArgumentError
from tsfmscope.files import read_text
from tsfmscope.models.cards import LARGEST_RECIPE, read_recipe
from tsfmscope.models.common.checkpoint_folder import RECIPE
from tsfmscope.series.types import CALIBRATION_DATASETS, CALIBRATION_SERIES

# Keys whose value transformers sets to the folder that a model or a tokenizer was loaded from.
NAMES_OF_FOLDERS = ("_name_or_path", "name_or_path")
# A text that is a path, absolute or from here, and a path of two or more parts inside a text.
PATH = re.compile(r"(?:file:|~|\.\.?)?[/\\]|[A-Za-z]:[/\\]")
PATH_IN_TEXT = re.compile(r"(?<![\w:/.~<-])(?:file:|~|\.\.?|[A-Za-z]:)?[/\\][^\s\"']*[/\\][^\s\"']+")


class Calibration(NamedTuple):
    """Series that calibrated or healed a model, or chose its size.

    series: their digests. datasets: names of data sets, from a recipe.json without digests.
    """

    series: frozenset[str] = frozenset()
    datasets: frozenset[str] = frozenset()

    def joined(self, series: Iterable[str]) -> Calibration:
        """Return the record with the digests of further series."""
        return self._replace(series=self.series.union(series))

    @property
    def facts(self) -> dict[str, list[str]]:
        """Return the keys of recipe.json and onnx.json."""
        names = {CALIBRATION_DATASETS: sorted(self.datasets)} if self.datasets else {}
        return {CALIBRATION_SERIES: sorted(self.series)} | names

    def contains(self, series: frozenset[str], *names: str) -> bool:
        """Return whether one of the series, or of the names of a data set, is recorded."""
        return not self.series.isdisjoint(series) or not self.datasets.isdisjoint(names)


NO_CALIBRATION = Calibration()


def calibration_of(folder: Path) -> Calibration:
    """Return what calibrated or healed the model of a folder, as its recipe.json or onnx.json records it."""
    is_onnx = (folder / DESCRIPTION).is_file()
    facts: Mapping[str, Any] = read_description(folder) if is_onnx else read_recipe(folder)
    if isinstance(series := facts.get(CALIBRATION_SERIES), list):
        names = facts.get(CALIBRATION_DATASETS)
        return Calibration(frozenset(map(str, series)), frozenset(map(str, names if isinstance(names, list) else [])))
    block = facts.get("recipe")
    method, calibration = (block.get(key) if isinstance(block, dict) else None for key in ("method", "calibration"))
    if not isinstance(method, dict) or not isinstance(calibration, dict):
        return NO_CALIBRATION
    name = str(method.get("method"))
    if name in METHODS and not METHODS[name].reads_data and not method.get("heal"):
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


def without_paths(path: Path) -> bytes | None:
    """Return a JSON document of a checkpoint without paths of this machine; None if it has none.

    The last part of a path stays. The keys NAMES_OF_FOLDERS are left out. Raises ArgumentError if it is no JSON.
    """
    try:
        document = json.loads(read_text(path, LARGEST_RECIPE))
    except (OSError, ValueError, RecursionError) as error:
        raise ArgumentError(f"{path}: expected JSON ({error}); make the checkpoint again") from error
    changed = _without_paths(document)
    if path.name == RECIPE and _base_reference(path.parent) is not None:
        changed["recipe"]["base_model"] = base_model(path.parent)
    return None if changed == document else json.dumps(changed, indent=2).encode()


def _without_paths(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_paths(part) for key, part in value.items() if key not in NAMES_OF_FOLDERS}
    if isinstance(value, list):
        return [_without_paths(part) for part in value]
    if not isinstance(value, str):
        return value
    if PATH.match(value):
        return re.split(r"[/\\]", value.rstrip("/\\"))[-1]
    return PATH_IN_TEXT.sub(lambda match: re.split(r"[/\\]", match[0])[-1], value)


def _base_reference(folder: Path) -> str | None:
    block = read_recipe(folder).get("recipe")
    reference = block.get("base_model") if isinstance(block, dict) else None
    return reference if isinstance(reference, str) else None
