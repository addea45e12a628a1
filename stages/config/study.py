"""Studies of params.yaml: models, data, measures, and how the report draws the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from tsfmscope.report.plots import check_plot_name
from tsfmscope.strict import Strict

# Measures that a study may ask for. docs/building/params.py copies the trailing comments into the
# documentation, so they stay on the line of their value.
Measure = Literal[
    "isotropy",  # geometry, heads and forecasts of every cell
    "inputs",  # singular values of the input of every layer
    "weights",  # singular values of attention and MLP matrices, whole and per head, also at snapshots of a training
    "planes",  # embedded tokens projected on their two leading singular directions
    "token_angles",  # angles between the embedded tokens of a window
    "row_angles",  # angles between the rows of the first query projection
    "constant",  # singular values of every layer's input on one window, with special tokens and without
    "forecasts",  # forecasts of every cell, without other measures
    "validation",  # forecasts of the window before the last one, by which a model can be chosen
    "baselines",  # forecasts of forecasts.baselines on the same windows
    "fidelity",  # distance of a compressed model's forecasts and states from those of its base
]
# The models of tsfmscope/forecasting/baselines.py.
Baseline = Literal["seasonal-naive", "auto-ets", "auto-theta", "auto-arima"]
# Measures that need no data set.
OF_WEIGHTS = {"weights", "row_angles"}
# Measures that need no activation file of tokens.
WITHOUT_TOKENS = OF_WEIGHTS | {"forecasts", "fidelity", "validation", "baselines"}


class Study(Strict):
    """Every model on every data set of its modality under every condition, for one question."""

    title: str
    measures: list[Measure] = Field(["isotropy"], min_length=1, description="measures, see Measure")
    figure: str | None = Field(None, description="figure or section of a paper that the study reproduces or extends")
    models: Literal["all", "snapshots"] | list[str] = Field(
        min_length=1,
        description="models; BASE@METHOD names a compressed one; all: those without a "
        "base model, but no snapshots; snapshots: all weights of the population, the last ones of each training too; "
        "FAMILY-SIZE: those of all seeds",
    )
    datasets: Literal["all"] | list[str] = Field([], description="data sets; [] if only weights are measured")
    conditions: Literal["all"] | list[str] = Field([], description="conditions; [] if only weights are measured")
    layers: Literal["all", "first", "last"] = Field(
        "all", description="all layers, only the embedding of the first stack, or only the last state of each stack"
    )
    x_axis: dict[str, float] = Field(
        {}, description="model -> x: quantity that a grid of models varies, such as the patch size"
    )
    plot: Annotated[str, AfterValidator(check_plot_name)] = Field(
        "domains", description="plot of the study in the report: one of the plots below"
    )
    islands_layer: Literal["middle", "last"] = Field("last", description="layer that plot islands draws")

    @model_validator(mode="after")
    def _has_data_if_needed(self) -> Study:
        if data_measures := sorted(set(self.measures) - OF_WEIGHTS):
            for block in ("datasets", "conditions"):
                if not getattr(self, block):
                    raise ValueError(
                        f"{block}: got none, but data are needed for {', '.join(data_measures)}; name some, or all"
                    )
        return self

    def with_runs(self, runs: Mapping[str, Sequence[str]]) -> Study:
        """Return the study with the trainings of each size of the population that it names; runs: by size."""
        models = self.models
        if not isinstance(models, str):
            models = [run for name in models for run in runs.get(name, [name])]
        x_axis = {run: x for name, x in self.x_axis.items() for run in runs.get(name, [name])}
        return self.model_copy(update={"models": models, "x_axis": x_axis})
