"""Blocks of params.yaml on pretraining: recipes, their heads, and the search over rank schedules."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from stages.config.study import Baseline
from tsfmscope.defaults import MAX_CONTEXT, MIN_CONTEXT, RANDOM_SOURCES, Precision, RandomSource
from tsfmscope.series.catalog import MODALITIES
from tsfmscope.strict import Seed, Strict


class FlowRanks(Strict):
    """Rank schedule: heads of first (l - 1 + origin)^growth dimensions in layer l = 1, 2, ..., rounded."""

    first: float = Field(gt=0, description="rank d̃_0 of Yu et al. 2026")
    growth: float = Field(ge=0, description="exponent α of Yu et al. 2026; 0: the same rank in every layer")
    rounding: Literal["ceiling", "power_of_two"] = Field("ceiling", description="power_of_two: as in the released code")
    origin: int = Field(1, ge=1, description="1: the layer index i of the paper counts from 0; 2: from 1")
    cross_offset: bool = Field(False, description="cross-attention layers continue the count of the encoder")


class GuidelineRanks(Strict):
    """Rank schedule of whole matrices, whose rank the heads of a layer share.

    The rank is r_1 + (r_D - r_1) x^bend, from the smallest in the first layer to the largest in the last.
    """

    smallest: float = Field(16, gt=0, description="median numerical rank of a sample of inputs; 16 if it is not known")
    largest: float | None = Field(None, gt=0, description="rank of the last layer; null: half the width")
    bend: float = Field(0.5, gt=0, description="exponent of the layer's relative depth x")


# Kinds of attention layers.
Kinds = list[Literal["self", "cross", "group", "time"]]


class HeadRanks(Strict):
    """Rank, by layer, of a pretrained model's attention heads: one of flow, guideline, flat."""

    flow: FlowRanks | None = None
    guideline: GuidelineRanks | None = None
    flat: int | None = Field(None, ge=1, description="the same rank in every layer, as a control")
    factors: Literal["head", "shared"] = Field(
        "head", description="head: narrower heads (eq. 20); shared: wide heads with one sketch per layer (eq. 19)"
    )
    attention: Kinds | None = Field(
        None, min_length=1, description="kinds of attention that get the ranks; others keep full width; null: all kinds"
    )

    @model_validator(mode="after")
    def _one_schedule(self) -> HeadRanks:
        if len(schedules := [name for name in ("flow", "guideline", "flat") if getattr(self, name) is not None]) != 1:
            raise ValueError(f"got {', '.join(schedules) or 'none'}, expected one of flow, guideline, flat")
        return self


# Fields that were added after the first checkpoints were committed, with the value of a recipe that
# does not use them.
LATER: dict[str, Any] = {
    "snapshots": [],
    "heads": None,
    "embedding_from": None,
    "corpus": None,
    "precision": "float32",
    "phases": [],
    "schedule": "linear",
    "averaging": None,
    "relative_bias_std": None,
    "value_embedding_std": None,
}


class Phase(Strict):
    """First part of a training with another mixture, and optionally other batches, than the rest."""

    until: int = Field(ge=1, description="last step of the phase")
    batch_steps: int | None = Field(None, ge=1, description="as in the recipe; null: that of the recipe")
    mixture: dict[RandomSource, float] = Field(description="shares of the sources, which sum to 1")
    periods: list[Annotated[float, Field(ge=2)]] | None = Field(
        None, min_length=1, description="periods, in steps, of plain periodic series; null: any from 3 to 200"
    )
    contexts: list[int] | None = Field(None, min_length=1, description="as in the recipe; null: those of the recipe")

    @model_validator(mode="after")
    def _adds_up(self) -> Phase:
        if not math.isclose(sum(self.mixture.values()), 1.0, abs_tol=1e-9):
            raise ValueError(f"mixture sums to {sum(self.mixture.values()):g}, expected 1")
        return self


class Recipe(Strict):
    """Recipe by which a small checkpoint is pretrained; the key of a checkpoint is derived from it."""

    family: str
    config: dict[str, Any] = Field(description="arguments of the family's `new`")
    steps: int = Field(ge=1)
    batch_steps: int = Field(ge=1, description="a batch has batch_steps // (context + horizon) windows")
    learning_rate: float = Field(gt=0)
    weight_decay: float = Field(0.0, ge=0)
    warm_up: int = Field(0, ge=0, description="steps")
    contexts: list[int] = Field(min_length=1, description="context lengths; a batch has one of them")
    horizon: int = Field(ge=1)
    futures: list[int] = Field(
        [], description="numbers of future steps, of which each batch uses one; []: the whole horizon"
    )
    min_past: int = Field(ge=1, description="smallest number of observed steps in a training context")
    mixture: dict[
        Literal["kernelsynth", "tsmixup", "bundled", RandomSource, "shards", "text", "images", "tables"], float
    ]
    pool: int = Field(3000, ge=1, description="number of KernelSynth series; other sources are drawn during training")
    length: int = Field(1024, ge=64)
    seed: Seed = 0
    log_every: int = Field(50, ge=1)
    save_every: int = Field(500, ge=1, description="steps between the saved states from which a killed run continues")
    snapshots: list[Annotated[int, Field(ge=0)]] = Field(
        [], description="steps whose weights are saved as well as the last ones; 0: the initial weights"
    )
    heads: HeadRanks | None = Field(None, description="ranks of attention heads by layer; null: full width")
    embedding_from: str | None = Field(
        None, description="recipe whose trained token embedding is reused (Yu et al. 2026, Fig. 7); null: random"
    )
    corpus: str | None = Field(
        None, description="with mixture {shards: 1}: folder of a corpus, made by `tsfmscope corpus`"
    )
    precision: Precision = Field("float32", description="precision of matrix products; weights stay float32")
    phases: list[Phase] = Field(
        [], description="with mixtures of priors, periodic and weekdays: other mixtures at first"
    )
    schedule: Literal["linear", "cosine"] = Field("linear", description="decay of the learning rate to zero")
    averaging: float | None = Field(
        None, gt=0, lt=1, description="decay of the moving average of the weights that is saved; null: the last weights"
    )
    relative_bias_std: float | None = Field(
        None, gt=0, description="standard deviation of the initial position biases of T5 attention; null: T5's own"
    )
    value_embedding_std: float | None = Field(
        None,
        gt=0,
        description="standard deviation of the initial embedding of ids of values, where near values have near "
        "vectors; null: independent vectors, as the family draws them",
    )

    def spec(self) -> dict[str, Any]:
        """Return the recipe as it enters a checkpoint's key, without keys of LATER that are not used."""
        fields = self.model_dump()
        if self.heads:
            fields["heads"] = self.heads.model_dump(exclude_none=True)
        for phase in fields["phases"]:
            if phase["contexts"] is None:  # added later, as LATER
                del phase["contexts"]
        return {name: field for name, field in fields.items() if name not in LATER or field != LATER[name]}

    @model_validator(mode="after")
    def _adds_up(self) -> Recipe:
        if self.snapshots != sorted({step for step in self.snapshots if step <= self.steps}):
            raise ValueError(f"snapshots {self.snapshots} must be ascending steps up to {self.steps}")
        if beyond := [steps for steps in self.futures if not 1 <= steps <= self.horizon]:
            raise ValueError(
                f"futures {beyond}: expected steps from 1 to horizon {self.horizon}; shorten them, or raise it"
            )
        if isinstance(limit := self.config.get("prediction_length"), int) and self.horizon > limit:
            raise ValueError(
                f"horizon {self.horizon}: expected at most {limit}, config.prediction_length; make it as long"
            )
        if not math.isclose(sum(self.mixture.values()), 1.0, abs_tol=1e-9):
            raise ValueError(f"mixture sums to {sum(self.mixture.values()):g}, expected 1")
        if len(self.mixture) > 1 and (unmixable := set(MODALITIES) & set(self.mixture)):
            raise ValueError(f"mixture {sorted(self.mixture)}: {sorted(unmixable)} cannot be mixed; train on one alone")
        others = sorted(set(self.mixture) - set(RANDOM_SOURCES))
        if others and len(others) < len(self.mixture):
            raise ValueError(
                f"mixture {sorted(self.mixture)}: priors, periodic and weekdays mix only with each other; drop {others}"
            )
        if self.phases and others:
            raise ValueError(
                f"phases: got mixture {others}, expected priors, periodic or weekdays; change it, or drop phases"
            )
        untils = [phase.until for phase in self.phases]
        if untils != sorted(set(untils)) or any(until >= self.steps for until in untils):
            raise ValueError(f"phases: got until {untils}, expected ascending steps below steps {self.steps}")
        if ("shards" in self.mixture) != (self.corpus is not None) or {"shards"} < set(self.mixture):
            raise ValueError(f"mixture {sorted(self.mixture)}, corpus {self.corpus!r}: shards alone, and with a corpus")
        if self.save_every % self.log_every:
            raise ValueError(f"save_every {self.save_every} must be a multiple of log_every {self.log_every}")
        return self


class Skill(Strict):
    """Measurement of skill: checkpoints pretrained here on unseen windows, every forecaster on sines and data sets."""

    windows: int = Field(1000, ge=100, description="smallest number of unseen windows")
    # Three times the longest period of the clean sines, rounded up to a power of two
    context: int = Field(512, ge=MIN_CONTEXT, le=MAX_CONTEXT, description="steps of context of all windows")
    samples: int = Field(20, ge=1)
    bootstrap: int = Field(2000, ge=100, description="resamples per interval")
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
