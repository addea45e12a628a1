"""Methods of compression, and options: size, calibration windows, comparison with the base, and ranks of heads.

Loading params.yaml imports this module, so it imports no code of compression.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

from pydantic import Field, model_validator

from tsfmscope.defaults import CONTEXT, MAX_CONTEXT, MIN_CONTEXT
from tsfmscope.strict import Strict

MethodName = Literal[
    "svd", "joint", "activation-aware", "activation-aware-svd", "project", "activation-aware-2step",
    "activation-aware-refit", "whole-model",
]  # fmt: skip
# What calibrates: the user's series, synthetic series, or both.
CalibrateOn = Literal["both", "data", "synthetic"]
# Bits of every stored weight.
Bits = Literal[8, 32]
BITS: tuple[int, ...] = get_args(Bits)
# The method that compresses all weights.
WHOLE: MethodName = "whole-model"
# Defaults of `tsfmscope compress` and of `tsfmscope.compress`: method, share that is kept, windows per data set.
METHOD, SHARE, WINDOWS = WHOLE, 0.18, 32
# Rules for the size of a compressed model that every truncation takes.
RULES = ("epsilon", "budget", "share", "flat", "flow")


class CompressionMethod(NamedTuple):
    """Method of compression.

    rules: rules for the size that it takes; only narrower heads save seconds, for `time`.
    candidates: for a truncation, the function of `candidates` that yields the parts of an attention layer.
    driver: module of this folder that compresses a model.
    reads_data: whether it uses calibration windows.
    one_tolerance: whether a budget of a truncation is spent at one tolerance instead of the least error.
    """

    rules: tuple[str, ...]
    candidates: str | None = None
    driver: Literal["truncation", "two_step", "bits"] = "truncation"
    reads_data: bool = True
    one_tolerance: bool = False


# In the order that gives methods their colours in plots.
METHODS: dict[str, CompressionMethod] = {
    "svd": CompressionMethod(RULES, "single_matrices", reads_data=False, one_tolerance=True),
    "joint": CompressionMethod((*RULES, "time"), "head_products", reads_data=False),
    "activation-aware": CompressionMethod((*RULES, "time"), "head_products"),
    "activation-aware-svd": CompressionMethod(RULES, "single_matrices"),
    "project": CompressionMethod(RULES, "projected_matrices"),
    "activation-aware-2step": CompressionMethod(("budget",), driver="two_step"),
    "activation-aware-refit": CompressionMethod(("budget",), driver="two_step"),
    "whole-model": CompressionMethod(("bytes",), driver="bits"),
}


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

    @property
    def schedule(self) -> FlowRanks | GuidelineRanks | int:
        """The one schedule that is given."""
        schedule = self.flow or self.guideline or self.flat
        assert schedule is not None
        return schedule


class Ranks(Strict):
    """Rule for the size of a compressed model. Exactly one key is given.

    `bytes` is about the whole model; all other rules are about attention alone.

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

    @property
    def rule(self) -> tuple[str, Any]:
        """Name and value of the key that is given."""
        return next((name, value) for name, value in self if value is not None)


class Method(Strict):
    """Method of compressing a model.

    docs/compression.md describes the methods.
    """

    method: MethodName = Field(
        description="svd: every matrix alone; joint: products of a head; activation-aware-svd and activation-aware: "
        "the same two, weighed by calibration data; whole-model: all weights in few bits"
    )
    ranks: Ranks
    univariate: bool = Field(
        False, description="only single series are forecast: a budget leaves out attention scores between series"
    )

    bits: Bits = Field(
        32, description="bits of every stored weight, embeddings included; 8: one scale per row; bytes chooses its own"
    )
    heal: int = Field(0, ge=0, description="steps of training towards the outputs of the dense model, for example 300")

    @model_validator(mode="after")
    def _fits_its_ranks(self) -> Method:
        rule, _ = self.ranks.rule
        if rule not in (rules := METHODS[self.method].rules):
            others = [name for name, entry in METHODS.items() if rule in entry.rules]
            raise ValueError(
                f"ranks: got {rule}, expected {' or '.join(rules)} with method {self.method}; "
                f"methods that take {rule}: {', '.join(others)}"
            )
        if rule == "bytes" and self.bits != 32:
            raise ValueError(
                f"bits: got {self.bits} with a share of bytes, for which {WHOLE} chooses the bits of each matrix; "
                "leave bits out"
            )
        return self

    @property
    def reads_data(self) -> bool:
        """Whether the method uses calibration windows, as data, to time forecasts or to validate healing."""
        return METHODS[self.method].reads_data or self.ranks.time is not None or self.heal > 0


class CalibrationOptions(Strict):
    """Windows that an activation-aware method uses as calibration data.

    They are cut from a seeded sample of series, before the last fifth of each. The forecasts that are scored
    lie in that fifth.
    """

    datasets: tuple[str, ...] = Field(
        (), description="data sets of calibration windows; those of another modality than the model's are skipped"
    )
    windows: int = Field(32, ge=1, description="windows per data set")
    context: int = Field(CONTEXT, ge=MIN_CONTEXT, le=MAX_CONTEXT)
    horizon: int = Field(64, ge=1)


class Calibration(CalibrationOptions):
    """Options of `calibration_windows`.

    seed: seed of the sample of series. held_out: share at the end of every series without windows. synthetic: number
    of data sets of synthetic series, which follow the others.
    """

    seed: int
    held_out: float
    synthetic: int = 0


class FidelityOptions(Strict):
    """Comparison of a compressed model with its base, on the last window of every series."""

    windows: int = Field(32, ge=1, description="largest number of windows per data set")
    top: int = Field(10, ge=1, description="number of most probable next tokens whose overlap is measured")


def requested_size(ranks: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the columns `size_parameter` and `size_rule` of a rule; nulls for a model without one.

    ranks: one rule and its value, such as {"budget": 0.5}. The parameter of a flow is its first dimension.
    """
    if ranks is None:
        return {"size_parameter": None, "size_rule": None}
    ((rule, value),) = ranks.items()
    return {"size_parameter": float(value["first"] if rule == "flow" else value), "size_rule": rule}
