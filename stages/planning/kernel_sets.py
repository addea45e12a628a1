"""Synthetic data sets, each sampled from one kernel that params.yaml names."""

from __future__ import annotations

from stages.config import DataSet
from stages.config.params import Params
from tsfmscope.series.synthetic.kernels import parse_kernel
from tsfmscope.series.synthetic.kernelsynth import synthetic_set
from tsfmscope.series.types import Series


def draw_kernel_set(name: str, dataset: DataSet, params: Params, seed: int) -> list[Series]:
    """Return the series of one data set whose source is kernelsynth."""
    return synthetic_set(
        name,
        parse_kernel(str(dataset.kernel)),
        count=params.kernelsynth.series,
        seed=seed,
        length=params.kernelsynth.length,
        domain=dataset.domain,
    )
