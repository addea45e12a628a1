"""Job of the stage geometry: the measures of one layer's states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tasks.job import Job, Result
from tasks.parts import CellIdentity, LayerPlace
from tasks.spec import FLAT, Spec
from tsfmscope.geometry.measure import measure_states, subsample


@dataclass(frozen=True, kw_only=True)
class MeasureOptions(Spec):
    """Options of `measure_states`, which describes them."""

    k_max: int
    restarts: int
    min_silhouette: float
    min_cluster: int
    silhouette_rows: int
    permutations: int
    repeats: int
    presets: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class GeometrySpec(Spec):
    """Spec of `entry`.

    weights_dtype: dtype in which the model multiplies. tokens: largest number of rows; more rows are sampled
    with the job's seed. seed: the pipeline's seed, on which the job's seed depends.
    """

    cell: CellIdentity = field(metadata=FLAT)
    place: LayerPlace = field(metadata=FLAT)
    weights_dtype: str
    tokens: int
    seed: int
    measure: MeasureOptions


def entry(job: Job, data: Mapping[str, Any], model: None) -> Result:
    """Return one row of the table `geometry`, measured on the states of one layer.

    data: states [N, d], types [N] or None, n_series, states_dtype.
    """
    spec = GeometrySpec.from_job(job)
    states, types = subsample(data["states"], data["types"], spec.tokens, seed=job.seed)
    row = spec.cell.to_dict() | spec.place.to_dict()
    row |= {
        "weights_dtype": spec.weights_dtype,
        "n_series": data["n_series"],
        "states_dtype": data["states_dtype"],
        "job_key": job.key,
    }
    return Result([row | measure_states(states, types, **spec.measure.to_dict(), seed=job.seed)])
