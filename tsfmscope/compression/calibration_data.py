"""Calibration data of a compression: windows, tokens, and the statistics that methods read."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from tsfmscope.compression.calibration import gather
from tsfmscope.compression.calibration_windows import calibration_tokens, calibration_windows, equal_windows
from tsfmscope.compression.loss_statistics import gather_gradients
from tsfmscope.compression.methods.interface import Reads, Statistics
from tsfmscope.compression.options import Calibration

if TYPE_CHECKING:
    import pyarrow as pa

    from tsfmscope.models.base import Family
    from tsfmscope.models.types import Tokens
    from tsfmscope.series.types import Windows


class CalibrationData:
    """Data of one model, computed when a method first reads them, and then kept."""

    def __init__(self, model: Family, tables: Mapping[str, pa.Table], options: Calibration | None) -> None:
        """Compute nothing yet.

        model: the model before compression. tables: calibration series by data set. options: None for a method that
        reads no data.
        """
        self._model, self._tables, self._options = model, tables, options

    @property
    def _calibration(self) -> Calibration:
        assert self._options is not None, "a method that reads data has calibration windows"
        return self._options

    @cached_property
    def tokens(self) -> list[Tokens]:
        """Tokens of the calibration windows, one item per data set."""
        return calibration_tokens(self._model, self._tables, self._calibration)

    def timed_windows(self, count: int) -> Windows:
        """Return up to `count` windows of the first data set that has any, to time forecasts."""
        return calibration_windows(self._model, self._tables, self._calibration.model_copy(update={"windows": count}))[
            0
        ]

    @cached_property
    def windows(self) -> list[Windows]:
        """Calibration windows with their futures, as many for every data set."""
        return equal_windows(self._model, self._tables, self._calibration)

    @cached_property
    def _inputs(self) -> Statistics:
        return gather(self._model, *self.tokens)

    @cached_property
    def _gradients(self) -> Statistics:
        return gather_gradients(self._model, self.windows)

    def statistics(self, reads: Reads) -> Statistics | None:
        """Return the statistics of all layers that a method reads; None if it reads nothing."""
        if reads == "nothing":
            return None
        return self._inputs if reads == "inputs" else self._gradients
