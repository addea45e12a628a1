"""Options of reading: of every function and command with data, and of a data set's block in params.yaml."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator

from tsfmscope.errors import ArgumentError, DataError
from tsfmscope.series.calendar import gluonts_seasonality, present_alias
from tsfmscope.strict import Strict

# One name of a column, or several.
Names = str | list[str] | None


class Reading(Strict):
    """How a table is read. None leaves the choice to the reader, which states it."""

    time: Names = Field(
        None,
        description="column of times, or several that are joined, such as a date and a time of day; default: the "
        "column named ds, timestamp or date, or of dates",
    )
    id: Names = Field(
        None,
        description="column of ids of series, or several that are joined; default: the column named unique_id, "
        "item_id or series",
    )
    value: Names = Field(
        None, description="columns of values; default: y or target next to ids, else all columns of numbers"
    )
    time_format: str | None = Field(
        None,
        description="format of the times, such as %d/%m/%Y, or s, ms, us, ns since 1970; default: ISO 8601, or what "
        "fits all rows",
    )
    tz: str | None = Field(None, description="time zone of the times, such as Europe/Berlin; default: their own")
    freq: str | None = Field(
        None,
        description="length of a step, a pandas alias such as h, D, W or MS; other times are moved to their step, as "
        "pandas' resample does; default: that of the times",
    )
    season: int | None = Field(
        None, ge=1, description="steps of a season; default: that of the frequency, such as 7 for days"
    )
    duplicates: Literal["error", "mean", "sum", "first", "last"] = Field(
        "error", description="value of a step that a series has in several rows; default: such rows are an error"
    )
    fill: Literal["nan", "0", "previous"] = Field(
        "nan",
        description="value of steps without one, after a series' first: nan (missing), 0, or the previous value",
    )
    decimal: Literal[".", ","] | None = Field(
        None, description="decimal sign of numbers in text, the other one separates thousands; default: what fits"
    )
    sheet: str | None = Field(None, description="sheet of an Excel file; default: its only one")
    one_table: bool | None = Field(
        None,
        description="whether the files of a folder are parts of one table; default: if they are named part-…, "
        "…-00000-of-00008 or lie in folders named key=value",
    )

    @field_validator("fill", mode="before")
    @classmethod
    def _fill_as_text(cls, value: Any) -> Any:
        return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else value

    @field_validator("freq")
    @classmethod
    def _is_known(cls, freq: str | None) -> str | None:
        """Refuse an unknown frequency, and write an old alias such as H in pandas' present form."""
        if freq is None:
            return None
        try:
            gluonts_seasonality(freq or "none")
        except DataError as error:
            raise ValueError("a pandas alias such as h, D, W, MS") from error
        return present_alias(freq)

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


# Everything is left to the reader.
AS_FOUND = Reading()


def reading_of(options: Mapping[str, Any], others: Collection[str] = ()) -> Reading:
    """Return the options of reading that a caller gave by name.

    others: further names that the caller might have meant. Raises ArgumentError for an unknown name or a wrong value.
    """
    known = [*others, *Reading.model_fields]
    if unknown := next((name for name in options if name not in Reading.model_fields), None):
        near = difflib.get_close_matches(unknown, known, 2)
        hint = f"did you mean {' or '.join(near)}?" if near else f"expected one of {', '.join(known)}"
        raise ArgumentError(f"{unknown}: no argument has this name; {hint}")
    try:
        return Reading(**{name: value for name, value in options.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        expected = re.sub(r"^(Input should be|Value error,) ", "", first["msg"])
        raise ArgumentError(f"{first['loc'][0]}: got {first['input']!r}, expected {expected}") from None
