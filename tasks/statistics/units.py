"""Units of model, data set and condition as tables of numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float


class Unit(NamedTuple):
    """One (data set, model, condition); None where a number is missing."""

    dataset: str
    model: str
    condition: str
    isotropy: float | None
    log_nmse: float | None


@dataclass(frozen=True)
class Units:
    """Isotropy and log NMSE of every (data set, model, condition), NaN where one is missing; names sorted."""

    datasets: Sequence[str]
    models: Sequence[str]
    isotropy: Float[np.ndarray, "dataset model condition"]
    log_nmse: Float[np.ndarray, "dataset model condition"]

    @classmethod
    def of(cls, units: Iterable[Unit]) -> Units:
        """The tables that hold these units; a (data set, model, condition) without one is NaN."""
        names, (isotropy, log_nmse) = tabulate(list(units), 2)
        return cls(names[0], names[1], isotropy, log_nmse)


def tabulate(rows: Sequence[Sequence[Any]], numbers: int) -> tuple[list[list[str]], list[np.ndarray]]:
    """Rows (data set, model, condition, so many numbers) as the sorted names, and a table [dataset, model, condition]
    a number; NaN where there is no row, or None in it."""
    names = [sorted(set(some)) for some in zip(*(row[:3] for row in rows), strict=True)] or [[], [], []]
    places = [{name: n for n, name in enumerate(some)} for some in names]
    tables = [np.full([len(some) for some in names], np.nan) for _ in range(numbers)]
    for row in rows:
        at = tuple(place[name] for place, name in zip(places, row, strict=False))
        for table, value in zip(tables, row[3:], strict=True):
            table[at] = np.nan if value is None else value
    return names, tables
