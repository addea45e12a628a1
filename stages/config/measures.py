"""Blocks of params.yaml on measures, their sizes, and the machines that they run on."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from stages.config.resources import TaskResources, whole_or_fraction
from stages.config.study import Baseline
from tsfmscope.defaults import MIN_CONTEXT, ROWS
from tsfmscope.strict import Strict


class Tokens(Strict):
    """Stage tokens: windows of every data set under every condition, tokenised."""

    rows: int = Field(ROWS, ge=1, description="smallest number of tokens in every layer of every stack")
    min_context: int = Field(MIN_CONTEXT, ge=1, description="smallest number of observed steps in a window's context")


class Embeddings(Strict):
    """Stage embeddings: hidden states of every layer."""

    rows: int = Field(
        ROWS, ge=1, description="largest number of tokens per stack, a seeded sample; the same tokens in every layer"
    )
    batch: int | None = Field(None, ge=1, description="windows per forward pass; null: chosen by the device")
    store_dtype: Literal["float16", "float32"] = "float32"


class Geometry(Strict):
    """Stage geometry: isotropy and effective dimension, as defined in docs/science.md."""

    rows: int = Field(ROWS, ge=3, description="largest number of tokens per layer; a seeded sample if there are more")
    k_max: int = Field(10, ge=2, le=50)
    restarts: int = Field(10, ge=1)
    min_silhouette: float = Field(0.1, ge=-1, le=1, description="smallest silhouette; below it K = 1 (Cai et al. 2021)")
    min_cluster: int = Field(
        30, ge=2, description="smallest number of tokens of a cluster that the adjusted cosine counts"
    )
    silhouette_rows: int = Field(20_000, ge=100)
    permutations: int = Field(
        39, ge=0, le=9999, description="permutations of the null that the adjusted cosine is compared with"
    )
    repeats: int = Field(
        5,
        ge=0,
        le=999,
        description="random halves of the tokens for standard deviations; below 2: no standard deviation",
    )
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


class Lemma(Strict):
    """Instances on which Lemma 1 of Shelim et al. 2025 is checked; each needs a dense Jacobian."""

    tokens: list[Annotated[int, Field(ge=2, le=1024)]] = Field(
        [2, 8], min_length=1, description="tokens per instance; reduced if tokens x width exceeds 2048"
    )
    windows: int = Field(1, ge=0, description="instances per head, activation file and size, each from its own window")
    layers: Literal["all", "ends"] = Field("ends", description="all blocks, or the first and last of each stack")


class Heads(Strict):
    """Stage heads: alignment of attention heads, log-partition of a softmax head, Lemma 1."""

    rows: int = Field(512, ge=2, description="tokens of a layer's input, from as few seeded windows as possible")
    batch: int | None = Field(None, ge=1, description="windows per forward pass; null: chosen by the device")
    lemma: Lemma = Lemma()


class ByRank(Strict):
    """Appendix J.1 of Yu et al. 2026: the error against the rank, by default at the published sizes.

    A score matrix is columns x columns.
    """

    width: int = Field(512, ge=4)
    columns: int = Field(4096, ge=4, description="vocabulary size, N >= width")
    points: int = Field(24, ge=3, description="ranks between 1 and width - 1")


class ByWidth(Strict):
    """Appendix J.1 of Yu et al. 2026: the error against the width; the paper prints no widths and no rank."""

    widths: list[int] = Field([64, 128, 256, 512], min_length=3)
    columns: int = Field(4096, ge=4)
    kept: int = Field(16, ge=1, description="rank that is kept, below the smallest width")

    @model_validator(mode="after")
    def _fits(self) -> ByWidth:
        if not self.kept < min(self.widths) or max(self.widths) > self.columns:
            raise ValueError(
                f"kept {self.kept} must be below every width, and every width at most columns {self.columns}"
            )
        return self


class ByHeads(Strict):
    """Experiment whose numbers of heads divide its width."""

    width: int = Field(ge=4)
    heads: list[int] = Field(min_length=3, description="divisors of the width")

    @model_validator(mode="after")
    def _divides(self) -> ByHeads:
        if odd := [count for count in self.heads if count < 1 or self.width % count]:
            raise ValueError(f"heads {odd} do not divide the width {self.width}")
        return self


class Sketch(ByHeads):
    """Appendix J.2 of Yu et al. 2026: sketches of `kept` rows per head, by default at the published sizes.

    The result does not depend on the number of tokens, which cancels.
    """

    width: int = Field(ROWS, ge=8)
    kept: int = Field(4, ge=1)
    heads: list[int] = Field([1, 2, 4, 8, 16, 32, 64, 128], min_length=3)


class Flow(ByHeads):
    """Appendix J.3 of Yu et al. 2026: ranks against the number of heads; the paper prints no sizes."""

    width: int = Field(512, ge=4)
    columns: int = Field(1024, ge=4, description="tokens, at least the width")
    heads: list[int] = Field([1, 2, 4, 8, 16, 32, 64], min_length=3)


class Theory(Strict):
    """Stage theory: the theorems of Yu et al. 2026 at random instances, and the paper's Appendix J."""

    seeds: int = Field(20, ge=2, description="seeds of every experiment; each gives one slope")
    instances: int = Field(1000, ge=1, description="random instances of every statement")
    batch: int = Field(500, ge=1, description="instances per job")
    rank: ByRank = ByRank()
    width: ByWidth = ByWidth()
    sketch: Sketch = Sketch()
    flow: Flow = Flow()


class Forecasts(Strict):
    """Stage forecasts: the last window of every series, scored."""

    levels: list[float] = Field([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])
    samples: int = Field(20, ge=1, description="sample paths, for models that draw samples")
    batch: int = Field(64, ge=1, description="windows per call of the model")
    keep_quantiles: bool = False
    min_context: int = Field(MIN_CONTEXT, ge=1)
    validation_series: int = Field(
        32, ge=1, description="series whose validation window is forecast: the first ones of a data set"
    )
    baselines: list[Baseline] = Field(
        [], description="probabilistic models of statsforecast for studies with measure baselines, fitted per series"
    )


class Statistics(Strict):
    """Stage statistics: intervals and tests, as defined in docs/science.md."""

    permutations: int = Field(9999, ge=999, description="largest number of orders; random orders if more exist")
    bootstrap: int = Field(2000, ge=100, description="resamples per interval")
    alpha: float = Field(0.05, gt=0, lt=0.5, description="significance level; intervals cover 1 - alpha")


class Report(Strict):
    """Stage report: order of the page."""

    study: str | None = Field(
        None, description="study of the summary and of the first section; the others follow; null: the first one"
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
    gpus_per_actor: float = Field(
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

    _gpus = field_validator("gpus_per_actor")(whole_or_fraction)
