"""Facts that several layers read: precisions, the share of held-out steps, and sizes of a sample."""

from __future__ import annotations

from typing import Literal, get_args

# Precision of products with a model's matrices; weights of other layers stay in float32.
Precision = Literal["float32", "bfloat16"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
# Name of the option of a model that holds its precision.
PRECISION = "precision"
# Share of every series, at its end, that no committed checkpoint is trained on and no compression is calibrated
# on. Forecasts of bundled series are scored there.
HELD_OUT = 0.2
# Steps of context, as in params/paper.yaml, and of horizon.
CONTEXT, HORIZON = 500, 24
# Sources of random series that a training draws anew in every step: `priors.draw.draw_priors` and `draw_periodic`.
RandomSource = Literal["priors", "periodic", "weekdays"]
RANDOM_SOURCES: tuple[RandomSource, ...] = get_args(RandomSource)
# Source of real series of a training: windows of the recipe's files.
REAL: Literal["real"] = "real"
# Tokens per layer.
ROWS = 2048
# Smallest number of observed steps in the context of a window.
MIN_CONTEXT = 16
# Largest number of steps of a context: twice what TimesFM 2.5 reads, the longest context of a released family.
MAX_CONTEXT = 32_768
# Pooling of the hidden states of a series' tokens into one vector.
Pool = Literal["mean", "last", "max"]
