"""Seconds and memory of a model in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tsfmscope.conformance.cost import measure
from tsfmscope.errors import ModelError
from tsfmscope.models.chronos import ChronosBolt

# Both wait for a process that imports everything.
pytestmark = pytest.mark.slow
SHAPE = {"d_model": 512, "d_ff": 2048, "d_kv": 64, "num_heads": 8, "num_layers": 6, "num_decoder_layers": 1}
SHAPE |= {"context_length": 64, "prediction_length": 12, "input_patch_size": 16, "input_patch_stride": 16}


def test_the_peak_while_loading_has_room_for_the_weights_and_little_more(tmp_path: Path) -> None:
    ChronosBolt.new(SHAPE, seed=0).save(tmp_path)
    size = (tmp_path / "model.safetensors").stat().st_size
    ballast = bytearray(10 * size)
    cost = measure("chronos-bolt", tmp_path, {}, context=64, horizon=12)
    del ballast
    assert (cost.context, cost.horizon) == (64, 12)
    assert 0 < cost.forecast_seconds < 30 and 0 < cost.load_seconds < 60
    if cost.bytes_before is None or cost.load_peak_bytes is None or cost.forecast_peak_bytes is None:
        pytest.skip("this system reports no memory of a process")
    # One copy is read from the file, and one is aligned.
    assert 0.9 * size <= cost.load_peak_bytes - cost.bytes_before <= 4 * size
    assert 0.9 * size <= cost.forecast_peak_bytes - cost.bytes_before


def test_a_process_that_fails_is_reported_with_its_last_line(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"a process of its own failed: .*ModelError.*model_none"):
        measure("chronos-bolt", tmp_path / "model_none", {}, context=64, horizon=12)
