"""Options of `tsfmscope compress` and `tsfmscope.compress`, and their checks."""

from __future__ import annotations

from dataclasses import dataclass

from stages.config.params import ParamsError
from tsfmscope.compression.options import BITS, METHOD, SHARE, WHOLE, WINDOWS, CalibrateOn, Method

# Excess over a budget in seconds that is not reported: measurements vary by that much.
TOLERANCE = 0.05


@dataclass(frozen=True)
class CompressOptions:
    """Options of the compression.

    to: share that is kept, of the attention parameters, or of the bytes of the file with `whole-model`; None without
    `budget_seconds`: SHARE. method: a method of docs/compression.md. windows: number of calibration windows per data
    set. precision: precision in which the compressed model runs; None: as the model itself. calibrate_on: series that
    calibrate. heal: number of steps of healing. bits: of every stored weight, 8 or 32; 8 with `to` and `whole-model`.
    budget_seconds: instead of `to`, share of the seconds of a forecast that is kept; needs `whole-model`.
    """

    to: float | None = None
    method: str = METHOD
    windows: int = WINDOWS
    precision: str | None = None
    calibrate_on: CalibrateOn = "both"
    heal: int = 0
    bits: int = 32
    budget_seconds: float | None = None

    def __post_init__(self) -> None:
        """Raise ParamsError for a wrong number of bits, two budgets, or a wrong budget."""
        if self.bits not in BITS:
            raise ParamsError(f"--bits: got {self.bits}, expected one of {', '.join(map(str, BITS))}")
        seconds = self.budget_seconds
        if seconds is None:
            return
        if self.to is not None:
            raise ParamsError(
                f"--budget-seconds {seconds:g}: got --to {self.to:g} too, expected one budget; leave one out"
            )
        if not 0 < seconds <= 1:
            raise ParamsError(
                f"--budget-seconds: got {seconds:g}, expected a share of the original's seconds, above 0 and at most 1"
            )
        if self.method != WHOLE:
            raise ParamsError(f"--budget-seconds: got --method {self.method}, expected --method {WHOLE}")

    @property
    def share(self) -> float:
        """Share that is kept, of the seconds or of the size."""
        if self.budget_seconds is not None:
            return self.budget_seconds
        return SHARE if self.to is None else self.to

    @property
    def label(self) -> str:
        """End of the name of a compressed model: method and share."""
        return f"{self.method}-{'' if self.budget_seconds is None else 'seconds-'}{self.share:g}"

    def method_block(self) -> Method:
        """Return the method as `compress_model` takes it."""
        rule = "time" if self.budget_seconds is not None else "bytes" if self.method == WHOLE else "budget"
        ranks, bits = {rule: self.share}, 8 if rule == "bytes" else self.bits
        block = {"method": self.method, "ranks": ranks, "heal": self.heal, "bits": bits}
        return Method.model_validate(block)

    def describe_excess(self, ratio: float) -> str | None:
        """Return a note if a measured ratio of seconds exceeds the budget by more than TOLERANCE."""
        budget = self.budget_seconds
        if budget is None or ratio <= budget * (1 + TOLERANCE):
            return None
        return (
            f"note: the saved model takes {ratio:.3f} of the seconds in the final measurement, more than the "
            f"{budget:g} of --budget-seconds; repeat on a machine with less other work, or ask for less"
        )
