"""Job entry points of the sweep that need no model: spectra of a layer's states, angles of Gaussian vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tasks.job import Job, Result
from tasks.parts import CellIdentity, Identity, LayerPlace
from tsfmscope.ranks.spectrum import input_row, line_angles

# Number of i.i.d. Gaussian vectors to compare with the models' (Yu et al. 2026, Fig. 3b).
VECTORS = 64


class InputSpec(CellIdentity, LayerPlace):
    """Spec of `input_spectrum`.

    weights_dtype: dtype in which the model's products were rounded at least once, where it is coarser than
    that of the activation file. rows: largest number of rows, sampled with the job's seed without
    replacement; None for all. tokens: kinds of tokens that the activation file keeps.
    """

    weights_dtype: str | None = None
    rows: int | None = None
    tokens: str = "valued"


class GaussianSpec(Identity):
    """Spec of `gaussian_angles`. dimension: of the vectors. seed: the pipeline's, on which they depend."""

    dimension: int
    seed: int


def input_spectrum(job: Job, data: Mapping[str, Any], model: object = None) -> Result:
    """Return the `spectra` row of one layer's states, with plain and centred singular values.

    data: states [N, d] and states_dtype, as returned by store.dumps.read_states.
    """
    spec, states = InputSpec.from_job(job), data["states"]
    if spec.rows is not None and len(states) > spec.rows:
        sampled = np.random.default_rng([job.seed, 5]).choice(len(states), spec.rows, replace=False)
        states = states[np.sort(sampled)]
    row = input_row(states, dtype=spec.weights_dtype or data["states_dtype"], tokens=spec.tokens)
    return Result([spec.part(CellIdentity) | spec.part(LayerPlace) | row], tokens=len(states))


def gaussian_angles(job: Job, data: object, model: object = None) -> Result:
    """Return the rows of `angles` for VECTORS i.i.d. standard Gaussian vectors."""
    spec = GaussianSpec.from_job(job)
    vectors = np.random.default_rng(job.seed).standard_normal((VECTORS, spec.dimension))
    location = {"what": "gaussian", "matrix": None, "stack": None, "layer": None}
    return Result([spec.part(Identity) | location | row for row in angle_rows(vectors)])


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
