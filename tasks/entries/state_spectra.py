"""Job entry points of the sweep that need no model: spectra of a layer's states, angles of Gaussian vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tsfmscope.tasks.job import IDENTITY, LAYER, Job, Result
from tsfmscope.tasks.ranks.angles import line_angles
from tsfmscope.tasks.ranks.spectrum_columns import input_row

# Number of i.i.d. Gaussian vectors to compare with the models' (Yu et al. 2026, Fig. 3b).
VECTORS = 64


def input_spectrum(job: Job, data: Mapping[str, Any], model: object = None) -> Result:
    """Return the `spectra` row of one layer's states, with plain and centred singular values.

    job.spec: identity, place, and three optional keys. `rows`: maximum number of rows, sampled with the job's
    seed without replacement. `tokens`: kinds of tokens that the activation file keeps, "valued" by
    default. `weights_dtype`: dtype in which the model's products were rounded at least once, given where it
    is coarser than that of the activation file. data: states [N, d] and states_dtype, as returned by
    tsfmscope.store.dumps.read_states.
    """
    states, rows = data["states"], job.spec.get("rows")
    if rows is not None and len(states) > rows:
        states = states[np.sort(np.random.default_rng([job.seed, 5]).choice(len(states), rows, replace=False))]
    place = {name: job.spec[name] for name in LAYER}
    row = input_row(
        states, dtype=job.spec.get("weights_dtype", data["states_dtype"]), tokens=job.spec.get("tokens", "valued")
    )
    return Result([identity(job) | place | row], tokens=len(states))


def gaussian_angles(job: Job, data: object, model: object = None) -> Result:
    """Return the rows of `angles` for VECTORS i.i.d. standard Gaussian vectors.

    job.spec: identity and `dimension`.
    """
    vectors = np.random.default_rng(job.seed).standard_normal((VECTORS, job.spec["dimension"]))
    where = {"what": "gaussian", "matrix": None, "stack": None, "layer": None}
    return Result([identity(job) | where | row for row in angle_rows(vectors)])


def identity(job: Job) -> dict[str, Any]:
    """Return the identity columns; null where the spec leaves one out."""
    return {name: job.spec.get(name) for name in IDENTITY}


def angle_rows(vectors: np.ndarray, heads: np.ndarray | None = None) -> list[dict[str, Any]]:
    """Return the columns row, head, dimension and angles of `angles`, one row per vector.

    The angles of a zero vector are NaN.
    """
    return [
        {
            "row": number,
            "head": None if heads is None else int(heads[number]),
            "dimension": vectors.shape[1],
            "angles": angles.tolist(),
        }
        for number, angles in enumerate(line_angles(vectors))
    ]
