"""Models whose weights a study measures, and the snapshots of their training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stages.config.params import Params
from tsfmscope.models import registry


def studies_by_model(params: Params, measure: str) -> dict[str, list[str]]:
    """Return model -> the studies that ask for this measure of its weights."""
    studies_by_name: dict[str, list[str]] = {}
    for study, study_params in params.studies.items():
        for model in params.expand(study, "models") if measure in study_params.measures else ():
            studies_by_name.setdefault(model, []).append(study)
    return studies_by_name


def snapshots(model: Mapping[str, Any]) -> Iterator[tuple[int | None, dict[str, str]]]:
    """Yield the step and the reference and fingerprint of a model's weights.

    The finished model comes first, with step None; then the snapshots of its training.
    """
    yield None, {"ref": model["ref"], "fingerprint": model["fingerprint"]}
    for step, path in registry.snapshots(Path(model["ref"])).items():
        fingerprint = registry.with_code(model["family"], registry.fingerprint(path))
        yield step, {"ref": path.as_posix(), "fingerprint": fingerprint}
