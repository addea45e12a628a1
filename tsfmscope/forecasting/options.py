"""Options of scored forecasts."""

from __future__ import annotations

from pydantic import Field

from tsfmscope.strict import Strict


class ScoreOptions(Strict):
    """Options of forecasts that are scored."""

    levels: tuple[float, ...] = Field(
        (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9), description="quantile levels, ascending, with 0.5"
    )
    samples: int = Field(20, ge=1, description="sample paths, for models that draw samples")
    batch: int = Field(64, ge=1, description="windows per call of the model")
    keep_quantiles: bool = Field(False, description="whether rows contain the forecasts")
