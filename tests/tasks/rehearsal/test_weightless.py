"""Models without weights: the shapes of a release, tied parameters once, and no memory."""

from __future__ import annotations

import math

import pytest

from tsfmscope.tasks import cost, lens
from tsfmscope.tasks.rehearsal.layouts import LAYOUTS, QUICK
from tsfmscope.tasks.rehearsal.weightless import layout_of, weightless_model
from tsfmscope.tasks.rehearsal.weights import tensor_shapes
from tsfmscope.tasks.series.files.bundled import load_bundled
from tsfmscope.tasks.series.other_modalities import documents


@pytest.mark.parametrize("name", [*QUICK, "chronos-t5-large"])
def test_a_model_without_weights_has_the_shapes_of_the_release_and_makes_tokens(name: str) -> None:
    model = weightless_model(LAYOUTS[name], {})
    numbers = sum(math.prod(shape) for shape in tensor_shapes(LAYOUTS[name]).values())
    # Moirai's file has a few numbers that are no parameters.
    assert cost.model_size(model).parameters == pytest.approx(numbers, rel=1e-4)
    assert {tensor.untyped_storage().nbytes() for tensor in model.network.parameters()} == {4}
    series = [next(iter(documents("english", None)))] if model.modality == "text" else load_bundled("nile")
    assert lens.tokenize(model, series, context=64, horizon=12, rows=8, seed=0).tokens is not None


def test_options_that_change_tokens_count() -> None:
    model = weightless_model(LAYOUTS["lag-llama"], {"tokens": 48, "precision": "bfloat16"})
    assert model.rows_per_window(100, 12) == {"decoder": 48}


def test_a_reference_finds_its_layout_with_and_without_a_revision() -> None:
    assert layout_of("hub:amazon/chronos-t5-tiny@abc") is LAYOUTS["chronos-t5-tiny"]
    assert layout_of("hub:google-t5/t5-base") is LAYOUTS["t5-base"]
    assert layout_of("hub:nobody/nothing") is None
