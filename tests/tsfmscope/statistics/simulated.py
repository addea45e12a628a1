"""Studies in which isotropy says nothing about the error, though data sets, models and conditions move both."""

from __future__ import annotations

import numpy as np

DATASETS, MODELS = 22, 5


def study(
    generator: np.random.Generator,
    *,
    shared: float = 0.0,
    difficulty: float = 2.0,
    quality: float = 1.0,
    condition: float = 0.0,
    conditions: int = 1,
    effect: float = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Isotropy and log NMSE, [data set, model, condition], noise of variance 1.

    difficulty, quality, condition: s.d. of the main effects of data sets, models and conditions, drawn for each side
    alone. shared: s.d. of a data set effect that both sides have. effect: s.d. of noise that both have; 0 is the null.
    """
    shape = (DATASETS, MODELS, conditions)

    def side() -> np.ndarray:
        effects = (
            difficulty * generator.normal(size=(DATASETS, 1, 1)),
            quality * generator.normal(size=(1, MODELS, 1)),
            condition * generator.normal(size=(1, 1, conditions)),
        )
        return np.asarray(sum(effects) + generator.normal(size=shape))

    common = shared * generator.normal(size=(DATASETS, 1, 1))
    noise = generator.normal(size=shape)
    x, y = side(), side()
    return x + common + effect * noise, y + common + effect * noise
