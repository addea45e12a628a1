"""Function `fev_model` of the public Python API: a model of ours on the benchmarks of fev."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tsfmscope.defaults import CONTEXT, MAX_CONTEXT
from tsfmscope.errors import ModelError
from tsfmscope.extras import describe_missing
from tsfmscope.functions.arguments import Bounds, Count, Seed, checked
from tsfmscope.functions.load import Model, as_model
from tsfmscope.models.base import Forecaster

if TYPE_CHECKING:
    import fev


@checked
def fev_model(
    model: Model | str | Path,
    *,
    context: Annotated[int, Bounds(1, MAX_CONTEXT)] = CONTEXT,
    samples: Count = 20,
    seed: Seed = 0,
) -> fev.ForecastingModel:
    """Return a model, dense or compressed, as a `fev.ForecastingModel`, which fev scores on any `fev.Task`.

    Its `fit_predict(task)` forecasts every window of the task and trains nothing. Each series and each target is
    forecast alone. Covariates are not read. The point forecast is the median.

    Args:
        model: a model that `load` or `compress` returned, or its name or folder.
        context: steps before each window that the model sees, at least 1. A shorter series is padded with missing
            values. A model that reads fewer steps takes the last ones.
        samples: number of sample paths, for families that draw them.
        seed: seed of the sample paths.

    Returns:
        The model. Its `model_name` is the name of ours, its `inference_time` the seconds of the forecasts.
        `fit_predict` raises DataError for an infinite value and HealthError for a forecast that is not finite.

    Raises:
        ModelError: the model does not forecast.
        ModuleNotFoundError: fev is not installed; the message names the extra.
        ValueError: `context` or `samples` is out of range.
    """
    try:
        # fev is an extra, and takes seconds to import.
        from tsfmscope.functions.fev_adapter import FevModel
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(describe_missing(error), name=error.name) from error
    loaded = as_model(model)
    if not isinstance(loaded.family, Forecaster):
        raise ModelError(
            f"{loaded.name}: expected a model that forecasts, but family {loaded.source.family} reads "
            f"{loaded.family.modality}; name another model"
        )
    loaded.family.check_complete()
    return FevModel(loaded, loaded.family, context=context, samples=samples, seed=seed)
