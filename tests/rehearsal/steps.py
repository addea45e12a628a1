"""The two steps of the rehearsal of a model, each in its own process: write files; load and measure.

A process prints one JSON document. `python -m tests.rehearsal.steps write NAME FOLDER SEED` writes the files
of a release; `inspect NAME CACHE SEED` loads the model from the hub that HF_ENDPOINT names into the hub's cache CACHE.
"""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.rehearsal.layouts import LAYOUTS, Layout
from tests.rehearsal.weights import LayoutError, check_files, check_loaded, folder_bytes, tensor_shapes, write_folder
from tsfmscope import hub, layer_states
from tsfmscope.errors import TsfmscopeError
from tsfmscope.extras import describe_missing
from tsfmscope.models import registry
from tsfmscope.process_memory import peak_bytes_since_start
from tsfmscope.series.files.sources import load_bundled
from tsfmscope.series.other_modalities import documents
from tsfmscope.series.windows import last_windows

if TYPE_CHECKING:
    from tsfmscope.models.base import Family
    from tsfmscope.series.types import Series

# One series, `nile`; of text, the first document of `english`.
CONTEXT, HORIZON = 64, 12
SAMPLES = 20
# Key of the document of a step that fails.
ERROR = "error"


def write_step(layout: Layout, folder: Path, seed: int) -> dict[str, Any]:
    """Write the files of a release and return seconds, number of parameters, bytes and peak memory.

    The seconds are without those of importing packages, here and in `inspect_step`.
    """
    tensor_shapes(layout)
    start = time.perf_counter()
    shapes = write_folder(layout, folder, seed)
    seconds = time.perf_counter() - start
    check_files(layout, folder, shapes)
    return {
        "parameters": sum(map(math.prod, shapes.values())),
        "tensors": len(shapes),
        "bytes": folder_bytes(folder),
        "seconds_write": seconds,
        "peak_bytes_write": peak_bytes_since_start(),
    }


def inspect_step(layout: Layout, cache: Path, seed: int) -> dict[str, Any]:
    """Load a model from the hub, compute all states and a forecast, and return seconds and peak memory.

    Raises LayoutError if a tensor, the number of layers or the width is not the published one, and the errors of
    loading and of the family.
    """
    shapes = tensor_shapes(layout)
    registry.family_class(layout.family)
    start = time.perf_counter()
    checkpoint = registry.resolve(f"{hub.PREFIX}{layout.repository}", allow_hub=True, cache=cache)
    downloaded = time.perf_counter()
    model = registry.load(layout.family, checkpoint.folder, options={})
    loaded = time.perf_counter()
    # Before the comparison below, which holds one more tensor.
    peak_load = peak_bytes_since_start()
    check_loaded(layout, model.network, shapes, seed)
    compared = time.perf_counter()
    layers, tokens = _count_states(model, seed)
    measured = time.perf_counter()
    _forecast(layout, model, seed)
    return {
        "layers": layers,
        "tokens": tokens,
        "seconds_download": downloaded - start,
        "seconds_load": loaded - downloaded,
        "seconds_states": measured - compared,
        "seconds_forecast": time.perf_counter() - measured,
        "peak_bytes_load": peak_load,
        "peak_bytes": peak_bytes_since_start(),
    }


def _series(model: Family) -> list[Series]:
    return [next(documents("english", None))] if model.modality == "text" else load_bundled("nile")


def _count_states(model: Family, seed: int) -> tuple[int, int]:
    """Return the numbers of layers and of tokens of the longest stack; the family checks every state."""
    sample = layer_states.tokenize(model, _series(model), context=CONTEXT, horizon=HORIZON, rows=1, seed=seed)
    if sample.tokens is None:
        raise LayoutError(f"{model.name}: the series gives no window of {CONTEXT} steps; report this as a fault")
    counts: dict[str, int] = {}
    rows = 0
    for layer in model.hidden_states(sample.tokens):
        counts[layer.stack] = max(counts.get(layer.stack, 0), layer.layer)
        rows = max(rows, math.prod(layer.states.shape[:-1]))
    if counts != dict(model.layers):
        raise LayoutError(f"{model.name}: got states of layers {counts}, expected {dict(model.layers)}")
    return sum(counts.values()), rows


def _forecast(layout: Layout, model: Family, seed: int) -> None:
    """Forecast the end of the series; a family that does not forecast computes the logits of its last stack."""
    from tsfmscope.models.base import Forecaster

    windows, _ = last_windows(_series(model), context=CONTEXT, horizon=HORIZON)
    if isinstance(model, Forecaster):
        model.forecast(windows, samples=SAMPLES, seeds=[seed] * len(windows))
        return
    for logits in model.forecast_logits(model.tokenize(windows)):
        if not np.isfinite(logits).all():
            raise LayoutError(f"{layout.name}: logits are not finite; report this as a fault")


STEPS = {"write": write_step, "inspect": inspect_step}


def main(arguments: list[str]) -> int:
    """Run one step, print its document, and return the exit code; a known error is the document's only entry."""
    step, name, folder, seed = arguments
    try:
        found = STEPS[step](LAYOUTS[name], Path(folder), int(seed))
    except ModuleNotFoundError as error:
        found = {ERROR: describe_missing(error)}
    except (TsfmscopeError, OSError) as error:
        found = {ERROR: str(error)}
    print(json.dumps(found))
    return int(ERROR in found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
