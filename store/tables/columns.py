"""Definitions of table and column, and the columns that several tables share."""

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
    """One column of a table.

    unit: "" if there is none. source: paper with section or equation, or section of docs/science.md; "" if
    the column needs none. null: whether values may be null. more_isotropic: for a measure of isotropy, which
    values mean more isotropic states; the view `isotropy` and `tsfmscope recommend` then offer it.
    """

    name: str
    type: pa.DataType
    meaning: str
    unit: str = ""
    source: str = ""
    null: bool = False
    more_isotropic: Literal["larger", "near_zero"] | None = None

    @property
    def comment(self) -> str:
        """Meaning, unit and source in one line.

        The catalogue's comments and `tsfmscope tables VIEW` show this text.
        """
        unit = f" [{self.unit}]" if self.unit else ""
        return f"{self.meaning}{unit}" + (f" ({self.source})" if self.source else "")


@dataclass(frozen=True)
class Table:
    """One table. row: what a row is.

    by_study: whether studies request its rows; the catalogue then adds the study as the first column.
    in_catalogue: whether it is in results.duckdb (bulk data is not). stage: name of the stage that writes it,
    if it differs from the table's name.
    """

    name: str
    row: str
    columns: tuple[Column, ...]
    by_study: bool = False
    in_catalogue: bool = True
    stage: str | None = None

    @property
    def keyed(self) -> bool:
        """Whether rows belong to jobs (column job_key)."""
        return any(column.name == "job_key" for column in self.columns)


KEY = Column("job_key", TEXT, "SHA-256 of task, version, spec and inputs of the job that made the row")
MODEL = Column("model", TEXT, "model, by its name in params")
DATASET = Column("dataset", TEXT, "data set, by its name in params")
CONDITION = Column("condition", TEXT, "condition (context length and noise), by its name in params")
SERIES = Column("series", TEXT, "series id, unique in its data set")
STACK = Column("stack", TEXT, "run of Transformer layers: encoder or decoder")
LAYER = Column("layer", I16, "0 is the output of the input embedding, l the output of block l", source="science.md 1")
NORMED = Column("normed", FLAG, "whether the stack's final norm was applied (the last layer only)")
DOMAIN = Column("domain", TEXT, "field that the series come from")
REASON = Column("reason", TEXT, "why a measure or score of the row is null", null=True)
SEED = Column("seed", I64, "seed that the numbers follow from")
STAGE = Column("stage", TEXT, "stage of the pipeline")
IDENTITY = (
    MODEL,
    Column("base_model", TEXT, "model that a compressed one was made from", null=True),
    Column("rank", F64, "rank ratio of a compressed model", null=True),
    DATASET,
    CONDITION,
    Column("context", I32, "steps of context asked for", "steps"),
    Column("noise", F64, "standard deviation of the noise added to the context", "s.d. of the series"),
)
