"""Stages of the pipeline, one module per DVC stage.

A stage reads params, hands out work and writes its declared outputs. It contains no science.
The list in stages.yaml is the pipeline; `python -m stages.planning.dvc_file` makes dvc.yaml from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tsfmscope.files import read_packaged

# Folder of DVC's outputs, relative to the repository's root.
DATA = "data"
# All parameters with their values, of which a stage depends on some.
PARAMS = f"{DATA}/params.json"


@dataclass(frozen=True)
class Stage:
    """DVC stage; its module and, if it has one, its block of params.yaml have the same name.

    reads, writes: paths under data/. folders: other folders that it reads. params: keys of params.yaml, or
    their defaults, that it depends on. metrics: the outputs that `dvc metrics` shows. sweeps: its outputs
    contain rows by job and persist between runs. always_runs: every `dvc repro` runs it.
    """

    name: str
    description: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    params: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    sweeps: bool = False
    always_runs: bool = False


def _read() -> Iterator[Stage]:
    """Yield the stages of stages.yaml, whose paths are under DATA; a stage that sweeps writes its timings too."""
    stages = read_packaged(Path(__file__).with_name("stages.yaml"))
    for name, facts in stages.items():
        if facts.get("sweeps"):
            facts["writes"].append(f"timings/{name}")
        paths = {key: [f"{DATA}/{path}" for path in facts.get(key, ())] for key in ("reads", "writes", "metrics")}
        lists = {key: tuple(value) for key, value in {**facts, **paths}.items() if isinstance(value, list)}
        yield Stage(name, **facts | lists)


STAGES = tuple(_read())
BY_NAME = {stage.name: stage for stage in STAGES}
