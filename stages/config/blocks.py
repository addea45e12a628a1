"""Blocks of params.yaml: studies, models and data, measures, pretraining, and resources of the jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from tasks.heads import HeadsOptions, LemmaOptions
from tasks.inside import AblationOptions, ProbeOptions, SimilarityOptions
from tasks.tokens import TokenOptions
from tsfmscope.compression.options import (
    CalibrationOptions,
    FidelityOptions,
    GuidelineRanks,
    Kinds,
    Method,
    Ranks,
    requested_size,
)
from tsfmscope.defaults import MAX_CONTEXT, MIN_CONTEXT, PRECISION, PRECISIONS, ROWS
from tsfmscope.forecasting.options import ScoreOptions
from tsfmscope.geometry.options import IsotropyOptions
from tsfmscope.models.references import split_checkpoint
from tsfmscope.report.plots import check_plot_name
from tsfmscope.series.catalog import Modality
from tsfmscope.series.data_sets import DATA_VARIABLE, DataSet, complete_entry
from tsfmscope.strict import Seed, Strict
from tsfmscope.theory.options import ByRank, ByWidth, Flow, Sketch
from tsfmscope.training.options import Recipe, SkillOptions

# Measures that a study may ask for. docs/building/params.py copies the trailing comments into the
# documentation, so they stay on the line of their value.
Measure = Literal[
    "isotropy",  # geometry, heads and forecasts of every cell
    "inputs",  # singular values of the input of every layer
    "weights",  # singular values of attention and MLP matrices, whole and per head, also at snapshots of a training
    "planes",  # embedded tokens projected on their two leading singular directions
    "token_angles",  # angles between the embedded tokens of a window
    "row_angles",  # angles between the rows of the first query projection
    "constant",  # singular values of every layer's input on one window, with special tokens and without
    "forecasts",  # forecasts of every cell, without other measures
    "validation",  # forecasts of the window before the last one, by which a model can be chosen
    "baselines",  # forecasts of forecasts.baselines on the same windows
    "fidelity",  # distance of a compressed model's forecasts and states from those of its base
    "probes",  # what linear probes read from the states of every layer: factors of drawn series, own forecast
    "ablation",  # forecasts without each layer, attention, MLP, head and group of directions
    "similarity",  # CKA of the layers of a changed model and its original, and of each two other models
]
# The models of tsfmscope/forecasting/baselines.py.
Baseline = Literal["seasonal-naive", "auto-ets", "auto-theta", "auto-arima"]
# Measures that need no data set.
OF_WEIGHTS = {"weights", "row_angles", "probes"}
# Measures that need no activation file of tokens.
WITHOUT_TOKENS = OF_WEIGHTS | {"forecasts", "fidelity", "validation", "baselines", "ablation", "similarity"}
# Name of each kind of job, in the order of the stages.
TASKS = (
    # Jobs of the stage checkpoints, and trials of the stage pretraining.
    *("pretrain", "skill", "validation_loss", "dataset_skill", "baseline_skill"),
    *("tokenize", "compress", "fidelity", "embed", "measure", "align", "head_partition", "lemma1"),
    *("input_spectrum", "gaussian_angles", "weight_spectra", "constant_spectra"),
    *("token_plane", "token_angles", "row_angles"),
    *("evaluate", "validate", "baseline", "probe", "ablate", "compare", "theory_bounds", "theory_points"),
)


class Study(Strict):
    """Every model on every data set of its modality under every condition, for one question."""

    title: str
    measures: list[Measure] = Field(["isotropy"], min_length=1, description="measures, see Measure")
    figure: str | None = Field(None, description="figure or section of a paper that the study reproduces or extends")
    models: Literal["all", "snapshots"] | list[str] = Field(
        min_length=1,
        description="models; BASE@METHOD names a compressed one; all: those without a "
        "base model, but no snapshots; snapshots: all weights of the population, the last ones of each training too; "
        "FAMILY-SIZE: those of all seeds",
    )
    datasets: Literal["all"] | list[str] = Field([], description="data sets; [] if only weights are measured")
    conditions: Literal["all"] | list[str] = Field([], description="conditions; [] if only weights are measured")
    layers: Literal["all", "first", "last"] = Field(
        "all", description="all layers, only the embedding of the first stack, or only the last state of each stack"
    )
    x_axis: dict[str, float] = Field(
        {}, description="model -> x: quantity that a grid of models varies, such as the patch size"
    )
    plot: Annotated[str, AfterValidator(check_plot_name)] = Field(
        "domains", description="plot of the study in the report: one of the plots below"
    )
    islands_layer: Literal["middle", "last"] = Field("last", description="layer that plot islands draws")

    @model_validator(mode="after")
    def _has_data_if_needed(self) -> Study:
        if data_measures := sorted(set(self.measures) - OF_WEIGHTS):
            for block in ("datasets", "conditions"):
                if not getattr(self, block):
                    raise ValueError(
                        f"{block}: got none, but data are needed for {', '.join(data_measures)}; name some, or all"
                    )
        return self

    def with_runs(self, runs: Mapping[str, Sequence[str]]) -> Study:
        """Return the study with the trainings of each size of the population that it names; runs: by size."""
        models = self.models
        if not isinstance(models, str):
            models = [run for name in models for run in runs.get(name, [name])]
        x_axis = {run: x for name, x in self.x_axis.items() for run in runs.get(name, [name])}
        return self.model_copy(update={"models": models, "x_axis": x_axis})


class Model(Strict):
    """A model that studies may name."""

    family: str = Field(
        description="model family: one of tsfmscope/models/registry.py, or one that an installed package adds"
    )
    ref: str = Field(
        description="checkpoint:NAME (a recipe of this file or of the catalogue) or checkpoint:NAME/step-N (a "
        "snapshot of its training), hub:ORG/NAME[@REVISION], or a folder"
    )
    options: dict[str, Any] = Field(
        {}, description="keywords of the family's `load`, such as rope_scaling: linear, and precision: bfloat16"
    )
    base_model: str | None = Field(
        None,
        description="original of a compressed model or of one with other options; `all` skips models that have one",
    )
    ranks: Ranks | None = Field(
        None,
        description="size of a model that was pretrained with narrow heads: {share: S}, its mean share of the heads' "
        "width",
    )

    @property
    def precision(self) -> str:
        """Precision of matrix products with the model's weights."""
        return str(self.options.get(PRECISION, PRECISIONS[0]))

    @property
    def is_snapshot(self) -> bool:
        """Whether the reference names weights from before the end of a training."""
        return bool(split_checkpoint(self.ref)[1])

    @property
    def size(self) -> dict[str, Any]:
        """Columns `size_parameter` and `size_rule` of the model's result rows."""
        return requested_size(self.ranks.model_dump(exclude_none=True) if self.ranks else None)

    @model_validator(mode="after")
    def _precision_is_known(self) -> Model:
        if self.precision not in PRECISIONS:
            raise ValueError(f"options.{PRECISION}: got {self.precision!r}, expected one of {', '.join(PRECISIONS)}")
        return self


class DataSets(Strict):
    """Sources of the series, and how many series are used."""

    root: str | None = Field(None, description=f"folder with Parquet files; the variable {DATA_VARIABLE} overrides it")
    max_series: int = Field(
        64, ge=1, description="largest number of series per data set; a seeded sample if there are more"
    )
    min_length: int = Field(
        32, ge=2, description="smallest number of steps; shorter series are skipped and counted in table `skipped`"
    )
    sets: dict[str, DataSet] = Field({})

    @model_validator(mode="before")
    @classmethod
    def _complete_from_catalog(cls, block: Any) -> Any:
        if not isinstance(block, dict) or not isinstance(block.get("sets"), dict):
            return block
        sets = {name: complete_entry(name, entry) for name, entry in block["sets"].items()}
        return {**block, "sets": sets}

    @model_validator(mode="after")
    def _files_are_under_the_root(self) -> DataSets:
        """Raise ValueError for a path that leaves the data root.

        Symbolic links inside the root are followed, because the owner of the root put them there.
        """
        for name, dataset in self.sets.items():
            path = PurePath(dataset.file or "")
            if path.is_absolute() or ".." in path.parts or "\0" in str(path):
                raise ValueError(
                    f"sets.{name}.file: got {dataset.file!r}, expected a path under the data root, relative and "
                    f"without '..'; move the file there, or set {DATA_VARIABLE} or datasets.root"
                )
        return self


class Condition(Strict):
    """Settings of the input: context length, noise and modality."""

    context: int = Field(ge=MIN_CONTEXT, le=MAX_CONTEXT, description="steps of context")
    history: int = Field(
        0, ge=0, description="steps before the context, read only by models with lags (lag-llama: 1092)"
    )
    noise: float = Field(
        0.0, ge=0, le=10, description="standard deviation of Gaussian noise on the context, in those of the series"
    )
    modality: Modality = Field(
        "series", description="modality of the data sets that the condition applies to: series, text, image or table"
    )


class KernelSynth(Strict):
    """Stage kernelsynth: the named synthetic data sets."""

    series: int = Field(64, ge=1, description="series per data set")
    length: int = Field(1024, ge=64, le=8192)


class Compression(Strict):
    """Stage compression: the compressed models that studies name as BASE@METHOD."""

    methods: dict[str, Method] = Field({}, description="name after the @ -> method")
    calibration: CalibrationOptions = CalibrationOptions()
    fidelity: FidelityOptions = FidelityOptions()


class Tokens(TokenOptions):
    """Stage tokens: windows of every data set under every condition, tokenised."""

    min_context: int = Field(MIN_CONTEXT, ge=1, description="smallest number of observed steps in a window's context")


class Geometry(IsotropyOptions):
    """Stage geometry: isotropy and effective dimension, as defined in docs/science.md."""

    rows: int = Field(ROWS, ge=3, description="largest number of tokens per layer; a seeded sample if there are more")
    cai: Literal["none", "last", "all"] = Field(
        "last", description="layers with the measures of Cai et al. as well, K up to 15, which doubles a layer's time"
    )


class Spectra(Strict):
    """Stage spectra: singular values, planes and angles of Yu et al. 2026."""

    plane_tokens: int = Field(400, ge=3, description="embedded tokens per plane")
    angle_tokens: int = Field(64, ge=2, le=512, description="tokens of one window whose angles are measured")
    angle_rows: int = Field(192, ge=2, le=1024, description="rows of a projection whose angles are measured")
    gaussian: list[int] = Field(
        [16, 768], description="dimensions of the i.i.d. Gaussian vectors that angles are compared with"
    )


class Heads(HeadsOptions):
    """Stage heads: alignment of attention heads, log-partition of a softmax head, Lemma 1."""

    lemma: LemmaOptions = LemmaOptions()


class Theory(Strict):
    """Stage theory: the theorems of Yu et al. 2026 at random instances, and the paper's Appendix J."""

    seeds: int = Field(20, ge=2, description="seeds of every experiment; each gives one slope")
    instances: int = Field(1000, ge=1, description="random instances of every statement")
    batch: int = Field(500, ge=1, description="instances per job")
    rank: ByRank = ByRank()
    width: ByWidth = ByWidth()
    sketch: Sketch = Sketch()
    flow: Flow = Flow()


class Forecasts(ScoreOptions):
    """Stage forecasts: the last window of every series, scored."""

    min_context: int = Field(MIN_CONTEXT, ge=1)
    validation_series: int = Field(
        32, ge=1, description="series whose validation window is forecast: the first ones of a data set"
    )
    baselines: list[Baseline] = Field(
        [], description="probabilistic models of statsforecast for studies with measure baselines, fitted per series"
    )


class Inside(Strict):
    """Stage inside: probes, ablation and similarity, as `tsfmscope probe`, `ablate` and `compare` measure them."""

    probes: ProbeOptions = ProbeOptions()
    ablation: AblationOptions = AblationOptions()
    similarity: SimilarityOptions = SimilarityOptions()


class Report(Strict):
    """Stage report: order of the page."""

    study: str | None = Field(
        None, description="study of the summary and of the first section; the others follow; null: the first one"
    )


class Skill(SkillOptions):
    """Measurement of skill: checkpoints pretrained here on unseen windows, every forecaster on sines and data sets."""

    datasets: Literal["all"] | list[str] | None = Field(
        None,
        description="data sets whose last windows are forecast, for the tables dataset_skill and mean_skill; all: "
        "the time series of datasets.sets that the catalogue names and this machine has, without your own files; "
        "null: none",
    )
    baselines: list[Baseline] = Field(
        ["auto-ets", "auto-theta"], description="models of statsforecast on the same windows, fitted per series"
    )
    max_series: int = Field(
        64, ge=1, description="largest number of series per data set; evenly spaced ones if there are more"
    )


class Checkpoints(Strict):
    """Stage checkpoints: weights of every model; a model with a recipe is pretrained here."""

    committed: str | None = Field(
        "tsfmscope/checkpoints", description="folder with checkpoints committed to git; null: train them again"
    )
    recipes: dict[str, Recipe] = Field({})
    skill: Skill = Skill()

    @model_validator(mode="after")
    def _embeddings_are_there(self) -> Checkpoints:
        for name, recipe in self.recipes.items():
            if (source := recipe.embedding_from) is None:
                continue
            hint = "expected another recipe of the same family without embedding_from"
            if source not in self.recipes or source == name:
                raise ValueError(f"recipes.{name}.embedding_from: got {source!r}, {hint}")
            other = self.recipes[source]
            if other.family != recipe.family or other.embedding_from is not None:
                raise ValueError(f"recipes.{name}.embedding_from: {source!r} is of {other.family}; {hint}")
        return self


class Pretraining(Strict):
    """Stage pretraining: a search over rank schedules, with one trial per schedule and seed.

    A trial that falls behind is stopped early.
    """

    recipe: str | None = Field(None, description="recipe whose heads and seed the trials replace; null: no search")
    first: list[Annotated[float, Field(gt=0)]] = Field(
        [], description="values of flow's `first`; they form a grid with `growth`"
    )
    growth: list[Annotated[float, Field(ge=0)]] = Field([], description="values of flow's `growth`")
    rounding: Literal["ceiling", "power_of_two"] = Field("ceiling", description="flow's `rounding`")
    origin: int = Field(1, ge=1, description="flow's `origin`")
    cross_offset: bool = Field(False, description="flow's `cross_offset`")
    guideline: list[GuidelineRanks] = Field([], description="schedules of kind guideline")
    flat: list[Annotated[int, Field(ge=1)]] = Field([], description="flat ranks, as a control")
    factors: Literal["head", "shared"] = "head"
    attention: Kinds | None = Field(None, min_length=1, description="kinds of attention that get the ranks; null: all")
    seeds: list[Seed] = Field([0], min_length=1, description="seeds; trials of the same seed are compared")
    grace: int = Field(500, ge=1, description="steps before a trial may be stopped; trials stop at saved steps only")
    reduction: float = Field(
        3.0, gt=1, description="at step grace x reduction^k, 1 / reduction of a seed's trials continue"
    )


def _whole_or_fraction(gpus: float) -> float:
    """Return the number of GPUs unchanged if Ray can allocate it.

    Raises ValueError for a number such as 1.5, because Ray either shares one GPU or allocates whole GPUs.
    """
    if gpus > 1 and gpus != int(gpus):
        raise ValueError(f"got {gpus:g}, expected 0, a fraction below 1, or a whole number")
    return gpus


Gpus = Annotated[float, AfterValidator(_whole_or_fraction)]


class TaskResources(Strict):
    """Resources of an actor for the jobs of one task; a missing key has the value of `resources`."""

    cpus: float | None = Field(None, gt=0, description="CPUs per actor, and threads of its libraries")
    gpus: Gpus | None = Field(
        None, ge=0, description="GPUs per actor; 0: runs on CPUs; a fraction: several actors share one GPU"
    )
    memory_mb: int | None = Field(None, ge=1, description="host memory that Ray reserves for an actor")
    custom: dict[str, float] | None = Field(None, description="custom resources of Ray nodes, per actor")
    labels: dict[str, str] | None = Field(None, description="label selector of the nodes that may run the actors")
    actors: int | None = Field(None, ge=1, description="largest number of actors; null: as many as fit")
    processes: int | None = Field(
        None, ge=1, description="pretrain only: processes that share every batch; null: one per GPU, one without GPUs"
    )


class Resources(Strict):
    """Machines and resources of the jobs. No stage tracks them, and they are not part of any key."""

    address: str | None = Field(
        None, description="address of a running Ray cluster, such as auto or HOST:6379; null: start one"
    )
    actors: int | None = Field(
        None, ge=1, description="largest number of actors of all tasks; null: as many as the cores and GPUs allow"
    )
    cpus_per_actor: float = Field(1, gt=0, description="CPUs per actor, and threads of its libraries")
    gpus_per_actor: Gpus = Field(
        0, ge=0, description="GPUs per actor; 0.5: two actors share one GPU, whose memory must hold both models"
    )
    memory_mb: int | None = Field(None, ge=1, description="host memory that Ray reserves for an actor")
    labels: dict[str, str] = Field({}, description="Ray's label selector of the nodes that may run actors")
    tasks: dict[str, TaskResources] = Field({}, description="task -> resources of its actors; TASKS lists the names")
    max_attempts: int = Field(3, ge=1)
    job_timeout_s: float = Field(1800, gt=0)
    load_timeout_s: float = Field(3600, gt=0, description="time limit for loading a model, download included")
    flush_s: float = Field(5, gt=0)
    max_failed_share: float = Field(
        0.01, ge=0, le=1, description="largest share of failed jobs; a stage with more exits 1"
    )
