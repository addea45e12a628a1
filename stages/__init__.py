"""Stages of the pipeline, one module per DVC stage.

A stage reads params, hands out work and writes its declared outputs. It contains no science.
The list below is the pipeline; `python -m stages.planning.dvc_file` makes dvc.yaml from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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


def _stage(
    name: str,
    description: str,
    reads: str = "",
    params: str = "",
    *,
    writes: str = "",
    sweeps: bool = False,
    **rest: Any,
) -> Stage:
    """Return a stage from names with spaces between them; reads, writes: without data/.

    By default a stage writes the folder of its name and, if it sweeps, that of its timings.
    """
    outs = writes.split() or [name, *([f"timings/{name}"] if sweeps else [])]
    inputs, outputs = (tuple(f"{DATA}/{path}" for path in paths) for paths in (reads.split(), outs))
    return Stage(name, description, inputs, outputs, tuple(params.split()), sweeps=sweeps, **rest)


_SERIES = "kernelsynth datasets"
_SWEPT = "checkpoints compression pretraining tokens embeddings geometry heads spectra forecasts theory"

STAGES: tuple[Stage, ...] = (
    _stage(
        "external_inputs",
        "all parameters; names and checksums of the external data files, and of families that installed packages add",
        writes="params.json external_inputs.json plugins.json",
        always_runs=True,
    ),
    _stage("kernelsynth", "the named synthetic data sets", params="seed datasets.sets kernelsynth"),
    _stage(
        "datasets",
        "real series: bundled, from the data root, from the hub",
        "external_inputs.json",
        "seed datasets.sets datasets.max_series datasets.min_length",
    ),
    _stage(
        "checkpoints",
        "every model's weights: committed, pretrained, from a folder or the hub; skill of forecasters",
        f"plugins.json {_SERIES}",
        "seed models datasets.sets studies checkpoints population",
        folders=("tsfmscope/checkpoints",),
        sweeps=True,
    ),
    _stage(
        "compression",
        "compressed models that studies name as BASE@METHOD, and how far they are from their base",
        f"{_SERIES} checkpoints",
        "seed models datasets.sets conditions studies compression",
        sweeps=True,
    ),
    _stage(
        "pretraining",
        "a search over rank schedules: one recipe, pretrained with each",
        "plugins.json",
        "seed checkpoints.recipes pretraining",
        sweeps=True,
    ),
    _stage(
        "tokens",
        "windows of every data set under every condition, tokenised",
        f"{_SERIES} checkpoints compression",
        "seed models datasets.sets conditions studies tokens",
        sweeps=True,
    ),
    _stage(
        "embeddings",
        "hidden states of every layer of every stack",
        "checkpoints compression tokens",
        "seed models conditions embeddings",
        sweeps=True,
    ),
    _stage(
        "geometry",
        "isotropy and effective dimension of every layer",
        "embeddings",
        "seed models conditions studies geometry",
        sweeps=True,
    ),
    _stage(
        "heads",
        "spectral alignment of attention heads, log-partition of softmax heads, Lemma 1's bounds",
        "checkpoints compression tokens",
        "seed models conditions heads",
        sweeps=True,
    ),
    _stage(
        "spectra",
        "singular values of every layer's input and weights, planes and angles of embedded tokens",
        "checkpoints compression tokens embeddings",
        "seed models conditions studies spectra",
        sweeps=True,
    ),
    _stage(
        "forecasts",
        "forecasts of the last window of every series, scored",
        f"{_SERIES} checkpoints compression",
        "seed models datasets.sets conditions studies forecasts",
        sweeps=True,
    ),
    _stage(
        "statistics",
        "intervals, permutation and sign tests, corrections of every study's correlations",
        f"{_SERIES} checkpoints compression geometry heads spectra forecasts",
        "seed studies statistics population",
    ),
    _stage(
        "theory",
        "the theorems of Yu et al. 2026 at random instances, and its numerical experiments",
        params="seed theory",
        sweeps=True,
    ),
    _stage(
        "tables",
        "results.duckdb: every table and view, for SQL",
        " ".join(
            [_SERIES, _SWEPT.replace("theory", "statistics theory"), *(f"timings/{name}" for name in _SWEPT.split())]
        ),
        "seed studies",
        writes="results.duckdb",
    ),
    _stage(
        "report",
        "pages of the results and of the run, figures as PNG and SVG, the headline metrics and the plots",
        "checkpoints compression embeddings results.duckdb",
        "profile seed studies geometry report",
        writes="report.html run.html figures metrics.json plots",
        metrics=(f"{DATA}/metrics.json",),
    ),
)

BY_NAME = {stage.name: stage for stage in STAGES}
