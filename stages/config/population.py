"""Block `population` of params.yaml: many short trainings of several families, sizes and seeds, with snapshots."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator

from stages.config.blocks import Model
from tsfmscope.defaults import RANDOM_SOURCES
from tsfmscope.models.references import CHECKPOINT
from tsfmscope.strict import Seed, Strict
from tsfmscope.training.options import Recipe

# Keys of a recipe whose values follow from the family, its size and the seed.
DERIVED = ("family", "config", "seed", "snapshots")


@dataclass(frozen=True)
class PopulationMember:
    """Weights after step `step` of the training `run`, which has the name of its recipe."""

    model: str
    run: str
    family: str
    size: str
    seed: int
    step: int
    is_final: bool

    @property
    def ref(self) -> str:
        """Reference of the weights."""
        return f"{CHECKPOINT}{self.run}" + ("" if self.is_final else f"/step-{self.step}")


class PopulationFamily(Strict):
    """One family of the population: the shapes of its models, and what its recipe does otherwise."""

    sizes: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")], dict[str, Any]] = Field(
        min_length=1, description="size -> arguments of the family's `new`, such as small: {d_model: 32, ...}"
    )
    recipe: dict[str, Any] = Field({}, description="keys of the recipe that replace those of population.recipe")


class Population(Strict):
    """Trainings of every family in every size with every seed, and snapshots of each.

    The training FAMILY-SIZE-SEED is a recipe of that name, and a model of that name with the last weights. Its
    snapshots are models FAMILY-SIZE-SEED-step-N. In studies, FAMILY-SIZE stands for the models with all seeds.
    """

    families: dict[str, PopulationFamily] = Field(min_length=1, description="family -> its sizes")
    seeds: list[Seed] = Field([0, 1], min_length=1, description="seeds of initial weights and training series")
    snapshots: int = Field(
        8,
        ge=4,
        le=64,
        description="measured steps of a training, log-spaced and rounded, equal ones once; the last is its end",
    )
    first_snapshot: int = Field(30, ge=1, description="step of the first snapshot")
    recipe: dict[str, Any] = Field(description="keys of the recipes of all trainings, as in checkpoints.recipes")
    hypotheses: str | None = Field(
        None,
        description="YAML file, committed to git, of the tests on the confirming half of the data sets; null: none",
    )
    validation_batches: int = Field(
        16, ge=1, description="batches of unseen series, the same for all, that give a snapshot's validation loss"
    )

    @model_validator(mode="after")
    def _recipes_are_valid(self) -> Population:
        blocks = {"recipe": self.recipe} | {f"families.{name}.recipe": f.recipe for name, f in self.families.items()}
        for block, recipe in blocks.items():
            if derived := sorted(set(recipe) & set(DERIVED)):
                raise ValueError(
                    f"{block}: got {', '.join(derived)}, which follow from family, size and seed; leave them out"
                )
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds: got {self.seeds}, expected different seeds")
        models = [member.model for member in self.members()]
        if twice := next((model for model in models if models.count(model) > 1), None):
            raise ValueError(f"families: two trainings have the model {twice}; rename a size")
        return self

    def recipes(self) -> dict[str, Recipe]:
        """Return the recipe of every training, by name. ValueError for a recipe that is not valid."""
        return {run: self._recipe(family, size, seed) for run, family, size, seed in self._runs()}

    def members(self) -> Iterator[PopulationMember]:
        """Yield all weights of the population: of each training first its snapshots, then its last weights."""
        for run, family, size, seed in self._runs():
            recipe = self._recipe(family, size, seed)
            for step in recipe.snapshots:
                yield PopulationMember(f"{run}-step-{step}", run, family, size, seed, step, False)
            yield PopulationMember(run, run, family, size, seed, recipe.steps, True)

    def models(self) -> dict[str, Model]:
        """Return the models of the population, by name."""
        return {member.model: Model(family=member.family, ref=member.ref) for member in self.members()}

    def runs_by_size(self) -> dict[str, list[str]]:
        """Return the trainings with all seeds, by FAMILY-SIZE."""
        runs: dict[str, list[str]] = {}
        for run, family, size, _ in self._runs():
            runs.setdefault(f"{family}-{size}", []).append(run)
        return runs

    def _runs(self) -> Iterator[tuple[str, str, str, int]]:
        """Yield the name, family, size and seed of every training."""
        for family, block in self.families.items():
            for size, seed in itertools.product(block.sizes, self.seeds):
                yield f"{family}-{size}-{seed}", family, size, seed

    def _recipe(self, family: str, size: str, seed: int) -> Recipe:
        block = self.families[family]
        try:
            recipe = Recipe(family=family, config=block.sizes[size], seed=seed, **self.recipe | block.recipe)
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(str(part) for part in first["loc"])
            message = first["msg"].removeprefix("Value error, ")
            raise ValueError(f"families.{family}.{size}: recipe{key and '.'}{key}: {message}") from None
        if others := sorted(set(recipe.mixture) - set(RANDOM_SOURCES)):
            raise ValueError(
                f"families.{family}.{size}: recipe.mixture: got {', '.join(others)}, expected "
                f"{', '.join(RANDOM_SOURCES)}, which give new series for the validation loss"
            )
        return recipe.model_copy(update={"snapshots": self._snapshot_steps(recipe.steps)})

    def _snapshot_steps(self, steps: int) -> list[int]:
        """Return the log-spaced steps of the snapshots, without the last step, whose weights are the run's own."""
        if steps < self.first_snapshot * 2:
            raise ValueError(f"first_snapshot: got {self.first_snapshot}, expected at most half of the {steps} steps")
        ratio = (steps / self.first_snapshot) ** (1 / (self.snapshots - 1))
        return sorted({round(self.first_snapshot * ratio**number) for number in range(self.snapshots - 1)} - {steps})
