"""Options of trainings and of the skill of what they make."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from tsfmscope.compression.options import HeadRanks
from tsfmscope.defaults import MAX_CONTEXT, MIN_CONTEXT, RANDOM_SOURCES, REAL, Precision, RandomSource
from tsfmscope.series.catalog import MODALITIES
from tsfmscope.strict import Seed, Strict


class Phase(Strict):
    """First part of a training with another mixture, and optionally other batches, than the rest."""

    until: int = Field(ge=1, description="last step of the phase")
    batch_steps: int | None = Field(None, ge=1, description="as in the recipe; null: that of the recipe")
    mixture: dict[RandomSource | Literal["real"], float] = Field(description="shares of the sources, which sum to 1")
    periods: list[Annotated[float, Field(ge=2)]] | None = Field(
        None, min_length=1, description="periods, in steps, of plain periodic series; null: any from 3 to 200"
    )
    contexts: list[int] | None = Field(None, min_length=1, description="as in the recipe; null: those of the recipe")

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        if not math.isclose(sum(self.mixture.values()), 1.0, abs_tol=1e-9):
            raise ValueError(f"mixture sums to {sum(self.mixture.values()):g}, expected 1")
        return self


class Continuation(Phase):
    """Second part of a training: it starts from the weights that the first would save, with a new optimizer."""

    learning_rate: float = Field(gt=0)


class RealSeries(Strict):
    """Real series of the source `real`: Parquet files, one row per series (item_id, start, freq, target)."""

    folder: str = Field(description="folder of the files")
    files: dict[str, str] = Field(min_length=1, description="name of each file without its suffix: its SHA-256")
    without: str | None = Field(None, description="regular expression; series whose item_id has a match are left out")


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
        Literal["kernelsynth", "tsmixup", "bundled"]
        | RandomSource
        | Literal["real", "shards", "text", "images", "tables"],
        float,
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
    real: RealSeries | None = Field(None, description="with source real: its files")
    then: Continuation | None = Field(None, description="second part of the training; null: none")
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

    @property
    def all_steps(self) -> int:
        """Number of steps of both parts of the training."""
        return self.then.until if self.then else self.steps

    @model_validator(mode="after")
    def _adds_up(self) -> Recipe:
        if self.snapshots != sorted({step for step in self.snapshots if step <= self.all_steps}):
            raise ValueError(f"snapshots {self.snapshots} must be ascending steps up to {self.all_steps}")
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
        others = sorted(set(self.mixture) - {*RANDOM_SOURCES, REAL})
        if others and len(others) < len(self.mixture):
            raise ValueError(
                f"mixture {sorted(self.mixture)}: priors, periodic, weekdays and real mix only with each other; "
                f"drop {others}"
            )
        mixtures = [
            self.mixture,
            *(phase.mixture for phase in self.phases),
            *([self.then.mixture] if self.then else ()),
        ]
        if any(REAL in mixture for mixture in mixtures) != (self.real is not None):
            raise ValueError("mixture with source real, and key real, which names its files: got one without the other")
        if (self.phases or self.then) and others:
            raise ValueError(
                f"phases, then: got mixture {others}, expected priors, periodic, weekdays or real; change it, or drop "
                "phases and then"
            )
        if self.then and self.then.until <= self.steps:
            raise ValueError(f"then: got until {self.then.until}, expected more than steps {self.steps}")
        untils = [phase.until for phase in self.phases]
        if untils != sorted(set(untils)) or any(until >= self.steps for until in untils):
            raise ValueError(f"phases: got until {untils}, expected ascending steps below steps {self.steps}")
        if ("shards" in self.mixture) != (self.corpus is not None) or {"shards"} < set(self.mixture):
            raise ValueError(f"mixture {sorted(self.mixture)}, corpus {self.corpus!r}: shards alone, and with a corpus")
        if self.save_every % self.log_every:
            raise ValueError(f"save_every {self.save_every} must be a multiple of log_every {self.log_every}")
        return self


class SkillOptions(Strict):
    """Options of the skill on unseen windows."""

    windows: int = Field(1000, ge=100, description="smallest number of unseen windows")
    # Three times the longest period of the clean sines, rounded up to a power of two.
    context: int = Field(512, ge=MIN_CONTEXT, le=MAX_CONTEXT, description="steps of context of all windows")
    samples: int = Field(20, ge=1, description="sample paths, for models that draw samples")
    bootstrap: int = Field(2000, ge=100, description="resamples per interval")
