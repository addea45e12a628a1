"""The blocks of params.yaml as typed objects: each key, what it means, and what it may be."""

from __future__ import annotations

import difflib
import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tasks.series.catalog import CATALOG, MODALITIES, Modality

DATA_VARIABLE = "TSFM_LENS_DATA"  # overrides datasets.root


Measure = Literal[  # what a study may ask for
    "isotropy",  # geometry, heads and forecasts of every cell
    "inputs",  # singular values of the tokens that every layer is given
    "weights",  # singular values of every attention and MLP matrix, whole and by head, snapshots of a training too
    "planes",  # embedded tokens on their two leading singular directions
    "token_angles",  # between the embedded tokens of a window
    "row_angles",  # between the rows of the first query projection
    "constant",  # singular values of every layer's input on one window, with special tokens and without
    "forecasts",  # forecasts of every cell alone
    "baselines",  # forecasts of forecasts.baselines on the same windows
    "fidelity",  # of compressed models: how far their forecasts and states are from those of their base
]
Baseline = Literal["seasonal-naive", "auto-ets", "auto-theta", "auto-arima"]  # tasks/forecasting/local.py
Picture = Literal[  # how the report draws a study
    "domains",  # NMSE against isotropy, a panel a domain
    "conditions",  # NMSE against isotropy from one condition to another
    "islands",  # hidden states on three components
    "dimension",  # effective dimension by layer
    "spectrum",  # singular values of the embedded tokens, a line a model
    "plane",  # embedded tokens on two singular directions
    "angles",  # between tokens, or between rows of a projection
    "growth",  # numerical rank of inputs and weights by layer
    "along",  # numerical rank against what a grid of models varies
    "constant",  # singular values of every layer's input for a constant series
    "histogram",  # singular values of a matrix, a panel a layer
    "snapshots",  # the same at steps of a training
    "frontier",  # accuracy against time, compressed models and baselines relative to the dense model
    "compressed",  # accuracy and overlap against size, a line a way of compressing, the paper's beside them
    "pretrained",  # accuracy against size of models pretrained with narrow heads, growing with depth and flat
    "none",
]
OF_WEIGHTS = {"weights", "row_angles"}  # measures that look at no data set
CALIBRATED = {"aware", "aware-svd", "project"}  # methods of compression that look at data
WITHOUT_TOKENS = OF_WEIGHTS | {"forecasts", "fidelity", "baselines"}  # measures that read no token dump


class Strict(BaseModel):
    """Unknown keys are errors, and nothing changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Model(Strict):
    """A model that studies may name."""

    family: str = Field(description="a family of tasks/models/registry.py, or one that an installed package adds")
    ref: str = Field(description="checkpoint:NAME (a recipe of this file), hub:ORG/NAME[@REVISION], or a folder")
    options: dict[str, Any] = Field({}, description="keywords of the family's `load`, such as rope_scaling: linear")
    base_model: str | None = Field(
        None, description="the model that this one is made from (compressed, read otherwise); `all` leaves it out"
    )
    rank: float | None = Field(None, gt=0, description="for a compressed model: the number of its ranks, see Ranks")


class DataSet(Strict):
    """A data set that studies may name; what is left out comes from the entry of that name in catalog.yaml."""

    source: Literal["kernelsynth", "signals", "bundled", "folder", "hub", "text", "images", "tables"]
    domain: str = ""
    horizon: int = Field(gt=0, le=1024, description="steps to forecast")
    kernel: str | None = Field(None, description="source kernelsynth: a scikit-learn kernel expression")
    signal: Literal["corpus", "sinusoid", "noise", "constant"] | None = Field(
        None, description="source signals: a mixture that embeddings are probed with, or a single one"
    )
    file: str | None = Field(None, description="under the data root: folder's Parquet file, UTF-8 text or .npz images")
    items: str | None = Field(None, description="regular expression that item ids must match")
    paper: str | None = Field(None, description="the isotropy paper's name for it, such as finance-1")
    stands_in_for: str | None = Field(None, description="not the paper's own: what it stands in for, how it differs")

    @model_validator(mode="after")
    def _source_has_its_field(self) -> DataSet:
        need = {"kernelsynth": "kernel", "signals": "signal", "folder": "file"}.get(self.source)
        if need and getattr(self, need) is None:
            raise ValueError(f"source {self.source!r} needs {need!r}; add it, or use a name of catalog.yaml")
        return self


class DataSets(Strict):
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


class Condition(Strict):
    """How a model sees a series."""

    context: int = Field(ge=16, description="steps of context")
    history: int = Field(0, ge=0, description="steps before it, for models that read lags (lag-llama: 1092) alone")
    noise: float = Field(0.0, ge=0, le=10, description="s.d. of Gaussian noise on the context, in s.d. of the series")
    modality: Modality = Field("series", description="of the data sets that are seen so: series, text, image or table")


class Study(Strict):
    """What is asked: every model on every data set of its modality under every condition."""

    title: str
    measures: list[Measure] = Field(["isotropy"], min_length=1, description="what is measured: see Measure")
    figure: str | None = Field(None, description="the figure or table of a paper that it answers")
    models: Literal["all"] | list[str] = Field(min_length=1, description="names, or BASE@METHOD for a compressed one")
    datasets: Literal["all"] | list[str] = Field([], description="none where weights alone are measured")
    conditions: Literal["all"] | list[str] = Field([], description="likewise")
    layers: Literal["all", "first", "last"] = Field(
        "all", description="all layers, the first stack's embedding, or each stack's last state"
    )
    along: dict[str, float] = Field({}, description="model -> x: what a grid of models varies, such as its patch size")
    picture: Picture = Field("domains", description="how the report draws it: see Picture")
    pictured: Literal["middle", "last"] = Field("last", description="layer of the islands")

    @model_validator(mode="after")
    def _data_where_needed(self) -> Study:
        if needing := sorted(set(self.measures) - OF_WEIGHTS):
            for block in ("datasets", "conditions"):
                if not getattr(self, block):
                    raise ValueError(
                        f"{block}: got none, but data are needed for {', '.join(needing)}; name some, or all"
                    )
        return self


class KernelSynth(Strict):
    """Stage kernelsynth: the named synthetic sets."""

    series: int = Field(64, ge=1, description="series a set")
    length: int = Field(1024, ge=64, le=8192)


class FlowRanks(Strict):
    """Heads of first (l - 1 + origin)^growth dimensions in layer l = 1, 2, ..., rounded."""

    first: float = Field(gt=0, description="the paper's d̃_0")
    growth: float = Field(ge=0, description="the paper's α; 0: every layer the same")
    rounding: Literal["ceiling", "power_of_two"] = Field("ceiling", description="power_of_two: the released code")
    origin: int = Field(1, ge=1, description="1: the paper's i counts from 0; 2: from 1")
    cross_offset: bool = Field(False, description="cross-attention's layers count on from the encoder's last")


class GuidelineRanks(Strict):
    """Heads that share ranks of whole matrices, from the smallest to the largest, r_1 + (r_D - r_1) x^bend."""

    smallest: float = Field(16, gt=0, description="median ε-rank of a sample of inputs, 16 where it is not known")
    largest: float | None = Field(None, gt=0, description="null: half the width")
    bend: float = Field(0.5, gt=0)


class HeadRanks(Strict):
    """By layer, the rank of the attention heads that a model is pretrained with: one of flow, guideline, flat."""

    flow: FlowRanks | None = None
    guideline: GuidelineRanks | None = None
    flat: int | None = Field(None, ge=1, description="the control: the same for every layer")
    factors: Literal["head", "shared"] = Field(
        "head", description="head: narrower heads (eq. 20); shared: wide heads, a sketch that all of a layer share (19)"
    )

    @model_validator(mode="after")
    def _one_schedule(self) -> HeadRanks:
        if len(said := [name for name in ("flow", "guideline", "flat") if getattr(self, name) is not None]) != 1:
            raise ValueError(f"got {', '.join(said) or 'none'}, expected one of flow, guideline, flat")
        return self


LATER: dict[str, Any] = {  # fields that came after the first checkpoints were kept, and what they are where unused
    "snapshots": [],
    "heads": None,
    "embedding_from": None,
    "corpus": None,
    "precision": "float32",
}


class Recipe(Strict):
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
    mixture: dict[Literal["kernelsynth", "tsmixup", "bundled", "shards", "text", "images", "tables"], float]
    pool: int = Field(ge=1, description="KernelSynth series drawn; other modalities draw as they go")
    length: int = Field(1024, ge=64)
    seed: int = 0
    log_every: int = Field(50, ge=1)
    save_every: int = Field(500, ge=1, description="steps between the states that a killed run goes on from")
    snapshots: list[Annotated[int, Field(ge=0)]] = Field(
        [], description="steps after which the weights are kept beside the last ones; 0: the initial weights"
    )
    heads: HeadRanks | None = Field(None, description="ranks of attention heads by layer; null: whole heads")
    embedding_from: str | None = Field(
        None, description="a recipe whose trained embedding of ids is taken over (Fig. 7, reuse embedding); null: drawn"
    )
    corpus: str | None = Field(None, description="mixture {shards: 1}: a folder that `python -m stages corpus` made")
    precision: Literal["float32", "bfloat16"] = Field("float32", description="of matrix products; weights are float32")

    def spec(self) -> dict[str, Any]:
        """What a checkpoint's key is made of: the recipe without the keys that came later and are not used."""
        fields = self.model_dump()
        if self.heads:
            fields["heads"] = self.heads.model_dump(exclude_none=True)
        return {name: field for name, field in fields.items() if name not in LATER or field != LATER[name]}

    @model_validator(mode="after")
    def _adds_up(self) -> Recipe:
        if self.snapshots != sorted({step for step in self.snapshots if step <= self.steps}):
            raise ValueError(f"snapshots {self.snapshots} must be ascending steps up to {self.steps}")
        if not math.isclose(sum(self.mixture.values()), 1.0, abs_tol=1e-9):
            raise ValueError(f"mixture sums to {sum(self.mixture.values()):g}, expected 1")
        if len(self.mixture) > 1 and (apart := set(MODALITIES) & set(self.mixture)):
            raise ValueError(f"mixture {sorted(self.mixture)}: {sorted(apart)} cannot be mixed; train on one alone")
        if ("shards" in self.mixture) != (self.corpus is not None) or {"shards"} < set(self.mixture):
            raise ValueError(f"mixture {sorted(self.mixture)}, corpus {self.corpus!r}: shards alone, and with a corpus")
        if self.save_every % self.log_every:
            raise ValueError(f"save_every {self.save_every} must be a multiple of log_every {self.log_every}")
        return self


class Skill(Strict):
    """How the skill of pretrained checkpoints is measured: on unseen windows, against naive forecasts."""

    windows: int = Field(1000, ge=100, description="unseen windows, at least")
    context: int = Field(500, ge=16)
    samples: int = Field(20, ge=1)
    bootstrap: int = Field(2000, ge=100)


class Checkpoints(Strict):
    """Stage checkpoints: every model's weights, pretrained here where a recipe says so."""

    committed: str | None = Field("checkpoints", description="folder with checkpoints kept in git; null retrains")
    recipes: dict[str, Recipe] = {}
    skill: Skill = Skill()

    @model_validator(mode="after")
    def _embeddings_are_there(self) -> Checkpoints:
        for name, recipe in self.recipes.items():
            if (source := recipe.embedding_from) is None:
                continue
            mend = "expected a recipe of the same family that takes over none itself"
            if source not in self.recipes or source == name:
                raise ValueError(f"recipes.{name}.embedding_from: got {source!r}, {mend}")
            other = self.recipes[source]
            if other.family != recipe.family or other.embedding_from is not None:
                raise ValueError(f"recipes.{name}.embedding_from: {source!r} is of {other.family}; {mend}")
        return self


class FlowOfRanks(Strict):
    """Heads of first * (layer + origin - 1) ^ growth dimensions: tasks/compression/schedules.py."""

    first: float = Field(gt=0, description="dimensions, d_0 of the paper")
    growth: float = Field(ge=0, description="alpha of the paper; 0 is flat")
    rounding: Literal["ceiling", "power_of_two"] = "ceiling"
    origin: int = Field(2, ge=1, description="what is raised to the power in layer 1")
    cross_offset: bool = Field(False, description="cross-attention counts the encoder's layers before its own")


class Ranks(Strict):
    """How wide the heads of a compressed model are: one of these.

    Its number, which stands as `rank` in every row of the model, is the share, the budget, the flat rank, or the first
    dimension of a flow. A tolerance is no rank: there it is null, and `rank_ratio` of table compression tells models
    apart.
    """

    epsilon: float | None = Field(None, gt=0, lt=1, description="ranks that keep the relative error below it")
    budget: float | None = Field(None, gt=0, le=1, description="share of all attention parameters that is left")
    share: float | None = Field(None, gt=0, le=1, description="share of its width that every head keeps")
    flat: int | None = Field(None, ge=1, description="dimensions of every head")
    flow: FlowOfRanks | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Ranks:
        if len(given := self.model_dump(exclude_none=True)) != 1:
            raise ValueError(f"got {sorted(given) or 'none'}, expected one of {', '.join(type(self).model_fields)}")
        return self

    @property
    def number(self) -> float | None:
        """What stands as `rank` in the rows of a model."""
        first = self.flow.first if self.flow else None
        return next((float(one) for one in (self.share, self.budget, self.flat, first) if one is not None), None)


class Method(Strict):
    """How a model is compressed: tasks/compression/truncation.py."""

    method: Literal["svd", "aware-svd", "joint", "aware", "project"] = Field(
        description="svd: every matrix alone; joint: products of a head; aware: those on calibration data; aware-svd"
    )
    ranks: Ranks

    def plain(self) -> dict[str, Any]:
        """What the truncation takes, and a compressed model's key is made of."""
        return self.model_dump(exclude_none=True)


class Calibration(Strict):
    """What a data-aware method looks at: windows before the last fifth of seeded series, where no forecast lies."""

    datasets: list[str] = Field([], description="those of the model's modality are used, others left out")
    windows: int = Field(32, ge=1, description="of each data set")
    context: int = Field(500, ge=16)
    horizon: int = Field(64, ge=1)


class Fidelity(Strict):
    """How a compressed model is held against its base, on the last window of every series."""

    windows: int = Field(32, ge=1, description="of a data set, at most")
    top: int = Field(10, ge=1, description="next tokens whose overlap is taken")


class Compression(Strict):
    """Stage compression: the models that studies name as BASE@METHOD."""

    methods: dict[str, Method] = Field({}, description="what may stand behind the @")
    calibration: Calibration = Calibration()
    fidelity: Fidelity = Fidelity()


class Pretraining(Strict):
    """Stage pretraining: a search over rank schedules; a trial a schedule and seed, stopped where it falls behind."""

    recipe: str | None = Field(None, description="recipe that every trial changes the heads and seed of; null: none")
    first: list[Annotated[float, Field(gt=0)]] = Field([], description="of flow, a grid with growth")
    growth: list[Annotated[float, Field(ge=0)]] = Field([], description="of flow")
    rounding: Literal["ceiling", "power_of_two"] = Field("ceiling", description="of flow, as in a recipe's heads")
    origin: int = Field(1, ge=1, description="of flow")
    cross_offset: bool = Field(False, description="of flow")
    guideline: list[GuidelineRanks] = Field([], description="the guideline's schedules")
    flat: list[Annotated[int, Field(ge=1)]] = Field([], description="flat ranks, the control")
    factors: Literal["head", "shared"] = "head"
    seeds: list[int] = Field([0], min_length=1)
    grace: int = Field(500, ge=1, description="steps before a trial may be stopped; stops fall on saved steps")
    reduction: float = Field(3.0, gt=1, description="of the trials that come to grace x reduction^k, 1 / so many go on")


class Tokens(Strict):
    """Stage tokens: windows of every data set under every condition, tokenised."""

    rows: int = Field(2048, ge=1, description="rows that every layer of every stack shall have, at least")
    min_context: int = Field(16, ge=1, description="windows with fewer observed steps are not cut")


class Embeddings(Strict):
    """Stage embeddings: hidden states of every layer."""

    rows: int = Field(2048, ge=1, description="rows kept a stack, the same tokens for every layer (seeded sample)")
    batch: int | None = Field(None, ge=1, description="windows a forward pass; null: those that suit the device")
    store_dtype: Literal["float16", "float32"] = "float32"


class Geometry(Strict):
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


class Spectra(Strict):
    """Stage spectra: singular values, planes and angles of rank_structure.md."""

    plane_tokens: int = Field(400, ge=3, description="embedded tokens of a plane")
    angle_tokens: int = Field(64, ge=2, le=512, description="tokens of one window whose angles are taken")
    angle_rows: int = Field(192, ge=2, le=1024, description="rows of a projection whose angles are taken")
    gaussian: list[int] = Field([16, 768], description="dimensions of i.i.d. vectors that angles are held against")


class Lemma(Strict):
    """Instances that the isotropy paper's Lemma 1 is checked on; a dense Jacobian each."""

    tokens: list[Annotated[int, Field(ge=2, le=1024)]] = Field(
        [2, 8], min_length=1, description="sizes of instances; smaller where tokens x width is over 2048"
    )
    windows: int = Field(1, ge=0, description="instances a head, dump and size, each from its own window; 0: none")
    layers: Literal["all", "ends"] = Field("ends", description="all blocks, or the first and last of each stack")


class Heads(Strict):
    """Stage heads: alignment of attention heads, log-partition of a softmax head, Lemma 1."""

    rows: int = Field(512, ge=2, description="rows of a layer's input, of as few seeded windows as hold them")
    batch: int | None = Field(None, ge=1, description="windows a forward pass; null: as embeddings do")
    lemma: Lemma = Lemma()


class ByRank(Strict):
    """Appendix J.1, the error against the rank; published sizes by default. A score matrix is columns x columns."""

    width: int = Field(512, ge=4)
    columns: int = Field(4096, ge=4, description="vocabulary size, N >= width")
    points: int = Field(24, ge=3, description="ranks between 1 and width - 1")


class ByWidth(Strict):
    """Appendix J.1, the error against the width; the paper prints neither widths nor rank."""

    widths: list[int] = Field([64, 128, 256, 512], min_length=3)
    columns: int = Field(4096, ge=4)
    kept: int = Field(16, ge=1, description="rank kept, below the narrowest width")

    @model_validator(mode="after")
    def _fits(self) -> ByWidth:
        if not self.kept < min(self.widths) or max(self.widths) > self.columns:
            raise ValueError(f"kept {self.kept} must be below every width, and those at most columns {self.columns}")
        return self


class ByHeads(Strict):
    """An experiment whose heads divide its width."""

    width: int = Field(ge=4)
    heads: list[int] = Field(min_length=3, description="divisors of the width")

    @model_validator(mode="after")
    def _divides(self) -> ByHeads:
        if odd := [count for count in self.heads if count < 1 or self.width % count]:
            raise ValueError(f"heads {odd} do not divide the width {self.width}")
        return self


class Sketch(ByHeads):
    """Appendix J.2, sketches of so many rows a head; published sizes by default. The number of tokens cancels."""

    width: int = Field(2048, ge=8)
    kept: int = Field(4, ge=1)
    heads: list[int] = Field([1, 2, 4, 8, 16, 32, 64, 128], min_length=3)


class Flow(ByHeads):
    """Appendix J.3, ranks against heads; the paper prints no sizes."""

    width: int = Field(512, ge=4)
    columns: int = Field(1024, ge=4, description="tokens, at least the width")
    heads: list[int] = Field([1, 2, 4, 8, 16, 32, 64], min_length=3)


class Theory(Strict):
    """Stage theory: the rank paper's theorems at random instances, and its Appendix J."""

    seeds: int = Field(20, ge=2, description="of every experiment; a slope a seed")
    instances: int = Field(1000, ge=1, description="of every statement")
    batch: int = Field(500, ge=1, description="instances a job")
    rank: ByRank = ByRank()
    width: ByWidth = ByWidth()
    sketch: Sketch = Sketch()
    flow: Flow = Flow()


class Forecasts(Strict):
    """Stage forecasts: the last window of every series, scored."""

    levels: list[float] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    samples: int = Field(20, ge=1, description="sample paths of models that sample")
    batch: int = Field(64, ge=1, description="windows a call")
    keep_quantiles: bool = False
    min_context: int = Field(16, ge=1)
    baselines: list[Baseline] = Field([], description="local models, fitted series by series, of studies that ask")


class Statistics(Strict):
    """Stage statistics: intervals and tests of science.md section 10."""

    permutations: int = Field(9999, ge=999, description="random orders where there are more orders than these")
    bootstrap: int = Field(2000, ge=100, description="resamples of every interval")
    alpha: float = Field(0.05, gt=0, lt=0.5, description="level of critical sizes; intervals cover 1 - alpha")


class Report(Strict):
    """Stage report: what the page pictures."""

    study: str = Field(description="the study of the first words and the first section; the others follow")


class Resources(Strict):
    """Where and how wide things run; tracked by no stage, part of no key."""

    address: str | None = Field(None, description="of a running Ray, such as auto or ray://HOST:10001; null starts one")
    actors: int | None = Field(None, ge=1, description="null: as many as the cores or GPUs allow")
    cpus_per_actor: float = Field(1, gt=0)
    gpus_per_actor: float = Field(0, ge=0)
    max_attempts: int = Field(3, ge=1)
    job_timeout_s: float = Field(1800, gt=0)
    flush_s: float = Field(5, gt=0)
    max_failed_share: float = Field(0.01, ge=0, le=1, description="a stage with a larger share of failures exits 1")


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
