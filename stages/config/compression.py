"""Blocks of params.yaml on compressed models."""

from __future__ import annotations

from typing import Any, Literal, get_args

from pydantic import Field, model_validator

from stages.config.training import FlowRanks
from tsfmscope.compression.methods import METHODS, MethodName
from tsfmscope.defaults import CONTEXT, MAX_CONTEXT, MIN_CONTEXT
from tsfmscope.strict import Strict

# What calibrates: the user's series, synthetic series, or both.
CalibrateOn = Literal["both", "data", "synthetic"]
# Bits of every stored weight.
Bits = Literal[8, 32]
BITS: tuple[int, ...] = get_args(Bits)
# Defaults of `tsfmscope compress` and of `tsfmscope.compress`: method, share that is kept, windows per data set.
METHOD: MethodName = "activation-aware-refit"
SHARE, WINDOWS = 0.25, 32
# The method that compresses MLPs too, and needs weights of eight bits.
WHOLE: MethodName = "whole-model"


class Ranks(Strict):
    """Rule for the size of a compressed model. Exactly one key is given.

    With method whole-model, `bytes` and `time` are about the whole model; all else is about attention alone.

    Every result row of the model has the key in column `size_rule`. Column `size_parameter` has its number; for
    a flow, this is the first dimension.
    """

    epsilon: float | None = Field(
        None, gt=0, lt=1, description="largest relative error; the smallest ranks that stay below it"
    )
    budget: float | None = Field(None, gt=0, le=1, description="share of all attention parameters that remains")
    time: float | None = Field(
        None, gt=0, le=1, description="share of a forecast's measured time; ranks may differ from run to run"
    )
    share: float | None = Field(None, gt=0, le=1, description="share of the width that every head keeps")
    flat: int | None = Field(None, ge=1, description="number of dimensions that every head keeps")
    flow: FlowRanks | None = None
    bytes: float | None = Field(
        None, gt=0, le=1, description="share of the bytes of the original's weights in a file; method whole-model"
    )

    @model_validator(mode="after")
    def _is_one(self) -> Ranks:
        if len(keys := self.model_dump(exclude_none=True)) != 1:
            raise ValueError(f"got {sorted(keys) or 'none'}, expected one of {', '.join(type(self).model_fields)}")
        return self


class Method(Strict):
    """Method of compressing a model.

    docs/compression.md describes the methods.
    """

    method: MethodName = Field(
        description="svd: every matrix alone; joint: products of a head; activation-aware-svd and activation-aware: "
        "the same two, weighed by calibration data; whole-model: attention and MLPs"
    )
    ranks: Ranks
    univariate: bool = Field(
        False, description="only single series are forecast: a budget leaves out attention scores between series"
    )

    bits: Bits = Field(32, description="bits of every stored weight, embeddings included; 8: one scale per row")
    heal: int = Field(0, ge=0, description="steps of training towards the outputs of the dense model, for example 300")

    @model_validator(mode="after")
    def _fits_its_ranks(self) -> Method:
        (rule,) = self.ranks.model_dump(exclude_none=True)
        if rule not in (rules := METHODS[self.method].rules):
            others = [name for name, entry in METHODS.items() if rule in entry.rules]
            raise ValueError(
                f"ranks: got {rule}, expected {' or '.join(rules)} with method {self.method}; "
                f"methods that take {rule}: {', '.join(others)}"
            )
        if rule == "bytes" and self.bits != 8:
            raise ValueError(
                f"bits: got {self.bits}, expected 8, since {WHOLE} rounds all weights for a share of bytes"
            )
        return self

    @property
    def reads_data(self) -> bool:
        """Whether the method uses calibration windows, as data, to time forecasts or to validate healing."""
        return METHODS[self.method].reads_data or self.ranks.time is not None or self.heal > 0

    def plain(self) -> dict[str, Any]:
        """Return the keys that the truncation takes and that are part of a compressed model's key.

        `univariate`, `heal` and `bits` are left out if they have their defaults, so that keys of models without them
        stay the same.
        """
        fields = type(self).model_fields
        unset = {name for name in ("univariate", "heal", "bits") if getattr(self, name) == fields[name].default}
        return self.model_dump(exclude_none=True, exclude=unset)


class Calibration(Strict):
    """Windows that an activation-aware method uses as calibration data.

    They are cut from a seeded sample of series, before the last fifth of each. The forecasts that are scored
    lie in that fifth.
    """

    datasets: list[str] = Field(
        [], description="data sets of calibration windows; those of another modality than the model's are skipped"
    )
    windows: int = Field(32, ge=1, description="windows per data set")
    context: int = Field(CONTEXT, ge=MIN_CONTEXT, le=MAX_CONTEXT)
    horizon: int = Field(64, ge=1)


class Fidelity(Strict):
    """Comparison of a compressed model with its base, on the last window of every series."""

    windows: int = Field(32, ge=1, description="largest number of windows per data set")
    top: int = Field(10, ge=1, description="number of most probable next tokens whose overlap is measured")


class Compression(Strict):
    """Stage compression: the compressed models that studies name as BASE@METHOD."""

    methods: dict[str, Method] = Field({}, description="name after the @ -> method")
    calibration: Calibration = Calibration()
    fidelity: Fidelity = Fidelity()
