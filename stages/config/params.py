"""params.yaml as typed objects, parsed and checked once when it is read.

An error is one line with the key and how to fix it.
"""

from __future__ import annotations

import difflib
import re
import reprlib
from pathlib import Path
from typing import Any, Literal, get_args

import yaml
from pydantic import Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from stages.config.blocks import (
    TASKS,
    Baseline,
    Checkpoints,
    Compression,
    Condition,
    DataSets,
    Forecasts,
    Geometry,
    Heads,
    Inside,
    KernelSynth,
    Model,
    Pretraining,
    Report,
    Resources,
    Spectra,
    Study,
    Theory,
    Tokens,
)
from stages.config.bounded_yaml import load_yaml
from stages.config.population import Population
from tasks.embeddings import EmbedOptions
from tsfmscope.errors import TsfmscopeError
from tsfmscope.files import read_text
from tsfmscope.models import references
from tsfmscope.models.references import CHECKPOINT, split_checkpoint
from tsfmscope.series.catalog import CATALOG, modality
from tsfmscope.series.data_sets import data_root
from tsfmscope.statistics.options import StatisticsOptions
from tsfmscope.strict import Seed, Strict

PARAMS_FILE = "params.yaml"
# Bytes of a params file; the largest in this repository has 20 KB.
LARGEST_FILE = 2**24
# Shortens values in messages, which are one line.
SHORT = reprlib.Repr()
SHORT.maxstring = SHORT.maxother = 100
# Prefix of the reference of a model BASE@METHOD, which the stage compression makes.
COMPRESSED = "compressed:"
# Blocks whose keys are names chosen by the user.
NAMED = (*("models", "datasets.sets", "conditions", "studies"), *("checkpoints.recipes", "compression.methods"))
# Names become names of files and folders, for which file systems allow 255 bytes.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@=+-]{0,99}")


class ParamsError(TsfmscopeError):
    """A params file, or an argument of a command of the pipeline, is not valid; the message is one line."""

    exit_code = 2


class Params(Strict):
    """All blocks of params.yaml."""

    profile: str = Field("default", description="name of this file in the report")
    seed: Seed = 0
    models: dict[str, Model]
    datasets: DataSets = DataSets()
    conditions: dict[str, Condition] = Field({})
    studies: dict[str, Study]
    kernelsynth: KernelSynth = KernelSynth()
    checkpoints: Checkpoints = Checkpoints()
    compression: Compression = Compression()
    pretraining: Pretraining = Pretraining()
    tokens: Tokens = Tokens()
    embeddings: EmbedOptions = EmbedOptions()
    geometry: Geometry = Geometry()
    heads: Heads = Heads()
    spectra: Spectra = Spectra()
    forecasts: Forecasts = Forecasts()
    inside: Inside = Inside()
    statistics: StatisticsOptions = StatisticsOptions()
    theory: Theory | None = Field(None, description="null: no job of theory; {} for the default sizes")
    population: Population | None = Field(None, description="trainings whose snapshots are models; null: none")
    report: Report = Report()
    resources: Resources = Resources()

    @model_validator(mode="before")
    @classmethod
    def _complete_from_catalog(cls, block: Any) -> Any:
        return complete(block)

    @model_validator(mode="after")
    def _population_has_models(self) -> Params:
        """Add the recipes and models of the population; runs before _compressed_are_models."""
        if self.population is not None:
            recipes, models = self.population.recipes(), self.population.models()
            for block, known, added in (
                ("checkpoints.recipes", self.checkpoints.recipes, recipes),
                ("models", self.models, models),
            ):
                if clashes := sorted(set(known) & set(added)):
                    raise ValueError(f"{block}.{clashes[0]}: also the name of one of the population; take another")
            self.checkpoints.recipes.update(recipes)
            self.models.update(models)
            runs = self.population.runs_by_size()
            self.studies.update({name: study.with_runs(runs) for name, study in self.studies.items()})
        return self

    @model_validator(mode="after")
    def _compressed_are_models(self) -> Params:
        """Add a model for every BASE@METHOD that a study names; runs before _names_exist."""
        calibrated = self.compression.calibration.datasets
        for dataset in calibrated:
            _check_name(dataset, self.datasets.sets, "compression.calibration.datasets")
        for name, method in self.compression.methods.items():
            if method.reads_data and not calibrated:
                raise ValueError(
                    f"compression.calibration.datasets: got none, but method {name!r} needs calibration data; name some"
                )
        bases = dict(self.models)
        for name, model in bases.items():
            if model.ref.startswith(COMPRESSED):
                raise ValueError(f"models.{name}.ref is {model.ref!r}; name BASE@METHOD in a study instead")
        for study, spec in self.studies.items():
            names_by_key = {"models": [] if isinstance(spec.models, str) else spec.models, "x_axis": spec.x_axis}
            for block, names in names_by_key.items():
                for name in names:
                    if "@" not in name or name in self.models:
                        continue
                    (base, _, used), location = name.rpartition("@"), f"studies.{study}.{block}: {name!r}"
                    _check_name(base, bases, f"{location}: base model")
                    _check_name(used, self.compression.methods, f"{location}: compression.methods")
                    changed = {"base_model": base, "ranks": self.compression.methods[used].ranks}
                    self.models[name] = bases[base].model_copy(update={"ref": f"{COMPRESSED}{name}", **changed})
        return self

    @model_validator(mode="after")
    def _names_exist(self) -> Params:
        blocks: dict[str, dict[str, Any]] = {"models": self.models, "datasets": self.datasets.sets}
        blocks["conditions"] = self.conditions
        for study, spec in self.studies.items():
            if spec.models == "snapshots" and self.population is None:
                raise ValueError(f"studies.{study}.models: snapshots, but there is no block population; add it")
            for block, known in blocks.items():
                names = getattr(spec, block)
                for name in [] if isinstance(names, str) else names:
                    _check_name(name, known, f"studies.{study}.{block}")
            for name in spec.x_axis:
                _check_name(name, self.models, f"studies.{study}.x_axis")
        for name, model in self.models.items():
            if model.base_model is not None:
                _check_name(model.base_model, self.models, f"models.{name}.base_model")
            source, snapshot = split_checkpoint(model.ref)
            if model.ref.startswith(CHECKPOINT):
                _check_name(source, self.checkpoints.recipes, f"models.{name}.ref")
                made = self.checkpoints.recipes[source]
                if snapshot:
                    steps = dict.fromkeys(f"step-{step}" for step in made.snapshots)
                    _check_name(snapshot, steps, f"models.{name}.ref: snapshots of {source}")
                if made.family != model.family:
                    raise ValueError(
                        f"models.{name}.family is {model.family!r}, but its recipe makes "
                        f"{made.family!r}; make them the same"
                    )
        if (searched := self.pretraining.recipe) is not None:
            _check_name(searched, self.checkpoints.recipes, "pretraining.recipe")
            recipe, grace = self.checkpoints.recipes[searched], self.pretraining.grace
            if grace > recipe.steps:
                raise ValueError(
                    f"pretraining.grace: got {grace}, expected at most {recipe.steps}, the steps of {searched!r}"
                )
            if recipe.embedding_from is not None:
                raise ValueError(
                    f"pretraining.recipe: {searched!r} reuses an embedding; name a recipe without embedding_from"
                )
        self._no_model_is_made_from_itself()
        if self.report.study is not None:
            _check_name(self.report.study, self.studies, "report.study")
        for task, task_resources in self.resources.tasks.items():
            _check_name(task, dict.fromkeys(TASKS), "resources.tasks")
            if task_resources.processes is not None and task != "pretrain":
                raise ValueError(
                    f"resources.tasks.{task}.processes: only task pretrain uses several processes; leave the key out"
                )
        for name in self.skill_datasets:
            _check_name(name, self.datasets.sets, "checkpoints.skill.datasets")
            if (kind := modality(self.datasets.sets[name].source)) != "series":
                raise ValueError(f"checkpoints.skill.datasets: {name!r} is {kind}, expected time series; leave it out")
        self._baselines_have_names_of_their_own()
        return self

    def _no_model_is_made_from_itself(self) -> None:
        """Follow `base_model` from every model and raise ValueError for a loop.

        Each link is followed once, because in a large file one chain may contain all models.
        """
        checked: set[str | None] = set()
        for name in self.models:
            chain: dict[str, None] = {}
            model: str | None = name
            while model in self.models and model not in checked:
                if model in chain:
                    loop = " is made from ".join([*chain, model])
                    raise ValueError(f"models.{name}.base_model: {loop}; name its original")
                chain[model] = None
                model = self.models[model].base_model
            checked.update(chain)

    def _baselines_have_names_of_their_own(self) -> None:
        for name, study in self.studies.items():
            if "baselines" in study.measures and not self.forecasts.baselines:
                raise ValueError(
                    f"studies.{name}.measures: baselines, but forecasts.baselines is []; name some of "
                    f"{', '.join(get_args(Baseline))}"
                )
        if clashes := sorted(set(self.models) & set(get_args(Baseline))):
            raise ValueError(f"models.{clashes[0]}: the name of a baseline (see forecasts.baselines); take another")

    @property
    def compressed(self) -> dict[str, Model]:
        """Models that the stage compression makes, by name."""
        return {name: model for name, model in self.models.items() if model.ref.startswith(COMPRESSED)}

    def expand(self, study: str, block: Literal["models", "datasets", "conditions"]) -> list[str]:
        """Return the names in a block of a study, with `all` replaced by the names it stands for.

        `all` models are those without a base model that are no snapshots. `all` data sets are the time series that are
        not probing signals.
        """
        names = getattr(self.studies[study], block)
        if names == "snapshots":
            return [member.model for member in self.population.members()] if self.population else []
        if names != "all":
            return list(names)
        if block == "models":
            return [name for name, model in self.models.items() if model.base_model is None and not model.is_snapshot]
        return self._series_sets if block == "datasets" else list(self.conditions)

    @property
    def skill_datasets(self) -> list[str]:
        """Data sets of checkpoints.skill, with `all` replaced by the catalogue's, so that own files change no mean."""
        names = self.checkpoints.skill.datasets
        if names != "all":
            return list(dict.fromkeys(names or []))
        sets = {name: self.datasets.sets[name] for name in self._series_sets if name in CATALOG}
        # A user's data set may have the name of one of the catalogue.
        same = ((name, CATALOG[name], own) for name, own in sets.items())
        return [name for name, entry, own in same if (entry.source, entry.file) == (own.source, own.file)]

    @property
    def _series_sets(self) -> list[str]:
        """Data sets of time series that are not probing signals."""
        return [
            name
            for name, dataset in self.datasets.sets.items()
            if modality(dataset.source) == "series" and dataset.source != "signals"
        ]

    @property
    def report_study(self) -> str:
        """Study of the report's summary and first section."""
        return self.report.study or next(iter(self.studies))

    @property
    def data_root(self) -> Path | None:
        """Folder of external data: from the environment variable, else from the params file, else None."""
        return data_root() or (Path(self.datasets.root).expanduser() if self.datasets.root else None)


def load(path: str | Path = PARAMS_FILE) -> Params:
    """Read and check a params file. Raises ParamsError with one line: key, value, and what was expected."""
    try:
        text = read_text(Path(path), LARGEST_FILE)
    except UnicodeDecodeError as error:
        raise ParamsError(f"{path}: not UTF-8 text ({error}); save it as UTF-8") from None
    except OSError as error:
        raise ParamsError(f"{path}: {error.strerror}; run from the repository's root, or name a params file") from None
    return parse(text, path)


def parse(text: str, path: str | Path = PARAMS_FILE) -> Params:
    """Parse and check the text of a params file.

    path: the name of the file in messages. Raises ParamsError with one line, as `load` does.
    """
    try:
        block = load_yaml(text)
    # ValueError: text that load_yaml refuses, such as a number of thousands of digits.
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ParamsError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(block, dict):
        blocks = ", ".join(Params.model_fields)
        raise ParamsError(f"{path}: expected a mapping of blocks ({blocks}), got {type(block).__name__}")
    _check_names(block, path)
    try:
        return Params.model_validate(block)
    except ValidationError as error:
        raise ParamsError(f"{path}: {_one_line(error.errors(), block)}") from None


def _check_names(block: dict[str, Any], path: str | Path) -> None:
    """Check every name that becomes part of a path, before a message repeats it. Raises ParamsError."""
    for block_name in NAMED:
        names: Any = block
        for key in block_name.split("."):
            names = names.get(key) if isinstance(names, dict) else None
        for name in names if isinstance(names, dict) else ():
            if isinstance(name, str) and not NAME.fullmatch(name):
                raise ParamsError(
                    f"{path}: {block_name}: invalid name {SHORT.repr(name)}: use letters, digits and . _ @ = + - only, "
                    "at most 100, a letter or digit first"
                )


def _check_name(name: str, allowed: dict[str, Any], location: str) -> None:
    if name not in allowed:
        near = difflib.get_close_matches(name, allowed, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(allowed) or 'none'}"
        raise ValueError(f"{location}: unknown name {name!r}; {hint}")


def _one_line(errors: list[ErrorDetails], block: dict[str, Any]) -> str:
    # An unknown key comes first: a misspelt key explains why the right one is missing.
    error = min(errors, key=lambda item: item["type"] != "extra_forbidden")
    key = ".".join(str(part) for part in error["loc"])
    others = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    if error["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(error["loc"][-1]), _siblings(error["loc"]), 1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(_siblings(error['loc']))}"
        return f"{key}: unknown key; {hint}{others}"
    if error["type"] == "missing":
        return f"{key}: missing; add it{others}"
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "value_error":
        return f"{key + ': ' if key else ''}{message}{others}"
    return f"{key}: got {SHORT.repr(error['input'])}; {message[0].lower()}{message[1:]}{others}"


def _siblings(location: tuple[int | str, ...]) -> list[str]:
    """Return the keys that are valid at a position in the file."""
    annotation_type: Any = Params
    for part in location[:-1]:
        fields = getattr(annotation_type, "model_fields", None)
        annotation = fields[part].annotation if fields and part in fields else None
        # The part is a key of a mapping, whose values share one type: `annotation_type` is already that type.
        if fields is None or annotation is None:
            continue
        alternatives = (annotation, *get_args(annotation))
        annotation_type = next((kind for kind in alternatives if hasattr(kind, "model_fields")), annotation)
    return list(getattr(annotation_type, "model_fields", {}))


def complete(block: Any) -> Any:
    """Return the blocks of a params file with the definitions of models and recipes that it leaves out.

    A model that states its own `ref` or `family` takes nothing from the catalogue's model of that name. Values
    of another form than expected stay, for the checks that follow. Raises ValueError for a model without a
    definition whose name the catalogue does not have.
    """
    if not isinstance(block, dict) or not isinstance(block.get("models"), dict):
        return block
    models = {name: _complete_model(name, entry) for name, entry in block["models"].items()}
    checkpoints = block.get("checkpoints") or {}
    recipes = checkpoints.get("recipes") or {} if isinstance(checkpoints, dict) else None
    if not isinstance(recipes, dict):
        return block | {"models": models}
    pretraining = block.get("pretraining")
    named = {str(pretraining.get("recipe"))} if isinstance(pretraining, dict) else set()
    named |= {
        str(model["ref"]).removeprefix(CHECKPOINT)
        for model in models.values()
        if isinstance(model, dict) and str(model.get("ref")).startswith(CHECKPOINT)
    }
    known = {name: recipe for name, recipe in references.load_catalog()["recipes"].items() if name in named}
    return block | {"models": models, "checkpoints": checkpoints | {"recipes": known | recipes}}


def _complete_model(name: str, entry: Any) -> Any:
    models = references.load_catalog()["models"]
    if entry and not isinstance(entry, dict):
        return entry
    if not entry and name not in models:
        near = difflib.get_close_matches(str(name), models, 3)
        hint = f"did you mean {', '.join(near)}?" if near else "give family and ref"
        raise ValueError(f"models.{name} is not in {references.CATALOG}; {hint}")
    entry = entry or {}
    if "ref" in entry or "family" in entry:
        # Options, base model and family belong to the weights that the catalogue names.
        return entry
    return models.get(name, {}) | entry
