"""Resources of actors by task."""

from __future__ import annotations

from pydantic import Field, field_validator

from tsfmscope.strict import Strict

# Name of each kind of job, in the order of the stages.
TASKS = (
    # Jobs of the stage checkpoints, and trials of the stage pretraining.
    "pretrain",
    "skill",
    "validation_loss",
    "dataset_skill",
    "baseline_skill",
    "tokenize",
    "compress",
    "fidelity",
    "embed",
    "measure",
    "align",
    "head_partition",
    "lemma1",
    "input_spectrum",
    "gaussian_angles",
    "weight_spectra",
    "constant_spectra",
    "token_plane",
    "token_angles",
    "row_angles",
    "evaluate",
    "validate",
    "baseline",
    "theory_bounds",
    "theory_points",
)


def whole_or_fraction(gpus: float | None) -> float | None:
    """Return the number of GPUs unchanged if Ray can allocate it.

    Raises ValueError for a number such as 1.5, because Ray either shares one GPU or allocates whole GPUs.
    """
    if gpus is not None and gpus > 1 and gpus != int(gpus):
        raise ValueError(f"got {gpus:g}, expected 0, a fraction below 1, or a whole number")
    return gpus


class TaskResources(Strict):
    """Resources of an actor for the jobs of one task; a missing key has the value of `resources`."""

    cpus: float | None = Field(None, gt=0, description="CPUs per actor, and threads of its libraries")
    gpus: float | None = Field(
        None, ge=0, description="GPUs per actor; 0: runs on CPUs; a fraction: several actors share one GPU"
    )
    memory_mb: int | None = Field(None, ge=1, description="host memory that Ray reserves for an actor")
    custom: dict[str, float] | None = Field(None, description="custom resources of Ray nodes, per actor")
    labels: dict[str, str] | None = Field(None, description="label selector of the nodes that may run the actors")
    actors: int | None = Field(None, ge=1, description="largest number of actors; null: as many as fit")
    processes: int | None = Field(
        None, ge=1, description="pretrain only: processes that share every batch; null: one per GPU, one without GPUs"
    )

    _gpus = field_validator("gpus")(whole_or_fraction)
