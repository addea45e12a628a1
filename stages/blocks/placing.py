"""What actors take, by the task whose jobs they do."""

from __future__ import annotations

from pydantic import Field, field_validator

from stages.blocks.strict import Strict

TASKS = (  # of every stage, in the order of the stages; the name of each kind of job
    "pretrain",  # checkpoints, and the trials of pretraining
    "skill",
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
    """The same number. Raises ValueError for 1.5: Ray shares one GPU or hands out whole ones."""
    if gpus is not None and gpus > 1 and gpus != int(gpus):
        raise ValueError(f"got {gpus:g}, expected 0, a fraction below 1, or a whole number")
    return gpus


class Packages(Strict):
    """An environment of its own, for models whose packages cannot live beside ours; docs/environments.md."""

    packages: list[str] = Field(min_length=1, description="requirements, as pip takes them: what its families import")
    options: list[str] = Field([], description="of `uv pip install` and `uv pip compile`, such as --prerelease=allow")
    timeout_s: float = Field(1800, gt=0, description="for all of resolving, downloading and installing, once")


class Placing(Strict):
    """What an actor for the jobs of one task takes; what is left out is as for all others."""

    cpus: float | None = Field(None, gt=0, description="also the threads of its libraries")
    gpus: float | None = Field(None, ge=0, description="0: beside the GPUs; a fraction: so many share one")
    memory_mb: int | None = Field(None, ge=1, description="host memory that Ray reserves for it")
    custom: dict[str, float] | None = Field(None, description="custom resources, as nodes were started with")
    labels: dict[str, str] | None = Field(None, description="labels of the nodes that may take it")
    actors: int | None = Field(None, ge=1, description="at most so many; null: all that fit")
    processes: int | None = Field(
        None, ge=1, description="of pretrain: processes that share every batch; null: one a GPU, and one without"
    )

    _gpus = field_validator("gpus")(whole_or_fraction)
