"""Forecasts of an ONNX model that `export --onnx` wrote, computed by onnxruntime."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self, TypeGuard

import numpy as np
from jaxtyping import Float32

from tsfmscope.errors import HealthError, ModelError
from tsfmscope.files import check_regular, read_text
from tsfmscope.models.common.scale import clip_float32
from tsfmscope.models.timesfm_patches import frequency
from tsfmscope.models.types import Forecast
from tsfmscope.series.catalog import Modality
from tsfmscope.series.types import Windows

MODEL, DESCRIPTION = "model.onnx", "onnx.json"
# Bytes of DESCRIPTION.
LARGEST_DESCRIPTION = 2**20
KEYS = ("family", "context", "horizon", "levels")


def is_onnx(model: object) -> TypeGuard[str | Path]:
    """Return whether a model is named by a folder that `export` wrote with onnx."""
    return isinstance(model, str | Path) and Path(model, DESCRIPTION).is_file()


def read_description(folder: Path) -> Any:
    """Return the contents of the description of a folder. Raises OSError or ValueError for a damaged one."""
    return json.loads(read_text(folder / DESCRIPTION, LARGEST_DESCRIPTION))


class OnnxForecaster:
    """An ONNX model that forecasts as a `Forecaster` does. It has no states and no weights to look at."""

    modality: ClassVar[Modality] = "series"

    def __init__(self, session: Any, *, family: str, context: int, horizon: int, levels: Sequence[float]) -> None:
        """Wrap an onnxruntime.InferenceSession; context, horizon: its numbers of steps; levels: of its quantiles."""
        self.session, self.name = session, family
        self.context, self.horizon, self.levels = context, horizon, tuple(levels)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Open the model of a folder.

        Raises ModelError if its description is not valid, if a file is missing or has another size than was written, or
        if onnxruntime cannot run the model; ModuleNotFoundError without onnxruntime.
        """
        path = folder / DESCRIPTION
        try:
            facts = read_description(folder)
            family, context, horizon, levels = (facts[key] for key in KEYS)
            # Older descriptions do not name the files.
            check_files(folder, dict(facts.get("files", {})))
            session = open_session(folder / MODEL)
            return cls(session, family=str(family), context=int(context), horizon=int(horizon), levels=list(levels))
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise ModelError(
                f"{path}: expected the keys {', '.join(KEYS)} ({type(error).__name__}: {error}); run "
                "`tsfmscope export --onnx` again"
            ) from error

    def with_condition(self, context: int, history: int) -> tuple[Self, int]:
        """Return this model and the context: it reads no step before the context."""
        return self, context

    def forecast(self, windows: Windows, *, levels: Sequence[float], samples: int, seeds: Sequence[int]) -> Forecast:
        """Return quantiles [W, Q, H] in the data's units; samples, seeds: not used.

        A context longer than the model's loses its first steps; a shorter one is filled up with missing steps.
        Raises ModelError for a horizon or for levels that the model does not have, HealthError if a quantile is not
        finite.
        """
        if windows.horizon > self.horizon:
            raise ModelError(
                f"horizon: got {windows.horizon}, expected at most {self.horizon}, which the ONNX model forecasts; "
                "export it with a longer --horizon"
            )
        if missing := [level for level in levels if level not in self.levels]:
            raise ModelError(f"levels: got {missing}, expected some of {list(self.levels)}, which the ONNX model has")
        context = windows.context[:, -self.context :]
        context = np.pad(context, ((0, 0), (self.context - context.shape[1], 0)), constant_values=np.nan)
        quantiles = run_session(self.session, context.astype(np.float32), windows.freq)
        values = quantiles[:, [self.levels.index(level) for level in levels], : windows.horizon]
        if not np.isfinite(values).all():
            raise HealthError(f"{self.name} in ONNX: the forecast contains NaN or infinity; check the input's scale")
        return Forecast(clip_float32(values), tuple(levels))


def check_files(folder: Path, sizes: Mapping[str, int]) -> None:
    """Raise ModelError if a file of an ONNX model is missing or has another size, in bytes, than was written."""
    for name, size in sizes.items():
        path = folder / Path(name).name
        found = path.stat().st_size if path.is_file() else None
        if found != size:
            raise ModelError(
                f"{path}: expected the {size:,} bytes that {DESCRIPTION} names, found "
                f"{'no file' if found is None else f'{found:,}'}; copy all files of the export into one folder again"
            )


def open_session(path: Path) -> Any:
    """Return an onnxruntime.InferenceSession on the CPU, with as many threads as torch has.

    Raises ModelError if the model or its data is no regular file, or if onnxruntime cannot run the model, such as one
    of a newer opset.
    """
    import onnxruntime

    try:
        check_regular(path)
        if os.path.lexists(data := path.with_name(f"{path.name}.data")):
            check_regular(data)
    except OSError as error:
        raise ModelError(f"{error.filename}: {error.strerror}; run `tsfmscope export --onnx` again") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = n_threads(), 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    # Its exceptions have no common class.
    except Exception as error:
        raise ModelError(
            f"{path}: onnxruntime {onnxruntime.__version__} cannot run it ({first_line(error)}); install a newer one"
        ) from error


def run_session(
    session: Any, context: Float32[np.ndarray, "window step"], freq: str
) -> Float32[np.ndarray, "window quantile horizon"]:
    """Return the quantiles of an ONNX model that `write_onnx` wrote; freq: frequency of the series.

    Raises ModelError if onnxruntime fails.
    """
    names = {value.name for value in session.get_inputs()}
    inputs = {"context": context}
    if "frequency" in names:
        inputs["frequency"] = np.full(len(context), frequency(freq), dtype=np.int64)
    try:
        quantiles: np.ndarray = session.run(["quantiles"], inputs)[0]
    # Its exceptions have no common class.
    except Exception as error:
        raise ModelError(
            f"onnxruntime cannot compute the forecast ({first_line(error)}); export without --bits, or install another "
            "version of onnxruntime"
        ) from error
    return quantiles


def n_threads() -> int:
    """Return the number of threads for onnxruntime: that of torch, if it is loaded, else OMP_NUM_THREADS; 0: all cores.

    An ONNX model runs where torch is not installed.
    """
    torch = sys.modules.get("torch")
    return torch.get_num_threads() if torch else int(os.environ.get("OMP_NUM_THREADS") or 0)


def first_line(error: Exception) -> str:
    """Return the name and the text of an error of another package, as one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines)[:200]}"
