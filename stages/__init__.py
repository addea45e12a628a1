"""Stages of the pipeline, one module per DVC stage.

A stage reads params, hands out work and writes its declared outputs. It contains no science.
The list below is the pipeline; `python -m stages.planning.dvc_file` makes dvc.yaml from it.
"""

from __future__ import annotations

from dataclasses import dataclass

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


def _out(name: str) -> str:
    return f"{DATA}/{name}"


def _timings(name: str) -> str:
    return f"{DATA}/timings/{name}"


_TABLES = (
    *("kernelsynth", "datasets", "checkpoints", "compression", "pretraining", "tokens", "embeddings", "geometry"),
    *("heads", "spectra", "forecasts", "inside", "statistics", "theory"),
)
_SWEPT = (
    *("checkpoints", "compression", "pretraining", "tokens", "embeddings", "geometry"),
    *("heads", "spectra", "forecasts", "inside", "theory"),
)

STAGES: tuple[Stage, ...] = (
    Stage(
        "external_inputs",
        "all parameters; names and checksums of the external data files, and of families that installed packages add",
        writes=(PARAMS, _out("external_inputs.json"), _out("plugins.json")),
        always_runs=True,
    ),
    Stage(
        "kernelsynth",
        "the named synthetic data sets",
        writes=(_out("kernelsynth"),),
        params=("seed", "datasets.sets", "kernelsynth"),
    ),
    Stage(
        "datasets",
        "real series: bundled, from the data root, from the hub",
        reads=(_out("external_inputs.json"),),
        writes=(_out("datasets"),),
        params=("seed", "datasets.sets", "datasets.max_series", "datasets.min_length"),
    ),
    Stage(
        "checkpoints",
        "every model's weights: committed, pretrained, from a folder or the hub; skill of forecasters",
        reads=(_out("plugins.json"), _out("kernelsynth"), _out("datasets")),
        writes=(_out("checkpoints"), _timings("checkpoints")),
        params=("seed", "models", "datasets.sets", "studies", "checkpoints", "population"),
        folders=("tsfmscope/checkpoints",),
        sweeps=True,
    ),
    Stage(
        "compression",
        "compressed models that studies name as BASE@METHOD, and how far they are from their base",
        reads=(_out("kernelsynth"), _out("datasets"), _out("checkpoints")),
        writes=(_out("compression"), _timings("compression")),
        params=("seed", "models", "datasets.sets", "conditions", "studies", "compression"),
        sweeps=True,
    ),
    Stage(
        "pretraining",
        "a search over rank schedules: one recipe, pretrained with each",
        reads=(_out("plugins.json"),),
        writes=(_out("pretraining"), _timings("pretraining")),
        params=("seed", "checkpoints.recipes", "pretraining"),
        sweeps=True,
    ),
    Stage(
        "tokens",
        "windows of every data set under every condition, tokenised",
        reads=(_out("kernelsynth"), _out("datasets"), _out("checkpoints"), _out("compression")),
        writes=(_out("tokens"), _timings("tokens")),
        params=("seed", "models", "datasets.sets", "conditions", "studies", "tokens"),
        sweeps=True,
    ),
    Stage(
        "embeddings",
        "hidden states of every layer of every stack",
        reads=(_out("checkpoints"), _out("compression"), _out("tokens")),
        writes=(_out("embeddings"), _timings("embeddings")),
        params=("seed", "models", "conditions", "embeddings"),
        sweeps=True,
    ),
    Stage(
        "geometry",
        "isotropy and effective dimension of every layer",
        reads=(_out("embeddings"),),
        writes=(_out("geometry"), _timings("geometry")),
        params=("seed", "models", "conditions", "studies", "geometry"),
        sweeps=True,
    ),
    Stage(
        "heads",
        "spectral alignment of attention heads, log-partition of softmax heads, Lemma 1's bounds",
        reads=(_out("checkpoints"), _out("compression"), _out("tokens")),
        writes=(_out("heads"), _timings("heads")),
        params=("seed", "models", "conditions", "heads"),
        sweeps=True,
    ),
    Stage(
        "spectra",
        "singular values of every layer's input and weights, planes and angles of embedded tokens",
        reads=(_out("checkpoints"), _out("compression"), _out("tokens"), _out("embeddings")),
        writes=(_out("spectra"), _timings("spectra")),
        params=("seed", "models", "conditions", "studies", "spectra"),
        sweeps=True,
    ),
    Stage(
        "forecasts",
        "forecasts of the last window of every series, scored",
        reads=(_out("kernelsynth"), _out("datasets"), _out("checkpoints"), _out("compression")),
        writes=(_out("forecasts"), _timings("forecasts")),
        params=("seed", "models", "datasets.sets", "conditions", "studies", "forecasts"),
        sweeps=True,
    ),
    Stage(
        "inside",
        "probes of every layer, forecasts without each part, and similarity of the layers of two models",
        reads=(_out("kernelsynth"), _out("datasets"), _out("checkpoints"), _out("compression")),
        writes=(_out("inside"), _timings("inside")),
        params=("seed", "models", "datasets.sets", "conditions", "studies", "population", "forecasts", "inside"),
        sweeps=True,
    ),
    Stage(
        "statistics",
        "intervals, permutation and sign tests, corrections of every study's correlations",
        reads=(
            *map(_out, ("kernelsynth", "datasets", "checkpoints", "compression", "geometry", "heads", "spectra")),
            *map(_out, ("forecasts", "inside")),
        ),
        writes=(_out("statistics"),),
        params=("seed", "studies", "statistics", "population"),
    ),
    Stage(
        "theory",
        "the theorems of Yu et al. 2026 at random instances, and its numerical experiments",
        writes=(_out("theory"), _timings("theory")),
        params=("seed", "theory"),
        sweeps=True,
    ),
    Stage(
        "tables",
        "results.duckdb: every table and view, for SQL",
        reads=(*map(_out, _TABLES), *map(_timings, _SWEPT)),
        writes=(_out("results.duckdb"),),
        params=("seed", "studies"),
    ),
    Stage(
        "report",
        "pages of the results and of the run, figures as PNG, SVG and PDF, the headline metrics and the plots",
        reads=tuple(map(_out, ("checkpoints", "compression", "embeddings", "results.duckdb"))),
        writes=(_out("report.html"), _out("run.html"), _out("figures"), _out("metrics.json"), _out("plots")),
        params=("profile", "seed", "studies", "geometry", "report"),
        metrics=(_out("metrics.json"),),
    ),
)

BY_NAME = {stage.name: stage for stage in STAGES}
