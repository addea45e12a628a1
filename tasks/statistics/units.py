"""Units of model, data set and condition as tables of numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

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
        listed = list(units)
        labels = zip(*((unit.dataset, unit.model, unit.condition) for unit in listed), strict=True)
        names = [sorted(set(some)) for some in labels] or [[], [], []]
        places = [{name: n for n, name in enumerate(some)} for some in names]
        isotropy, log_nmse = (np.full([len(some) for some in names], np.nan) for _ in range(2))
        for unit in listed:
            place = (places[0][unit.dataset], places[1][unit.model], places[2][unit.condition])
            isotropy[place] = np.nan if unit.isotropy is None else unit.isotropy
            log_nmse[place] = np.nan if unit.log_nmse is None else unit.log_nmse
        return cls(names[0], names[1], isotropy, log_nmse)
