"""Blocks of params.yaml on models, data sets and conditions."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from pydantic import Field, model_validator

from tsfmscope.compression.options import Ranks, requested_size
from tsfmscope.defaults import MAX_CONTEXT, MIN_CONTEXT, PRECISION, PRECISIONS
from tsfmscope.models.references import split_checkpoint
from tsfmscope.series.catalog import Modality
from tsfmscope.series.data_sets import DATA_VARIABLE, DataSet, complete_entry
from tsfmscope.strict import Strict


class Model(Strict):
    """A model that studies may name."""

    family: str = Field(
        description="model family: one of tsfmscope/models/registry.py, or one that an installed package adds"
    )
    ref: str = Field(
        description="checkpoint:NAME (a recipe of this file or of the catalogue) or checkpoint:NAME/step-N (a "
        "snapshot of its training), hub:ORG/NAME[@REVISION], or a folder"
    )
    options: dict[str, Any] = Field(
        {}, description="keywords of the family's `load`, such as rope_scaling: linear, and precision: bfloat16"
    )
    base_model: str | None = Field(
        None,
        description="original of a compressed model or of one with other options; `all` skips models that have one",
    )
    ranks: Ranks | None = Field(
        None,
        description="size of a model that was pretrained with narrow heads: {share: S}, its mean share of the heads' "
        "width",
    )

    @property
    def precision(self) -> str:
        """Precision of matrix products with the model's weights."""
        return str(self.options.get(PRECISION, PRECISIONS[0]))

    @property
    def is_snapshot(self) -> bool:
        """Whether the reference names weights from before the end of a training."""
        return bool(split_checkpoint(self.ref)[1])

    @property
    def size(self) -> dict[str, Any]:
        """Columns `size_parameter` and `size_rule` of the model's result rows."""
        return requested_size(self.ranks.model_dump(exclude_none=True) if self.ranks else None)

    @model_validator(mode="after")
    def _precision_is_known(self) -> Model:
        if self.precision not in PRECISIONS:
            raise ValueError(f"options.{PRECISION}: got {self.precision!r}, expected one of {', '.join(PRECISIONS)}")
        return self


class DataSets(Strict):
    """Sources of the series, and how many series are used."""

    root: str | None = Field(None, description=f"folder with Parquet files; the variable {DATA_VARIABLE} overrides it")
    max_series: int = Field(
        64, ge=1, description="largest number of series per data set; a seeded sample if there are more"
    )
    min_length: int = Field(
        32, ge=2, description="smallest number of steps; shorter series are skipped and counted in table `skipped`"
    )
    sets: dict[str, DataSet] = Field({})

    @model_validator(mode="before")
    @classmethod
    def _complete_from_catalog(cls, block: Any) -> Any:
        if not isinstance(block, dict) or not isinstance(block.get("sets"), dict):
            return block
        sets = {name: complete_entry(name, entry) for name, entry in block["sets"].items()}
        return {**block, "sets": sets}

    @model_validator(mode="after")
    def _files_are_under_the_root(self) -> DataSets:
        """Raise ValueError for a path that leaves the data root.

        Symbolic links inside the root are followed, because the owner of the root put them there.
        """
        for name, dataset in self.sets.items():
            path = PurePath(dataset.file or "")
            if path.is_absolute() or ".." in path.parts or "\0" in str(path):
                raise ValueError(
                    f"sets.{name}.file: got {dataset.file!r}, expected a path under the data root, relative and "
                    f"without '..'; move the file there, or set {DATA_VARIABLE} or datasets.root"
                )
        return self


class Condition(Strict):
    """Settings of the input: context length, noise and modality."""

    context: int = Field(ge=MIN_CONTEXT, le=MAX_CONTEXT, description="steps of context")
    history: int = Field(
        0, ge=0, description="steps before the context, read only by models with lags (lag-llama: 1092)"
    )
    noise: float = Field(
        0.0, ge=0, le=10, description="standard deviation of Gaussian noise on the context, in those of the series"
    )
    modality: Modality = Field(
        "series", description="modality of the data sets that the condition applies to: series, text, image or table"
    )


class KernelSynth(Strict):
    """Stage kernelsynth: the named synthetic data sets."""

    series: int = Field(64, ge=1, description="series per data set")
    length: int = Field(1024, ge=64, le=8192)
