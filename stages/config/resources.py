"""Block `resources` of params.yaml: machines, and the resources of actors by task."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

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


def _whole_or_fraction(gpus: float) -> float:
    """Return the number of GPUs unchanged if Ray can allocate it.

    Raises ValueError for a number such as 1.5, because Ray either shares one GPU or allocates whole GPUs.
    """
    if gpus > 1 and gpus != int(gpus):
        raise ValueError(f"got {gpus:g}, expected 0, a fraction below 1, or a whole number")
    return gpus


Gpus = Annotated[float, AfterValidator(_whole_or_fraction)]


class TaskResources(Strict):
    """Resources of an actor for the jobs of one task; a missing key has the value of `resources`."""

    cpus: float | None = Field(None, gt=0, description="CPUs per actor, and threads of its libraries")
    gpus: Gpus | None = Field(
        None, ge=0, description="GPUs per actor; 0: runs on CPUs; a fraction: several actors share one GPU"
    )
    memory_mb: int | None = Field(None, ge=1, description="host memory that Ray reserves for an actor")
    custom: dict[str, float] | None = Field(None, description="custom resources of Ray nodes, per actor")
    labels: dict[str, str] | None = Field(None, description="label selector of the nodes that may run the actors")
    actors: int | None = Field(None, ge=1, description="largest number of actors; null: as many as fit")
    processes: int | None = Field(
        None, ge=1, description="pretrain only: processes that share every batch; null: one per GPU, one without GPUs"
    )


class Resources(Strict):
    """Machines and resources of the jobs. No stage tracks them, and they are not part of any key."""

    address: str | None = Field(
        None, description="address of a running Ray cluster, such as auto or HOST:6379; null: start one"
    )
    actors: int | None = Field(
        None, ge=1, description="largest number of actors of all tasks; null: as many as the cores and GPUs allow"
    )
    cpus_per_actor: float = Field(1, gt=0, description="CPUs per actor, and threads of its libraries")
    gpus_per_actor: Gpus = Field(
        0, ge=0, description="GPUs per actor; 0.5: two actors share one GPU, whose memory must hold both models"
    )
    memory_mb: int | None = Field(None, ge=1, description="host memory that Ray reserves for an actor")
    labels: dict[str, str] = Field({}, description="Ray's label selector of the nodes that may run actors")
    tasks: dict[str, TaskResources] = Field({}, description="task -> resources of its actors; TASKS lists the names")
    max_attempts: int = Field(3, ge=1)
    job_timeout_s: float = Field(1800, gt=0)
    load_timeout_s: float = Field(3600, gt=0, description="time limit for loading a model, download included")
    flush_s: float = Field(5, gt=0)
    max_failed_share: float = Field(
        0.01, ge=0, le=1, description="largest share of failed jobs; a stage with more exits 1"
    )
