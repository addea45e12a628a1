"""Definitions of table and column, and the types of columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

TEXT, FLAG = pa.string(), pa.bool_()
I8, I16, I32, I64 = pa.int8(), pa.int16(), pa.int32(), pa.int64()
F32, F64 = pa.float32(), pa.float64()
MOMENT = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True)
class Column:
    """One column of a table, and the rules for its values, from which checks and documentation are generated.

    unit: "" if there is none. source: paper with section or equation, or section of docs/science.md; "" if
    the column needs none. null: whether values may be null. more_isotropic: for a measure of isotropy, which
    values mean more isotropic states; the view `isotropy` then offers it. needs_reason:
    whether a row in which the value is null must have a text in column `reason`. range: least and largest value,
    or item of a list; None is no limit. slack: amount by which rounding may exceed the range. references: columns
    as TABLE.COLUMN, of tables or views; each value must occur in at least one of them. if_null: column whose value
    is looked up instead where this one is null.
    """

    name: str
    type: pa.DataType
    meaning: str
    unit: str = ""
    source: str = ""
    null: bool = False
    more_isotropic: Literal["larger", "near_zero"] | None = None
    needs_reason: bool = False
    range: tuple[float | None, float | None] = (None, None)
    slack: float = 0.0
    references: tuple[str, ...] = ()
    if_null: str = ""

    @property
    def limits(self) -> str:
        """Range in words, such as "-1 to 1"; empty if there is none."""
        low, high = self.range
        if low is None or high is None:
            return f"at least {low:g}" if low is not None else f"at most {high:g}" if high is not None else ""
        return f"{low:g} to {high:g}"

    @property
    def comment(self) -> str:
        """Meaning, unit, range and source in one line.

        The catalogue's comments and `tsfmscope tables VIEW` show this text.
        """
        brackets = ", ".join(filter(None, (self.unit, self.limits)))
        return self.meaning + (f" [{brackets}]" if brackets else "") + (f" ({self.source})" if self.source else "")


@dataclass(frozen=True)
class Table:
    """One table: what a row is, its columns, which stages write it and what identifies a row.

    stages: stages that write it, in any order; () if no stage does. key: columns that no two rows have in
    common. by_study: whether studies request its rows; the catalogue then adds the study as the first column,
    which belongs to the key. in_catalogue: whether it is in results.duckdb (bulk data is not). is_printed:
    whether its rows are the file store/published/NAME.csv.
    """

    name: str
    row: str
    columns: tuple[Column, ...]
    stages: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    by_study: bool = False
    in_catalogue: bool = True
    is_printed: bool = False

    @property
    def keyed(self) -> bool:
        """Whether rows belong to jobs (column job_key)."""
        return any(column.name == "job_key" for column in self.columns)

    @property
    def full_key(self) -> tuple[str, ...]:
        """Key in the catalogue, with the study if the table has one; () if rows have no key."""
        return ("study", *self.key) if self.by_study and self.key else self.key
