"""Job of the stage geometry: the measures of one layer's states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tsfmscope.tasks.geometry.measure import measure_states, subsample
from tsfmscope.tasks.job import IDENTITY, LAYER, Job, Result


def entry(job: Job, data: Mapping[str, Any], model: None) -> Result:
    """Return one row of the table `geometry`, measured on the states of one layer.

    job.spec: the columns of IDENTITY and LAYER, weights_dtype, `tokens` (maximum number of rows; more rows
    are sampled with the job's seed) and `measure`, the keyword arguments of `measure_states`. data: states
    [N, d], types [N] or None, n_series, states_dtype.
    """
    states, types = subsample(data["states"], data["types"], job.spec["tokens"], seed=job.seed)
    row = {name: job.spec[name] for name in (*IDENTITY, *LAYER, "weights_dtype")}
    row |= {"n_series": data["n_series"], "states_dtype": data["states_dtype"], "job_key": job.key}
    return Result([row | measure_states(states, types, **job.spec["measure"], seed=job.seed)])
