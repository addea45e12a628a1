"""Block `compression` of params.yaml."""

from __future__ import annotations

import itertools

from pydantic import Field, model_validator

from tsfmscope.compression.options import (
    CALIBRATED,
    ONLY_RULES,
    CalibrationOptions,
    FidelityOptions,
    Method,
    Ranks,
)
from tsfmscope.defaults import MethodName
from tsfmscope.strict import Strict


class StudyMethod(Method):
    """Method of the models BASE@METHOD of a study."""

    calibration_seed: int | None = Field(
        None, ge=0, description="seed of the sample of calibration series; null: that of the profile"
    )


class Grid(Strict):
    """Methods at every size, and with every calibration seed if they read data.

    They are added to `methods` as METHOD-BUDGET, or METHOD-BUDGET-SEED if they read data.
    """

    methods: list[MethodName] = Field(min_length=1)
    budgets: list[float] = Field(min_length=1, description="shares of all attention parameters")
    seeds: list[int] = Field([0], min_length=1, description="seeds of the sample of calibration series")

    def members(self) -> dict[str, StudyMethod]:
        """Return the methods of the grid by name."""
        if refused := [name for name in self.methods if "budget" not in ONLY_RULES.get(name, ("budget",))]:
            raise ValueError(
                f"grid.methods: got {refused[0]}, expected a method that takes the rule budget; leave it out"
            )
        found = {}
        for name, budget in itertools.product(self.methods, self.budgets):
            for seed in self.seeds if name in CALIBRATED else [None]:
                suffix = "" if seed is None else f"-{seed}"
                method = StudyMethod(method=name, ranks=Ranks(budget=budget), calibration_seed=seed)
                found[f"{name}-{budget:g}{suffix}"] = method
        return found


class Compression(Strict):
    """Stage compression: the compressed models that studies name as BASE@METHOD."""

    methods: dict[str, StudyMethod] = Field({}, description="name after the @ -> method")
    grid: Grid | None = Field(None, description="methods times sizes times calibration seeds; added to `methods`")
    calibration: CalibrationOptions = CalibrationOptions()
    fidelity: FidelityOptions = FidelityOptions()

    @model_validator(mode="after")
    def _grid_adds_methods(self) -> Compression:
        added = self.grid.members() if self.grid else {}
        if clashes := sorted(set(self.methods) & set(added)):
            raise ValueError(f"methods.{clashes[0]}: also the name of a method of the grid; take another")
        self.methods.update(added)
        return self
