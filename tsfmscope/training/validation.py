"""Validation loss of a pretrained model: its own training loss on series that no training draws."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tsfmscope.training.corpora import recipe_corpus
from tsfmscope.training.options import Recipe

if TYPE_CHECKING:
    from tsfmscope.models.base import Family

# Added to the seed of the study, so that no series of a training with a small seed is drawn again.
SEED_OFFSET = 104_729


def validation_loss(family: Family, recipe: Recipe, *, batches: int, seed: int) -> tuple[float, int]:
    """Return the mean loss over batches of the recipe's mixture, and the number of their windows.

    The batches depend on seed and on the recipe's mixture, contexts, horizon and batch size, and not on the recipe's
    seed. So all trainings that differ in nothing else are compared on the same windows. Every context has the largest
    of the recipe's lengths.
    """
    import torch

    corpus = recipe_corpus(recipe.model_copy(update={"seed": seed + SEED_OFFSET, "phases": []}))
    context, horizon = max(recipe.contexts), recipe.horizon
    family.network.eval()
    losses, counts = [], []
    for number in range(batches):
        batch = corpus.batch(
            number,
            steps=recipe.batch_steps,
            contexts=[context],
            futures=[horizon],
            horizon=horizon,
            min_past=recipe.min_past,
        )
        dates = [batch.dates()] if family.dated else []
        torch.manual_seed(seed + number)
        parts = map(torch.from_numpy, (batch.context, batch.future, *dates))
        with torch.no_grad():
            losses.append(float(family.loss(*parts)))
        counts.append(len(batch.context))
    return float(np.average(losses, weights=counts)), sum(counts)
