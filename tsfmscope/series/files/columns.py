"""Facts about a user's table that the user states: columns, format of the times, season."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Names = str | Sequence[str] | None


@dataclass(frozen=True)
class Columns:
    """Names of columns; None and () leave the choice to `tsfmscope.series.files.roles`.

    time: times; several columns, such as a date and a time of day, are joined. id: ids of series, for a table with one
    row per value; several columns are joined. value: values, one name or several. time_format: format of the times, as
    of `datetime.strptime`, or s, ms, us, ns for numbers since 1970. tz: time zone of the times, such as Europe/Berlin.
    season: of the series, in steps; None: that of their frequency.
    """

    time: Names = None
    id: Names = None
    value: Names = ()
    time_format: str | None = None
    tz: str | None = None
    season: int | None = None

    @property
    def times(self) -> list[str]:
        """Names of the columns of times."""
        return _list(self.time)

    @property
    def ids(self) -> list[str]:
        """Names of the columns of ids."""
        return _list(self.id)

    @property
    def values(self) -> list[str]:
        """Names of the columns of values."""
        return _list(self.value)


def _list(names: Names) -> list[str]:
    return [names] if isinstance(names, str) else list(names or ())


# Columns whose roles follow from their names and types.
UNNAMED = Columns()
