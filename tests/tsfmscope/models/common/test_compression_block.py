"""The block `compression` of a config.json: what is no longer read is refused."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from tests.tsfmscope.models.families import COMPRESSED, example_model
from tsfmscope.errors import ModelError
from tsfmscope.models.common.attention import shapes


@pytest.mark.parametrize("family", COMPRESSED)
def test_a_folder_whose_mlps_lost_neurons_is_refused_with_what_to_do(family: str, tmp_path: Path) -> None:
    model = copy.deepcopy(example_model(family))
    neurons = {"encoder.layers.0.fc2": {"inputs": ["encoder.layers.0.fc1"], "width": 5}}
    model.compression = {"widths": shapes(model.attentions()), "neurons": neurons}
    model.save(tmp_path)
    message = r"config\.json: compression contains `neurons` .*, expected .*; compress the original again"
    with pytest.raises(ModelError, match=message):
        type(model).load(tmp_path)
