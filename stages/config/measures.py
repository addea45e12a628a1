"""Blocks of params.yaml on compressed models, measures and their sizes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stages.config.study import Baseline
from tasks.heads import HeadsOptions, LemmaOptions
from tasks.tokens import TokenOptions
from tsfmscope.compression.options import CalibrationOptions, FidelityOptions, Method
from tsfmscope.defaults import MIN_CONTEXT, ROWS
from tsfmscope.forecasting.options import ScoreOptions
from tsfmscope.geometry.options import IsotropyOptions
from tsfmscope.strict import Strict
from tsfmscope.theory.options import ByRank, ByWidth, Flow, Sketch


class Compression(Strict):
    """Stage compression: the compressed models that studies name as BASE@METHOD."""

    methods: dict[str, Method] = Field({}, description="name after the @ -> method")
    calibration: CalibrationOptions = CalibrationOptions()
    fidelity: FidelityOptions = FidelityOptions()


class Tokens(TokenOptions):
    """Stage tokens: windows of every data set under every condition, tokenised."""

    min_context: int = Field(MIN_CONTEXT, ge=1, description="smallest number of observed steps in a window's context")


class Geometry(IsotropyOptions):
    """Stage geometry: isotropy and effective dimension, as defined in docs/science.md."""

    rows: int = Field(ROWS, ge=3, description="largest number of tokens per layer; a seeded sample if there are more")
    cai: Literal["none", "last", "all"] = Field(
        "last", description="layers with the measures of Cai et al. as well, K up to 15, which doubles a layer's time"
    )


class Spectra(Strict):
    """Stage spectra: singular values, planes and angles of Yu et al. 2026."""

    plane_tokens: int = Field(400, ge=3, description="embedded tokens per plane")
    angle_tokens: int = Field(64, ge=2, le=512, description="tokens of one window whose angles are measured")
    angle_rows: int = Field(192, ge=2, le=1024, description="rows of a projection whose angles are measured")
    gaussian: list[int] = Field(
        [16, 768], description="dimensions of the i.i.d. Gaussian vectors that angles are compared with"
    )


class Heads(HeadsOptions):
    """Stage heads: alignment of attention heads, log-partition of a softmax head, Lemma 1."""

    lemma: LemmaOptions = LemmaOptions()


class Theory(Strict):
    """Stage theory: the theorems of Yu et al. 2026 at random instances, and the paper's Appendix J."""

    seeds: int = Field(20, ge=2, description="seeds of every experiment; each gives one slope")
    instances: int = Field(1000, ge=1, description="random instances of every statement")
    batch: int = Field(500, ge=1, description="instances per job")
    rank: ByRank = ByRank()
    width: ByWidth = ByWidth()
    sketch: Sketch = Sketch()
    flow: Flow = Flow()


class Forecasts(ScoreOptions):
    """Stage forecasts: the last window of every series, scored."""

    min_context: int = Field(MIN_CONTEXT, ge=1)
    validation_series: int = Field(
        32, ge=1, description="series whose validation window is forecast: the first ones of a data set"
    )
    baselines: list[Baseline] = Field(
        [], description="probabilistic models of statsforecast for studies with measure baselines, fitted per series"
    )


class Report(Strict):
    """Stage report: order of the page."""

    study: str | None = Field(
        None, description="study of the summary and of the first section; the others follow; null: the first one"
    )
