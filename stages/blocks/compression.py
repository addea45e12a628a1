"""Blocks of params.yaml on compressed models."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from stages.blocks.strict import Strict
from stages.blocks.training import FlowRanks

CALIBRATED = {"aware", "aware-svd", "aware-both", "project"}  # methods of compression that look at data

NARROWING = ("joint", "aware")  # methods that make heads narrower, which a measured time needs


class Ranks(Strict):
    """How wide the heads of a compressed model are: one of these.

    Its number, which stands as `rank` in every row of the model, is the share, the budget, the time, the flat rank, or
    the first dimension of a flow. A tolerance is no rank: there it is null, and `rank_ratio` of table compression tells
    models apart.
    """

    epsilon: float | None = Field(None, gt=0, lt=1, description="ranks that keep the relative error below it")
    budget: float | None = Field(None, gt=0, le=1, description="share of all attention parameters that is left")
    time: float | None = Field(
        None, gt=0, le=1, description="share of a forecast's seconds, measured; ranks may differ from run to run"
    )
    share: float | None = Field(None, gt=0, le=1, description="share of its width that every head keeps")
    flat: int | None = Field(None, ge=1, description="dimensions of every head")
    flow: FlowRanks | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Ranks:
        if len(given := self.model_dump(exclude_none=True)) != 1:
            raise ValueError(f"got {sorted(given) or 'none'}, expected one of {', '.join(type(self).model_fields)}")
        return self

    @property
    def number(self) -> float | None:
        """What stands as `rank` in the rows of a model."""
        first = self.flow.first if self.flow else None
        numbers = (self.share, self.budget, self.time, self.flat, first)
        return next((float(one) for one in numbers if one is not None), None)


class Method(Strict):
    """How a model is compressed: tasks/compression/truncation.py."""

    method: Literal["svd", "aware-svd", "joint", "aware", "aware-both", "project"] = Field(
        description="svd: every matrix alone; joint: products of a head; aware, aware-svd: those on calibration data"
    )
    ranks: Ranks

    @model_validator(mode="after")
    def _fits_its_ranks(self) -> Method:
        if self.ranks.time is not None and self.method not in NARROWING:
            raise ValueError(f"ranks.time: got method {self.method}, expected one of {', '.join(NARROWING)}")
        if self.method == "aware-both" and self.ranks.budget is None:
            (given,) = self.ranks.model_dump(exclude_none=True)
            raise ValueError(f"ranks: got {given}, expected budget, which alone method aware-both can split")
        return self

    @property
    def reads_data(self) -> bool:
        """Whether it looks at calibration windows, or times forecasts of them."""
        return self.method in CALIBRATED or self.ranks.time is not None

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
