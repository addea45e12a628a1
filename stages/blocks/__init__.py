"""The blocks of params.yaml as typed objects: each key, what it means, and what it may be."""

from stages.blocks.compression import CALIBRATED, Compression
from stages.blocks.data import DATA_VARIABLE, PRECISION, Condition, DataSet, DataSets, KernelSynth, Model
from stages.blocks.measuring import (
    Embeddings,
    Forecasts,
    Geometry,
    Heads,
    Report,
    Resources,
    Spectra,
    Statistics,
    Theory,
    Tokens,
)
from stages.blocks.placing import TASKS, Packages
from stages.blocks.strict import Strict
from stages.blocks.study import WITHOUT_TOKENS, Baseline, Measure, Study
from stages.blocks.training import Checkpoints, FlowRanks, HeadRanks, Pretraining, Recipe

__all__ = [
    "CALIBRATED",
    "DATA_VARIABLE",
    "PRECISION",
    "TASKS",
    "WITHOUT_TOKENS",
    "Baseline",
    "Checkpoints",
    "Compression",
    "Condition",
    "DataSet",
    "DataSets",
    "Embeddings",
    "FlowRanks",
    "Forecasts",
    "Geometry",
    "HeadRanks",
    "Heads",
    "KernelSynth",
    "Measure",
    "Model",
    "Packages",
    "Pretraining",
    "Recipe",
    "Report",
    "Resources",
    "Spectra",
    "Statistics",
    "Strict",
    "Study",
    "Theory",
    "Tokens",
]
