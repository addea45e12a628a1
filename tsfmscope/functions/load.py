"""`load`: a model of a name, folder or the hub. `Case`: a model on windows of a data set."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tsfmscope import layer_states
from tsfmscope.compression.onnx_forecaster import DESCRIPTION, MODEL, OnnxForecaster, is_onnx, read_description
from tsfmscope.compression.record import Calibration, calibration_of
from tsfmscope.defaults import CONTEXT, HELD_OUT, MIN_CONTEXT, Precision
from tsfmscope.errors import ArgumentError, DataError
from tsfmscope.functions.arguments import checked
from tsfmscope.models.base import NEAR_FLOOR, Family, Forecaster
from tsfmscope.models.cards import License, license_of
from tsfmscope.models.references import Source, load_family, resolve
from tsfmscope.models.types import Tokens
from tsfmscope.series.catalog import modality
from tsfmscope.series.types import count_reasons, describe_reasons
from tsfmscope.series.windows import Observed, longest_context

if TYPE_CHECKING:
    from tsfmscope.series.data_sets import NamedSeries

logger = logging.getLogger("tsfmscope")

# Steps of context by modality, as in the studies of both papers: bytes of text, the values of a picture of 32 x 32
# pixels in three colours, and the cells of a table.
CONTEXTS = {"series": CONTEXT, "text": 512, "image": 3072, "table": 576}


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A loaded model.

    Attributes:
        name: name of the model, without characters that a file name cannot have.
        family: the model itself, with its stacks, width, weights and forecasts.
        source: its checkpoint on this machine.
        device: torch device of the weights.
        calibration: series that calibrated or healed the model.
    """

    name: str
    family: Family
    source: Source
    device: str
    calibration: Calibration

    @property
    def layers(self) -> Mapping[str, int]:
        """Number of blocks of each stack; states exist for layers 0 (the embedding) to this number."""
        return self.family.layers

    @property
    def width(self) -> int:
        """Width of the hidden states."""
        return self.family.width

    def choose_stack(self, name: str | None) -> str:
        """Return the name of a stack; None: the first, which reads the context.

        Raises ArgumentError for a name that is none.
        """
        stack = self.family.stacks[0] if name is None else name
        if stack not in self.layers:
            raise ArgumentError(f"stack: got {stack!r}, expected one of {', '.join(self.layers)}")
        return stack

    def __repr__(self) -> str:
        layers = ", ".join(f"{stack} {n}" for stack, n in self.layers.items())
        return (
            f"{type(self).__name__}({self.name!r}, family {self.source.family}, layers: {layers}, width {self.width})"
        )


@checked
def load(
    name: str | Path, *, family: str | None = None, device: str = "cpu", precision: Precision | None = None
) -> Model:
    """Load a model.

    Args:
        name: bundled model (`chronos-bolt-mini`), folder with config.json and safetensors, `FAMILY:FOLDER`, or
            `hub:ORG/NAME[@REVISION]`. A LoRA adapter is merged into the base model that it names, or that follows it:
            `ADAPTER+BASE`.
        family: model family; needed where a config.json does not name it.
        device: torch device that runs the model, such as cpu or cuda:0.
        precision: precision of products with the model's matrices; None: as the model states, or float32.

    Raises:
        ArgumentError: the name is unknown (the message gives similar names), the family is not recognised, the
            precision is unknown, or this machine does not have the device. It is a ValueError.
        ModelError: the checkpoint cannot be read, or a package is missing.
        HubError: the hub cannot be reached, or does not have the model.
    """
    source = resolve(name, family).running_in(precision)
    return load_source(source, device)


def load_source(source: Source, device: str) -> Model:
    """Load the model of a checkpoint on this machine. Raises the errors of `load_family`."""
    return Model(source.name, load_family(source, device), source, device, calibration_of(source.folder))


def as_model(model: Model | str | Path) -> Model:
    """Return the model, loaded first if it is a name or a folder."""
    return model if isinstance(model, Model) else load(model)


@dataclass(frozen=True, eq=False)
class LoadedForecaster:
    """A model that forecasts, of any reference.

    model: the family, or an ONNX model. max_context: most steps of context that it reads; None: no limit. calibration:
    series that calibrated or healed it. n_bytes: size of the files of its weights.
    """

    name: str
    model: Forecaster | OnnxForecaster
    max_context: int | None
    license: License
    calibration: Calibration
    n_bytes: int


@checked
def as_forecaster(
    model: LoadedForecaster | Model | str | Path,
    *,
    family: str | None = None,
    device: str = "cpu",
    precision: Precision | None = None,
) -> LoadedForecaster:
    """Return a model that forecasts: a name or folder as in `load`, or a folder that `export` wrote with onnx.

    An ONNX model needs no torch; it runs on the CPU, as it was exported. Raises the errors of `load`; ArgumentError for
    a model that does not forecast.
    """
    if isinstance(model, LoadedForecaster):
        return model
    if is_onnx(model):
        if family is not None or precision is not None or device != "cpu":
            raise ArgumentError(
                f"family, device, precision: {model} is an ONNX model, which has its own; leave them out"
            )
        folder = Path(model)
        onnx, license_name = OnnxForecaster.load(folder), read_description(folder).get("license")
        found = License(license_name if isinstance(license_name, str) else None, f"{DESCRIPTION} of the export")
        return LoadedForecaster(
            folder.resolve().name, onnx, onnx.context, found, calibration_of(folder), n_bytes(folder)
        )
    loaded = model if isinstance(model, Model) else load(model, family=family, device=device, precision=precision)
    source = loaded.source
    if not isinstance(loaded.family, Forecaster):
        raise ArgumentError(
            f"model: got {loaded.name}, which reads {loaded.family.modality} and does not forecast; name a model of "
            "time series, such as chronos-bolt-mini"
        )
    loaded.family.check_complete()
    return LoadedForecaster(
        loaded.name, loaded.family, loaded.family.max_context, license_of(source.folder, source.reference),
        loaded.calibration, n_bytes(source.base or source.folder),
    )  # fmt: skip


def n_bytes(folder: Path) -> int:
    """Return the size of the files of weights of a checkpoint or an ONNX model."""
    return sum(path.stat().st_size for pattern in ("*.safetensors", f"{MODEL}*") for path in folder.glob(pattern))


class Tokenized(NamedTuple):
    """Tokens of a case's windows, and the steps of context that were observed.

    skipped: reason -> number of series without a window. notes: sentences on steps that the model does not read, and
    on contexts whose results depend on the unit of the data.
    """

    tokens: Tokens
    skipped: Mapping[str, int]
    observed: Observed
    notes: list[str]


@dataclass(frozen=True)
class Case:
    """One model on one data set.

    context, horizon: steps. noise: standard deviation of the noise on the context, in standard deviations of the
    series.
    """

    model: Model
    data: NamedSeries
    context: int
    horizon: int
    seed: int
    noise: float = 0.0

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Columns that name the model, the data set and the condition."""
        noise = f"-noise-{self.noise:g}" if self.noise else ""
        return {
            "model": self.model.source.name, "base_model": self.model.source.base_model, "dataset": self.data.name,
            "condition": f"context-{self.context}{noise}", "context": self.context, "noise": self.noise,
        }  # fmt: skip

    @property
    def min_context(self) -> int:
        """Fewest observed steps of a window's context."""
        # The one window of an image or a table is the whole item; a part of an image is no input.
        return self.context if self.model.family.modality in ("image", "table") else MIN_CONTEXT

    def tokenize(self, rows: int) -> Tokenized:
        """Tokenise windows until every stack has `rows` tokens, and log the notes.

        Futures of a bundled data set lie in the last HELD_OUT of its series. Raises DataError if no series gives a
        window.
        """
        family = self.model.family
        sample = layer_states.tokenize(
            family, self.data.loaded.series, context=self.context, horizon=self.horizon, rows=rows, seed=self.seed,
            min_context=self.min_context, held_out=HELD_OUT if self.data.dataset.source == "bundled" else None,
            noise=self.noise,
        )  # fmt: skip
        skipped = count_reasons(sample.skipped)
        if sample.tokens is None:
            raise DataError(
                f"{self.data.name}: no window of {self.context} steps of context and a horizon of {self.horizon}: "
                f"{describe_reasons(skipped)}; shorten the horizon, or give longer series"
            )
        steps = sample.observed
        longest = longest_context(self.data.loaded.series, self.horizon)
        read_context = min(self.context, family.max_context or self.context)
        observed = Observed(read_context, int(steps.min()), float(np.median(steps)), longest)
        notes = [
            *encoder_notes(family, self.model.name),
            *reading_notes(self.model.name, family.max_context, self.context),
            *floor_notes(family, self.model.name, self.data.name, sample.near_floor, len(steps)),
        ]
        for note in notes:
            logger.warning(note)
        return Tokenized(sample.tokens, skipped, observed, notes)


def make_case(
    model: Model, data: NamedSeries, *, context: int | None, horizon: int | None, seed: int, noise: float = 0.0
) -> Case:
    """Return the case of a model and series. None: the context of CONTEXTS, the horizon of the data set.

    Raises ArgumentError if the model reads data of another modality.
    """
    kind = modality(data.dataset.source)
    if model.family.modality != kind:
        reads = model.family.modality
        raise ArgumentError(f"{data.name}: {kind} data, but model {model.name} reads {reads}; name other data")
    return Case(model, data, context or CONTEXTS[kind], horizon or data.dataset.horizon, seed, noise)


def encoder_notes(model: Family, name: str) -> Iterator[str]:
    """Yield a sentence if only the encoder of a checkpoint was read."""
    if model.missing is not None:
        yield f"{name}: its encoder alone was read, without decoder and head ({model.missing}); it does not forecast"


def reading_notes(name: str, max_context: int | None, context: int) -> Iterator[str]:
    """Yield a sentence if the model of this name reads only the last `max_context` steps of a context."""
    if max_context is not None and context > max_context:
        yield f"context {context}: {name} reads the last {max_context} steps"


def floor_notes(model: Family, name: str, dataset: str, n_near: int, n_contexts: int) -> Iterator[str]:
    """Yield a sentence if some contexts of a data set vary by little more than the family's floor."""
    if n_near:
        yield (
            f"{dataset}: {n_near} of {n_contexts} contexts have a standard deviation of at most "
            f"{NEAR_FLOOR * model.deviation_floor:.2g}, where results of {name} depend on the unit of the data; "
            "multiply the values, for example by 1000 (docs/models.md)"
        )
