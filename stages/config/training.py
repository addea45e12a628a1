"""Blocks of params.yaml on pretraining: recipes, skill, and the search over rank schedules."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from stages.config.study import Baseline
from tsfmscope.compression.options import GuidelineRanks, Kinds
from tsfmscope.strict import Seed, Strict
from tsfmscope.training.options import Recipe, SkillOptions


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
