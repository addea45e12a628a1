"""Facts about a user's table that the user states: columns, format of the times, season."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Columns:
    """Names of columns; None and () leave the choice to `tsfmscope.tasks.series.files.roles`.

    time: times. id: ids of series, for a table with one row per value. value: values, one name or several.
    time_format: format of the times, as of `datetime.strptime`. season: of the series, in steps; None: that of their
    frequency.
    """

    time: str | None = None
    id: str | None = None
    value: str | Sequence[str] = ()
    time_format: str | None = None
    season: int | None = None

    @property
    def values(self) -> list[str]:
        """Names of the columns of values."""
        return [self.value] if isinstance(self.value, str) else list(self.value)


# Columns whose roles follow from their names and types.
UNNAMED = Columns()
