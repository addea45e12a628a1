"""The table of published layouts against params/paper.yaml, the table of released models, and published facts."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
import yaml

from tests.rehearsal.layouts import LAYOUTS, QUICK, Checks
from tests.rehearsal.weights import LayoutError, check_published, predict_bytes, tensor_shapes
from tsfmscope.models.registry import family_class, family_of_config

ROOT = Path(__file__).parents[2]


def test_every_released_model_of_the_paper_profile_has_a_layout_of_its_family() -> None:
    models = yaml.safe_load((ROOT / "params" / "paper.yaml").read_text())["models"]
    named = {(m["ref"].removeprefix("hub:"), m["family"]) for m in models.values() if m["ref"].startswith("hub:")}
    known = {(layout.repository, layout.family) for layout in LAYOUTS.values()}
    assert len(LAYOUTS) == 17
    assert named == known


def test_the_repositories_are_those_of_the_table_of_released_models() -> None:
    for family in ("chronos-t5", "chronos-bolt", "moirai", "lag-llama", "t5-text"):
        ours = {layout.repository for layout in LAYOUTS.values() if layout.family == family}
        assert ours == set(family_class(family).released.checkpoints)


def test_the_quick_models_are_the_smallest_of_every_family() -> None:
    families: dict[str, list[str]] = {}
    for layout in LAYOUTS.values():
        families.setdefault(layout.family, []).append(layout.name)
    smallest = [min(names, key=lambda name: LAYOUTS[name].checks.parameters or 0) for names in families.values()]
    assert sorted(QUICK) == sorted(smallest)


@pytest.mark.parametrize("name", [name for name in LAYOUTS if name != "lag-llama"])
def test_the_family_of_every_config_is_recognised(name: str) -> None:
    assert family_of_config(LAYOUTS[name].config) == LAYOUTS[name].family


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_agrees_with_the_published_facts_and_names_its_sources(name: str) -> None:
    layout = LAYOUTS[name]
    check_published(layout, tensor_shapes(layout))
    assert layout.sources and layout.checks != Checks(None)


def test_a_config_and_a_file_have_exactly_the_published_bytes() -> None:
    layout = LAYOUTS["chronos-bolt-tiny"]
    assert len(layout.texts["config.json"]) == 1120
    assert predict_bytes(tensor_shapes(layout)) == 34_622_352


def test_lag_llama_has_the_number_of_parameters_of_a_third_of_its_file() -> None:
    shapes = tensor_shapes(LAYOUTS["lag-llama"])
    assert sum(map(math.prod, shapes.values())) == 2_449_299
    # The file has the weights and two moments, and 0.3 % of other entries.
    assert pytest.approx(3 * 4 * 2_449_299, rel=0.005) == 29_488_819


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("chronos-bolt-tiny", {"d_ff": 1000}, r"SHA-256 of config\.json: got .*, expected 278f0086"),
        ("chronos-bolt-mini", {"d_ff": 1024}, r"number of parameters: got .*, expected about 21,000,000"),
        ("moirai-base", {"num_layers": 10}, r"number of parameters: got .*, expected about 91,000,000"),
        ("lag-llama", {"n_layer": 7}, "number of tensors: got 65, expected 73"),
    ],
)
def test_a_layout_that_contradicts_a_published_fact_is_refused(
    name: str, changes: dict[str, int], message: str
) -> None:
    layout = dataclasses.replace(LAYOUTS[name], config={**LAYOUTS[name].config, **changes})
    with pytest.raises(LayoutError, match=f"{name}: {message}.*compare both with its files on the hub"):
        check_published(layout, tensor_shapes(layout))


def test_a_config_of_which_the_package_makes_no_network_is_one_line() -> None:
    layout = LAYOUTS["chronos-bolt-tiny"]
    broken = dataclasses.replace(layout, config={**layout.config, "chronos_config": {"next_version": 1}})
    with pytest.raises(LayoutError, match=r"the published config makes no network .*next_version"):
        tensor_shapes(broken)
