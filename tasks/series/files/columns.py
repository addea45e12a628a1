"""Columns of a user's table that are named by the user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Columns:
    """Names of columns; None and () leave the choice to `tsfmscope.tasks.series.files.roles`.

    time: times. id: ids of series, for a table with one row per value. value: values, one name or several.
    time_format: format of the times, as of `datetime.strptime`.
    """

    time: str | None = None
    id: str | None = None
    value: str | Sequence[str] = ()
    time_format: str | None = None

    @property
    def values(self) -> list[str]:
        """Names of the columns of values."""
        return [self.value] if isinstance(self.value, str) else list(self.value)


# Columns whose roles follow from their names and types.
UNNAMED = Columns()
