"""Studies of params.yaml: what is measured of which models, and how it is drawn."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from stages.blocks.strict import Strict

Measure = Literal[  # what a study may ask for
    "isotropy",  # geometry, heads and forecasts of every cell
    "inputs",  # singular values of the tokens that every layer is given
    "weights",  # singular values of every attention and MLP matrix, whole and by head, snapshots of a training too
    "planes",  # embedded tokens on their two leading singular directions
    "token_angles",  # between the embedded tokens of a window
    "row_angles",  # between the rows of the first query projection
    "constant",  # singular values of every layer's input on one window, with special tokens and without
    "forecasts",  # forecasts of every cell alone
    "validation",  # forecasts of the window before the last: what one may choose a model by
    "baselines",  # forecasts of forecasts.baselines on the same windows
    "fidelity",  # of compressed models: how far their forecasts and states are from those of their base
]
Baseline = Literal["seasonal-naive", "auto-ets", "auto-theta", "auto-arima"]  # tasks/forecasting/local.py
Picture = Literal[  # how the report draws a study
    "domains",  # NMSE against isotropy, a panel a domain
    "conditions",  # NMSE against isotropy from one condition to another
    "islands",  # hidden states on three components
    "dimension",  # effective dimension by layer
    "spectrum",  # singular values of the embedded tokens, a line a model
    "plane",  # embedded tokens on two singular directions
    "angles",  # between tokens, or between rows of a projection
    "growth",  # numerical rank of inputs and weights by layer
    "along",  # numerical rank against what a grid of models varies
    "constant",  # singular values of every layer's input for a constant series
    "histogram",  # singular values of a matrix, a panel a layer
    "snapshots",  # the same at steps of a training
    "frontier",  # accuracy against time, compressed models and baselines relative to the dense model
    "compressed",  # accuracy and overlap against size, a line a way of compressing, the paper's beside them
    "pretrained",  # accuracy against size of models pretrained with narrow heads, growing with depth and flat
    "none",
]
OF_WEIGHTS = {"weights", "row_angles"}  # measures that look at no data set
WITHOUT_TOKENS = OF_WEIGHTS | {"forecasts", "fidelity", "validation", "baselines"}  # measures that read no token dump


class Study(Strict):
    """What is asked: every model on every data set of its modality under every condition."""

    title: str
    measures: list[Measure] = Field(["isotropy"], min_length=1, description="what is measured: see Measure")
    figure: str | None = Field(None, description="the figure or table of a paper that it answers")
    models: Literal["all"] | list[str] = Field(min_length=1, description="names, or BASE@METHOD for a compressed one")
    datasets: Literal["all"] | list[str] = Field([], description="none where weights alone are measured")
    conditions: Literal["all"] | list[str] = Field([], description="likewise")
    layers: Literal["all", "first", "last"] = Field(
        "all", description="all layers, the first stack's embedding, or each stack's last state"
    )
    along: dict[str, float] = Field({}, description="model -> x: what a grid of models varies, such as its patch size")
    picture: Picture = Field("domains", description="how the report draws it: see Picture")
    pictured: Literal["middle", "last"] = Field("last", description="layer of the islands")

    @model_validator(mode="after")
    def _data_where_needed(self) -> Study:
        if needing := sorted(set(self.measures) - OF_WEIGHTS):
            for block in ("datasets", "conditions"):
                if not getattr(self, block):
                    raise ValueError(
                        f"{block}: got none, but data are needed for {', '.join(needing)}; name some, or all"
                    )
        return self
