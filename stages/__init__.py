"""One module a DVC stage: read params, hand out work, write the declared outputs. No science.

The list below is the pipeline; `dvc.yaml` says the same to DVC, and a test holds one to the other.
"""

from __future__ import annotations

from dataclasses import dataclass

DATA = "data"  # DVC's outputs live here, relative to the repository's root


@dataclass(frozen=True)
class Stage:
    """One stage: its module and params block share its name."""

    name: str
    does: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    params: tuple[str, ...] = ()
    sweeps: bool = False
    figures: tuple[str, ...] = ()


def _out(name: str) -> str:
    return f"{DATA}/{name}"


def _timings(name: str) -> str:
    return f"{DATA}/timings/{name}"


_TABLES = (
    *("kernelsynth", "datasets", "checkpoints", "compression", "pretraining", "tokens", "embeddings", "geometry"),
    *("heads", "spectra", "forecasts", "statistics", "theory"),
)
_SWEPT = (
    *("checkpoints", "compression", "pretraining", "tokens", "embeddings", "geometry"),
    *("heads", "spectra", "forecasts", "theory"),
)
_RESULTS = (
    *map(_out, _TABLES),
    *map(_timings, _SWEPT),
)

STAGES: tuple[Stage, ...] = (
    Stage(
        "roots",
        "names and checksums of the external data files, and of families that installed packages add",
        writes=(_out("roots.json"), _out("plugins.json")),
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
        reads=(_out("roots.json"),),
        writes=(_out("datasets"),),
        params=("seed", "datasets.sets", "datasets.max_series", "datasets.min_length"),
    ),
    Stage(
        "checkpoints",
        "every model's weights: committed, pretrained, from a folder or the hub; skill of the pretrained ones",
        reads=(_out("plugins.json"),),
        writes=(_out("checkpoints"), _timings("checkpoints")),
        params=("seed", "models", "environments", "studies", "checkpoints"),
        sweeps=True,
    ),
    Stage(
        "compression",
        "compressed models that studies name as BASE@METHOD, and how far they are from their base",
        reads=(_out("kernelsynth"), _out("datasets"), _out("checkpoints")),
        writes=(_out("compression"), _timings("compression")),
        params=("seed", "models", "environments", "datasets.sets", "conditions", "studies", "compression"),
        sweeps=True,
        figures=("ranks Table 2",),
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
        figures=("isotropy Table 1", "isotropy Fig. 3", "isotropy Fig. 5", "isotropy Fig. 7"),
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
        figures=tuple(f"ranks Fig. {n}" for n in ("2", "3", "4", "5", "6", "9", "10", "11", "12", "13", "14")),
    ),
    Stage(
        "forecasts",
        "forecasts of the last window of every series, scored",
        reads=(_out("kernelsynth"), _out("datasets"), _out("checkpoints"), _out("compression")),
        writes=(_out("forecasts"), _timings("forecasts")),
        params=("seed", "models", "datasets.sets", "conditions", "studies", "forecasts"),
        sweeps=True,
        figures=("isotropy Fig. 3", "isotropy Fig. 5", "isotropy Fig. 7"),
    ),
    Stage(
        "statistics",
        "intervals, permutation and sign tests, corrections of every study's correlations",
        reads=tuple(
            map(
                _out,
                ("kernelsynth", "datasets", "checkpoints", "compression", "geometry", "heads", "spectra", "forecasts"),
            )
        ),
        writes=(_out("statistics"),),
        params=("seed", "studies", "statistics"),
        figures=("isotropy Fig. 3", "isotropy Fig. 5", "isotropy Fig. 6", "isotropy Fig. 7", "isotropy Fig. 8"),
    ),
    Stage(
        "theory",
        "the rank paper's theorems at random instances, and its numerical experiments",
        writes=(_out("theory"), _timings("theory")),
        params=("seed", "theory"),
        sweeps=True,
        figures=("ranks Fig. 15", "ranks Fig. 16", "ranks Fig. 17"),
    ),
    Stage(
        "tables",
        "results.duckdb: every table and view, for SQL",
        reads=_RESULTS,
        writes=(_out("results.duckdb"),),
        params=("seed", "studies"),
    ),
    Stage(
        "report",
        "one self-contained page, its figures as PNG and SVG, the headline metrics and the plots",
        reads=_RESULTS,
        writes=(_out("report.html"), _out("figures"), _out("metrics.json"), _out("plots")),
        params=("profile", "seed", "studies", "geometry", "report"),
        figures=("isotropy Table 1", *(f"isotropy Fig. {n}" for n in range(2, 9)), "isotropy Appendix F"),
    ),
)

BY_NAME = {stage.name: stage for stage in STAGES}
