"""Resources of actors by task, and environments with packages of their own."""

from __future__ import annotations

from urllib.parse import urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from pydantic import Field, field_validator, model_validator

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


# Options of uv that select the source and the versions of packages. Other options name files to
# write or programs to run, and are refused.
OPTIONS = (
    *("--index", "--default-index", "--index-url", "--extra-index-url", "--find-links", "--index-strategy"),
    *("--no-index", "--prerelease", "--resolution", "--exclude-newer", "--torch-backend", "--offline"),
)
# Options that matter only if uv may build packages.
BUILD_OPTIONS = ("--no-binary", "--config-setting", "--no-build-isolation")


class Packages(Strict):
    """Separate environment for models whose packages conflict with this project's (docs/environments.md)."""

    packages: list[str] = Field(
        min_length=1, description="requirements (PEP 508) of the packages that its families import"
    )
    options: list[str] = Field(
        [], description="options of `uv pip install` and `uv pip compile`: --name or --name=value"
    )
    allow_builds: bool = Field(
        False, description="allow packages without a wheel; their build runs their code during installation"
    )
    timeout_s: float = Field(1800, gt=0, description="time limit for resolving, downloading and installing together")

    @model_validator(mode="after")
    def _packages_are_requirements(self) -> Packages:
        """Raise ValueError for text that uv would read as an option, a path or a source to build."""
        for text in self.packages:
            try:
                url = Requirement(text).url
            except InvalidRequirement as error:
                reason = str(error).splitlines()[0]
                raise ValueError(
                    f"packages: got {text!r}, expected a requirement such as 'six==1.16.0' ({reason})"
                ) from None
            if "\n" in text or "\r" in text:
                raise ValueError(f"packages: got {text!r}, expected one line; write one requirement per item")
            if "$" in text:
                raise ValueError(f"packages: got {text!r}, expected no '$': uv puts environment variables in its place")
            if url is not None and not self.allow_builds and not _is_wheel(url):
                raise ValueError(
                    f"packages: got {text!r}, expected the address of a wheel (.whl); anything else is built, which "
                    "runs its code: name a wheel, or set allow_builds: true where you trust it"
                )
        return self

    @model_validator(mode="after")
    def _options_are_known(self) -> Packages:
        known = (*OPTIONS, *BUILD_OPTIONS) if self.allow_builds else OPTIONS
        for text in self.options:
            if text.partition("=")[0] not in known:
                raise ValueError(
                    f"options: got {text!r}, expected --name or --name=value, one of {', '.join(known)}; leave it out"
                )
        return self


def _is_wheel(url: str) -> bool:
    """Return True for the https or file address of a wheel; uv clones and builds an address of git."""
    parts = urlsplit(url)
    return parts.scheme in ("https", "file") and parts.path.endswith(".whl")


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
