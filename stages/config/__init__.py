"""Blocks of params.yaml as typed objects, with the meaning and the valid values of each key."""

from stages.config.compression import Compression
from stages.config.data import Condition, DataSets, KernelSynth, Model
from stages.config.measures import (
    Forecasts,
    Geometry,
    Heads,
    Report,
    Resources,
    Spectra,
    Theory,
    Tokens,
)
from stages.config.resources import TASKS
from stages.config.study import WITHOUT_TOKENS, Baseline, Measure, Study
from stages.config.training import Checkpoints, Pretraining
from tsfmscope.series.data_sets import DATA_VARIABLE, DataSet
from tsfmscope.strict import LARGEST_SEED, Seed, Strict

__all__ = [
    "DATA_VARIABLE",
    "LARGEST_SEED",
    "TASKS",
    "WITHOUT_TOKENS",
    "Baseline",
    "Checkpoints",
    "Compression",
    "Condition",
    "DataSet",
    "DataSets",
    "Forecasts",
    "Geometry",
    "Heads",
    "KernelSynth",
    "Measure",
    "Model",
    "Pretraining",
    "Report",
    "Resources",
    "Seed",
    "Spectra",
    "Strict",
    "Study",
    "Theory",
    "Tokens",
]
