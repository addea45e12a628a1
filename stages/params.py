"""params.yaml as typed objects, parsed once, at the border; what is wrong is one line with the key and the mend."""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from tasks.series.catalog import CATALOG

PARAMS_FILE = "params.yaml"
DATA_VARIABLE = "TSFM_LENS_DATA"  # overrides datasets.root
NAME = r"^[A-Za-z0-9][A-Za-z0-9._@=+-]*$"  # names become file names


class ParamsError(Exception):
    """params.yaml cannot be used; the message is one line."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Model(_Strict):
    """A model that studies may name."""

    family: str = Field(description="a family of tasks/models/registry.py, or one that an installed package adds")
    ref: str = Field(description="checkpoint:NAME (a recipe of this file), hub:ORG/NAME[@REVISION], or a folder")
    options: dict[str, Any] = Field({}, description="keywords of the family's `load`, such as rope_scaling: linear")
    base_model: str | None = Field(
        None, description="the model that this one is made from (compressed, read otherwise); `all` leaves it out"
    )
    rank: float | None = Field(None, gt=0, description="for a compressed model: its rank or share of ranks")


class DataSet(_Strict):
    """A data set that studies may name; what is left out comes from the entry of that name in catalog.yaml."""

    source: Literal["kernelsynth", "bundled", "folder", "hub"]
    domain: str = ""
    horizon: int = Field(gt=0, le=1024, description="steps to forecast")
    kernel: str | None = Field(None, description="source kernelsynth: a scikit-learn kernel expression")
    file: str | None = Field(None, description="source folder: a Parquet file under the data root")
    items: str | None = Field(None, description="regular expression that item ids must match")
    paper: str | None = Field(None, description="the isotropy paper's name for it, such as finance-1")
    stands_in_for: str | None = Field(None, description="not the paper's own: what it stands in for, how it differs")

    @model_validator(mode="after")
    def _source_has_its_field(self) -> DataSet:
        need = {"kernelsynth": "kernel", "folder": "file"}.get(self.source)
        if need and getattr(self, need) is None:
            raise ValueError(f"source {self.source!r} needs {need!r}; add it, or use a name of catalog.yaml")
        return self


class DataSets(_Strict):
    """Where series come from and how many are used."""

    root: str | None = Field(None, description=f"folder with Parquet files; the variable {DATA_VARIABLE} overrides it")
    max_series: int = Field(64, ge=1, description="series used of a data set, a seeded sample where it has more")
    min_length: int = Field(32, ge=2, description="shorter series are skipped, counted")
    sets: dict[str, DataSet]

    @model_validator(mode="before")
    @classmethod
    def _complete_from_catalog(cls, block: Any) -> Any:
        if not isinstance(block, dict) or not isinstance(block.get("sets"), dict):
            return block
        sets = {name: _from_catalog(name, entry) for name, entry in block["sets"].items()}
        return {**block, "sets": sets}


class Condition(_Strict):
    """How a model sees a series."""

    context: int = Field(ge=16, description="steps of context")
    history: int = Field(0, ge=0, description="steps before it, for models that read lags (lag-llama: 1092) alone")
    noise: float = Field(0.0, ge=0, le=10, description="s.d. of Gaussian noise on the context, in s.d. of the series")


class Study(_Strict):
    """What is asked: every model on every data set under every condition."""

    title: str
    figure: str | None = Field(None, description="the figure or table of a paper that it answers")
    models: Literal["all"] | list[str] = Field(min_length=1)
    datasets: Literal["all"] | list[str] = Field(min_length=1)
    conditions: Literal["all"] | list[str] = Field(min_length=1)
    layers: Literal["all", "last"] = Field("all", description="all layers, or each stack's last state")
    picture: Literal["domains", "conditions", "islands", "dimension", "none"] = Field(
        "domains", description="NMSE against isotropy by domain, from one condition to another; states; d(0.8) by layer"
    )
    pictured: Literal["middle", "last"] = Field("last", description="layer of the islands")


class KernelSynth(_Strict):
    """Stage kernelsynth: the named synthetic sets."""

    series: int = Field(64, ge=1, description="series a set")
    length: int = Field(1024, ge=64, le=8192)


class Recipe(_Strict):
    """How a small checkpoint is pretrained; its SHA-256 ties a committed checkpoint to this text."""

    family: str
    config: dict[str, Any] = Field(description="what the family's `new` takes")
    steps: int = Field(ge=1)
    batch_steps: int = Field(ge=1, description="a batch has batch_steps // (context + horizon) windows")
    learning_rate: float = Field(gt=0)
    weight_decay: float = Field(0.0, ge=0)
    warm_up: int = Field(0, ge=0, description="steps")
    contexts: list[int] = Field(min_length=1, description="context lengths; a batch has one of them")
    horizon: int = Field(ge=1)
    futures: list[int] = Field([], description="steps of the horizon that a batch is trained on, one of these; [] all")
    min_past: int = Field(ge=1, description="fewest observed steps of a training context")
    mixture: dict[Literal["kernelsynth", "tsmixup", "bundled"], float]
    pool: int = Field(ge=1, description="KernelSynth series drawn")
    length: int = Field(1024, ge=64)
    seed: int = 0
    log_every: int = Field(50, ge=1)
    save_every: int = Field(500, ge=1, description="steps between the states that a killed run goes on from")

    @model_validator(mode="after")
    def _adds_up(self) -> Recipe:
        if not math.isclose(sum(self.mixture.values()), 1.0, abs_tol=1e-9):
            raise ValueError(f"mixture sums to {sum(self.mixture.values()):g}, expected 1")
        if self.save_every % self.log_every:
            raise ValueError(f"save_every {self.save_every} must be a multiple of log_every {self.log_every}")
        return self


class Skill(_Strict):
    """How the skill of pretrained checkpoints is measured: on unseen windows, against naive forecasts."""

    windows: int = Field(1000, ge=100, description="unseen windows, at least")
    context: int = Field(500, ge=16)
    samples: int = Field(20, ge=1)
    bootstrap: int = Field(2000, ge=100)


class Checkpoints(_Strict):
    """Stage checkpoints: every model's weights, pretrained here where a recipe says so."""

    committed: str | None = Field("checkpoints", description="folder with checkpoints kept in git; null retrains")
    recipes: dict[str, Recipe] = {}
    skill: Skill = Skill()


class Tokens(_Strict):
    """Stage tokens: windows of every data set under every condition, tokenised."""

    rows: int = Field(2048, ge=1, description="rows that every layer of every stack shall have, at least")
    min_context: int = Field(16, ge=1, description="windows with fewer observed steps are not cut")


class Embeddings(_Strict):
    """Stage embeddings: hidden states of every layer."""

    rows: int = Field(2048, ge=1, description="rows kept a stack, the same tokens for every layer (seeded sample)")
    batch: int | None = Field(None, ge=1, description="windows a forward pass; null: those that suit the device")
    store_dtype: Literal["float16", "float32"] = "float32"


class Geometry(_Strict):
    """Stage geometry: the measures of science.md section 2."""

    rows: int = Field(2048, ge=3, description="rows used, equal for all (seeded subsample where there are more)")
    k_max: int = Field(10, ge=2, le=50)
    restarts: int = Field(10, ge=1)
    min_silhouette: float = Field(0.1, ge=-1, le=1, description="below it K = 1 (Cai et al. 2021)")
    min_cluster: int = Field(30, ge=2, description="smaller clusters are left out of the adjusted cosine")
    silhouette_rows: int = Field(20_000, ge=100)
    permutations: int = Field(39, ge=0, le=9999, description="of the null that the adjusted cosine is held against")
    cai: Literal["none", "last", "all"] = Field(
        "last", description="states that Cai et al.'s own measures are taken of too, K to 15: it doubles a layer's time"
    )


class Lemma(_Strict):
    """Instances that the isotropy paper's Lemma 1 is checked on; a dense Jacobian each."""

    tokens: list[Annotated[int, Field(ge=2, le=1024)]] = Field(
        [2, 8], min_length=1, description="sizes of instances; smaller where tokens x width is over 2048"
    )
    windows: int = Field(1, ge=0, description="instances a head, dump and size, each from its own window; 0: none")
    layers: Literal["all", "ends"] = Field("ends", description="all blocks, or the first and last of each stack")


class Heads(_Strict):
    """Stage heads: alignment of attention heads, log-partition of a softmax head, Lemma 1."""

    rows: int = Field(512, ge=2, description="rows of a layer's input, of as few seeded windows as hold them")
    batch: int | None = Field(None, ge=1, description="windows a forward pass; null: as embeddings do")
    lemma: Lemma = Lemma()


class Forecasts(_Strict):
    """Stage forecasts: the last window of every series, scored."""

    levels: list[float] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    samples: int = Field(20, ge=1, description="sample paths of models that sample")
    batch: int = Field(64, ge=1, description="windows a call")
    keep_quantiles: bool = False
    min_context: int = Field(16, ge=1)


class Statistics(_Strict):
    """Stage statistics: intervals and tests of science.md section 10."""

    permutations: int = Field(9999, ge=999, description="random orders where there are more orders than these")
    bootstrap: int = Field(2000, ge=100, description="resamples of every interval")
    alpha: float = Field(0.05, gt=0, lt=0.5, description="level of critical sizes; intervals cover 1 - alpha")


class Report(_Strict):
    """Stage report: what the page pictures."""

    study: str = Field(description="the study of the first words and the first section; the others follow")


class Resources(_Strict):
    """Where and how wide things run; tracked by no stage, part of no key."""

    address: str | None = Field(None, description="of a running Ray, such as auto or ray://HOST:10001; null starts one")
    actors: int | None = Field(None, ge=1, description="null: as many as the cores or GPUs allow")
    cpus_per_actor: float = Field(1, gt=0)
    gpus_per_actor: float = Field(0, ge=0)
    max_attempts: int = Field(3, ge=1)
    job_timeout_s: float = Field(1800, gt=0)
    flush_s: float = Field(5, gt=0)
    max_failed_share: float = Field(0.01, ge=0, le=1, description="a stage with a larger share of failures exits 1")


class Params(_Strict):
    """The whole file."""

    profile: str = Field("default", description="what the report calls this file")
    seed: int = Field(0, ge=0)
    models: dict[str, Model]
    datasets: DataSets
    conditions: dict[str, Condition]
    studies: dict[str, Study]
    kernelsynth: KernelSynth = KernelSynth()
    checkpoints: Checkpoints = Checkpoints()
    tokens: Tokens = Tokens()
    embeddings: Embeddings = Embeddings()
    geometry: Geometry = Geometry()
    heads: Heads = Heads()
    forecasts: Forecasts = Forecasts()
    statistics: Statistics = Statistics()
    report: Report
    resources: Resources = Resources()

    @model_validator(mode="after")
    def _names_exist(self) -> Params:
        for study, wanted in self.studies.items():
            for block in ("models", "datasets", "conditions"):
                names = getattr(wanted, block)
                for name in [] if names == "all" else names:
                    _known(name, self._named(block), f"studies.{study}.{block}")
        for name, model in self.models.items():
            if model.base_model is not None:
                _known(model.base_model, self.models, f"models.{name}.base_model")
            kind, _, recipe = model.ref.partition(":")
            if kind == "checkpoint":
                _known(recipe, self.checkpoints.recipes, f"models.{name}.ref")
                if self.checkpoints.recipes[recipe].family != model.family:
                    raise ValueError(
                        f"models.{name}.family is {model.family!r}, but its recipe makes "
                        f"{self.checkpoints.recipes[recipe].family!r}; make them the same"
                    )
        _known(self.report.study, self.studies, "report.study")
        return self

    def _named(self, block: str) -> dict[str, Any]:
        named: dict[str, dict[str, Any]] = {
            "models": self.models,
            "datasets": self.datasets.sets,
            "conditions": self.conditions,
        }
        return named[block]

    def asked(self, study: str, block: Literal["models", "datasets", "conditions"]) -> list[str]:
        """The names that a study asks for, `all` written out: of models, those that are made from no other."""
        names = getattr(self.studies[study], block)
        if names != "all":
            return list(names)
        return [name for name, one in self._named(block).items() if block != "models" or one.base_model is None]

    @property
    def data_root(self) -> Path | None:
        """The folder of external data: the environment's, else the file's, else none."""
        named = os.environ.get(DATA_VARIABLE) or self.datasets.root
        return Path(named).expanduser() if named else None


def load(path: str | Path = PARAMS_FILE) -> Params:
    """Read and check a params file. Raises ParamsError with one line: key, value, what would be right."""
    try:
        text = Path(path).read_text()
    except OSError as error:
        raise ParamsError(f"{path}: {error.strerror}; run from the repository's root, or name a params file") from None
    try:
        block = yaml.safe_load(text)
    except yaml.YAMLError as error:
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


def _check_names(params: Params, path: str | Path) -> None:
    blocks: dict[str, Iterable[str]] = {
        "models": params.models,
        "datasets.sets": params.datasets.sets,
        "conditions": params.conditions,
        "studies": params.studies,
        "checkpoints.recipes": params.checkpoints.recipes,
    }
    for block, names in blocks.items():
        for name in names:
            if not re.match(NAME, name):
                raise ParamsError(f"{path}: {block}: {name!r} is no name; use letters, digits and . _ @ = + - only")


def _from_catalog(name: str, entry: Any) -> Any:
    if entry is not None and not isinstance(entry, dict):
        return entry
    known = CATALOG.get(name)
    fields = {} if known is None else {k: getattr(known, k) for k in DataSet.model_fields if hasattr(known, k)}
    if known is None and not entry:
        near = difflib.get_close_matches(name, CATALOG, 3)
        hint = f"did you mean {', '.join(near)}?" if near else "give source, horizon and file"
        raise ValueError(f"datasets.sets.{name} is not in catalog.yaml; {hint}")
    return {**{k: v for k, v in fields.items() if v is not None}, **(entry or {})}


def _known(name: str, known: dict[str, Any], where: str) -> None:
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        mend = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known) or 'none'}"
        raise ValueError(f"{where} names {name!r}, which is not there; {mend}")


def _one_line(errors: list[ErrorDetails], block: dict[str, Any]) -> str:
    error = errors[0]
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
