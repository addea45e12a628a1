"""Job of the stage geometry: the measures of one layer's states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasks.job import Job, Result
from tasks.parts import CellIdentity, LayerPlace
from tsfmscope.geometry.measures import measure_states, subsample
from tsfmscope.geometry.options import IsotropyOptions


class MeasureSpec(IsotropyOptions):
    """Options of `measure_states`. presets: measures of other papers."""

    presets: tuple[str, ...]


class GeometrySpec(CellIdentity, LayerPlace):
    """Spec of `entry`.

    weights_dtype: dtype in which the model multiplies. tokens: largest number of rows; more rows are sampled
    with the job's seed. seed: the pipeline's seed, on which the job's seed depends.
    """

    weights_dtype: str
    tokens: int
    seed: int
    measure: MeasureSpec


def entry(job: Job, data: Mapping[str, Any], model: None) -> Result:
    """Return one row of the table `geometry`, measured on the states of one layer.

    data: states [N, d], types [N] or None, n_series, states_dtype.
    """
    spec = GeometrySpec.from_job(job)
    states, types = subsample(data["states"], data["types"], spec.tokens, seed=job.seed)
    row = spec.part(CellIdentity) | spec.part(LayerPlace)
    row |= {
        "weights_dtype": spec.weights_dtype,
        "n_series": data["n_series"],
        "states_dtype": data["states_dtype"],
        "job_key": job.key,
    }
    return Result([row | measure_states(states, types, spec.measure, presets=spec.measure.presets, seed=job.seed)])
