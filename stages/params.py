"""params.yaml as typed objects, parsed once, at the border; what is wrong is one line with the key and the mend."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, get_args

import yaml
from pydantic import Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from stages.blocks import (
    DATA_VARIABLE,
    TASKS,
    Baseline,
    Checkpoints,
    Compression,
    Condition,
    DataSets,
    Embeddings,
    Forecasts,
    Geometry,
    Heads,
    KernelSynth,
    Model,
    Packages,
    Pretraining,
    Report,
    Resources,
    Spectra,
    Statistics,
    Strict,
    Study,
    Theory,
    Tokens,
)
from tasks.series.catalog import modality

PARAMS_FILE = "params.yaml"
MOST_VALUES = 1_000_000  # of a params file; the paper's profile has two thousand
COMPRESSED = "compressed:"  # opens the reference of a model that the stage compression makes, BASE@METHOD
NAME = r"^[A-Za-z0-9][A-Za-z0-9._@=+-]*$"  # names become file names


class ParamsError(Exception):
    """params.yaml cannot be used; the message is one line."""


class Params(Strict):
    """The whole file."""

    profile: str = Field("default", description="what the report calls this file")
    seed: int = Field(0, ge=0)
    environments: dict[str, Packages] = Field({})
    models: dict[str, Model]
    datasets: DataSets
    conditions: dict[str, Condition]
    studies: dict[str, Study]
    kernelsynth: KernelSynth = KernelSynth()
    checkpoints: Checkpoints = Checkpoints()
    compression: Compression = Compression()
    pretraining: Pretraining = Pretraining()
    tokens: Tokens = Tokens()
    embeddings: Embeddings = Embeddings()
    geometry: Geometry = Geometry()
    heads: Heads = Heads()
    spectra: Spectra = Spectra()
    forecasts: Forecasts = Forecasts()
    statistics: Statistics = Statistics()
    theory: Theory = Theory()
    report: Report
    resources: Resources = Resources()

    @model_validator(mode="after")
    def _compressed_are_models(self) -> Params:
        """Make a model of every BASE@METHOD that a study names; runs before _names_exist."""
        calibrated = self.compression.calibration.datasets
        for dataset in calibrated:
            _known(dataset, self.datasets.sets, "compression.calibration.datasets")
        for name, method in self.compression.methods.items():
            if method.reads_data and not calibrated:
                raise ValueError(
                    f"compression.calibration.datasets: got none, but method {name!r} looks at data; name some"
                )
        bases = dict(self.models)
        for name, ref in ((name, model.ref) for name, model in bases.items()):
            if ref.startswith(COMPRESSED):
                raise ValueError(f"models.{name}.ref is {ref!r}; name BASE@METHOD in a study instead")
        for study, wanted in self.studies.items():
            named = {"models": [] if wanted.models == "all" else wanted.models, "along": wanted.along}
            for block, names in named.items():
                for name in names:
                    if "@" in name and name not in self.models:
                        self.models[name] = self._compressed(name, bases, f"studies.{study}.{block}")
        return self

    def _compressed(self, name: str, bases: dict[str, Model], where: str) -> Model:
        """The model of a BASE@METHOD: its base, read as that is, under a reference of its own."""
        base, _, method = name.rpartition("@")
        _known(base, bases, f"{where}: {name!r}: base model")
        _known(method, self.compression.methods, f"{where}: {name!r}: compression.methods")
        rank = self.compression.methods[method].ranks.number
        return bases[base].model_copy(update={"ref": f"{COMPRESSED}{name}", "base_model": base, "rank": rank})

    @model_validator(mode="after")
    def _names_exist(self) -> Params:
        for study, wanted in self.studies.items():
            for block in ("models", "datasets", "conditions"):
                names = getattr(wanted, block)
                for name in [] if names == "all" else names:
                    _known(name, self._named(block), f"studies.{study}.{block}")
            for name in wanted.along:
                _known(name, self.models, f"studies.{study}.along")
        for name, model in self.models.items():
            if model.environment is not None:
                _known(model.environment, self.environments, f"models.{name}.environment")
            if model.base_model is not None:
                _known(model.base_model, self.models, f"models.{name}.base_model")
                self._made_from_no_copy_of_itself(name)
            kind, _, recipe = model.ref.partition(":")
            if kind == "checkpoint":
                _known(recipe, self.checkpoints.recipes, f"models.{name}.ref")
                if self.checkpoints.recipes[recipe].family != model.family:
                    raise ValueError(
                        f"models.{name}.family is {model.family!r}, but its recipe makes "
                        f"{self.checkpoints.recipes[recipe].family!r}; make them the same"
                    )
        if (searched := self.pretraining.recipe) is not None:
            _known(searched, self.checkpoints.recipes, "pretraining.recipe")
            grace, steps = self.pretraining.grace, self.checkpoints.recipes[searched].steps
            if grace > steps:
                raise ValueError(f"pretraining.grace: got {grace}, expected at most {steps}, the steps of {searched!r}")
            if self.checkpoints.recipes[searched].embedding_from is not None:
                raise ValueError(
                    f"pretraining.recipe: {searched!r} takes over an embedding; name one that draws its own"
                )
        _known(self.report.study, self.studies, "report.study")
        for task, placing in self.resources.tasks.items():
            _known(task, dict.fromkeys(TASKS), "resources.tasks")
            if placing.processes is not None and task != "pretrain":
                raise ValueError(f"resources.tasks.{task}.processes: only pretrain shares its work; leave it out")
        self._baselines_have_names_of_their_own()
        return self

    def _made_from_no_copy_of_itself(self, name: str) -> None:
        chain = [name]
        while (base := self.models[chain[-1]].base_model) in self.models:
            if base in chain:
                raise ValueError(
                    f"models.{name}.base_model: {' is made from '.join([*chain, base])}; name its original"
                )
            chain.append(str(base))

    def _baselines_have_names_of_their_own(self) -> None:
        for name, study in self.studies.items():
            if "baselines" in study.measures and not self.forecasts.baselines:
                raise ValueError(
                    f"studies.{name}.measures: baselines, but forecasts.baselines is []; name some of "
                    f"{', '.join(get_args(Baseline))}"
                )
        if taken := sorted(set(self.models) & set(get_args(Baseline))):
            raise ValueError(f"models.{taken[0]}: the name of a baseline (see forecasts.baselines); take another")

    def _named(self, block: str) -> dict[str, Any]:
        named: dict[str, dict[str, Any]] = {
            "models": self.models,
            "datasets": self.datasets.sets,
            "conditions": self.conditions,
        }
        return named[block]

    @property
    def compressed(self) -> dict[str, Model]:
        """The models that the stage compression makes, by name."""
        return {name: model for name, model in self.models.items() if model.ref.startswith(COMPRESSED)}

    def asked(self, study: str, block: Literal["models", "datasets", "conditions"]) -> list[str]:
        """The names that a study asks for, `all` written out.

        Of models, those that are made from no other; of data sets, time series that are no probing signal.
        """
        names = getattr(self.studies[study], block)
        if names != "all":
            return list(names)
        if block == "models":
            return [name for name, one in self.models.items() if one.base_model is None]
        if block == "datasets":
            sets = self.datasets.sets
            return [name for name, one in sets.items() if modality(one.source) == "series" and one.source != "signals"]
        return list(self.conditions)

    @property
    def data_root(self) -> Path | None:
        """The folder of external data: the environment's, else the file's, else none."""
        named = os.environ.get(DATA_VARIABLE) or self.datasets.root
        return Path(named).expanduser() if named else None


def load(path: str | Path = PARAMS_FILE) -> Params:
    """Read and check a params file. Raises ParamsError with one line: key, value, what would be right."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ParamsError(f"{path}: not UTF-8 text ({error}); save it as UTF-8") from None
    except OSError as error:
        raise ParamsError(f"{path}: {error.strerror}; run from the repository's root, or name a params file") from None
    return parse(text, path)


def parse(text: str, path: str | Path = PARAMS_FILE) -> Params:
    """Check the text of a params file; path: what a message calls it. Raises ParamsError as `load` does."""
    try:
        block = yaml.safe_load(text)
        if _values(block, {}) > MOST_VALUES:
            raise ParamsError(f"{path}: stands for more than {MOST_VALUES} values; an alias (*name) repeats too much")
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # the last: a number of thousands of digits
        raise ParamsError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(block, dict):
        blocks = ", ".join(Params.model_fields)
        raise ParamsError(f"{path}: expected a mapping of blocks ({blocks}), got {type(block).__name__}")
    try:
        params = Params.model_validate(block)
    except ValidationError as error:
        raise ParamsError(f"{path}: {_one_line(error.errors(), block)}") from None
    _check_names(params, path)
    return params


def _values(node: object, seen: dict[int, int]) -> int:
    """How many values YAML stands for with its aliases written out; seen: of lists and mappings, by their id."""
    if not isinstance(node, dict | list):
        return 1
    if id(node) not in seen:
        seen[id(node)] = MOST_VALUES + 1  # of one that holds itself
        seen[id(node)] = 1 + sum(_values(one, seen) for one in (node.values() if isinstance(node, dict) else node))
    return seen[id(node)]


def _check_names(params: Params, path: str | Path) -> None:
    blocks: dict[str, Iterable[str]] = {
        "models": params.models,
        "datasets.sets": params.datasets.sets,
        "conditions": params.conditions,
        "studies": params.studies,
        "checkpoints.recipes": params.checkpoints.recipes,
        "compression.methods": params.compression.methods,
    }
    for block, names in blocks.items():
        for name in names:
            if not re.match(NAME, name):
                raise ParamsError(f"{path}: {block}: {name!r} is no name; use letters, digits and . _ @ = + - only")


def _known(name: str, known: dict[str, Any], where: str) -> None:
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        mend = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known) or 'none'}"
        raise ValueError(f"{where} names {name!r}, which is not there; {mend}")


def _one_line(errors: list[ErrorDetails], block: dict[str, Any]) -> str:
    error = min(errors, key=lambda one: one["type"] != "extra_forbidden")  # a typo explains what is missing
    key = ".".join(str(part) for part in error["loc"])
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    if error["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(error["loc"][-1]), _siblings(error["loc"]), 1)
        mend = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(_siblings(error['loc']))}"
        return f"{key}: unknown key; {mend}{more}"
    if error["type"] == "missing":
        return f"{key}: missing; add it{more}"
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "value_error":
        return f"{key + ': ' if key else ''}{message}{more}"
    return f"{key}: got {error['input']!r}; {message[0].lower()}{message[1:]}{more}"


def _siblings(location: tuple[int | str, ...]) -> list[str]:
    """Keys that would have been right at a place of the file."""
    at: Any = Params
    for part in location[:-1]:
        fields = getattr(at, "model_fields", None)
        annotation = fields[part].annotation if fields and part in fields else None
        if fields is None or annotation is None:  # a name of a mapping: its values share one type, already reached
            continue
        at = next((a for a in (annotation, *get_args(annotation)) if hasattr(a, "model_fields")), annotation)
    return list(getattr(at, "model_fields", {}))
