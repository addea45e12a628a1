"""Units of model, data set and condition as numeric tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float


class Unit(NamedTuple):
    """One unit: data set, model and condition; a missing number is None."""

    dataset: str
    model: str
    condition: str
    isotropy: float | None
    log_nmse: float | None


@dataclass(frozen=True)
class Units:
    """Isotropy and log NMSE of every (data set, model, condition), NaN where missing; names are sorted."""

    datasets: Sequence[str]
    models: Sequence[str]
    isotropy: Float[np.ndarray, "dataset model condition"]
    log_nmse: Float[np.ndarray, "dataset model condition"]

    @classmethod
    def of(cls, units: Iterable[Unit]) -> Units:
        """Build the tables from units; a (data set, model, condition) without a unit is NaN."""
        names, (isotropy, log_nmse) = tabulate(list(units), 2)
        return cls(names[0], names[1], isotropy, log_nmse)


def tabulate(rows: Sequence[Sequence[Any]], numbers: int) -> tuple[list[list[str]], list[np.ndarray]]:
    """Return the sorted names, and one table [dataset, model, condition] for each number.

    rows: data set, model, condition, and `numbers` numbers. NaN where there is no row, or where it contains
    None.
    """
    columns = list(zip(*(row[:3] for row in rows), strict=True)) or [(), (), ()]
    names = [sorted(set(column)) for column in columns]
    positions = [{name: n for n, name in enumerate(labels)} for labels in names]
    shape = [len(labels) for labels in names]
    tables = [np.full(shape, np.nan) for _ in range(numbers)]
    for row in rows:
        at = tuple(position[name] for position, name in zip(positions, row, strict=False))
        for table, value in zip(tables, row[3:], strict=True):
            table[at] = np.nan if value is None else value
    return names, tables
