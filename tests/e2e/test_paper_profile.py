"""All stages of the profile `paper` on released layouts with random weights, served by a hub on this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.checkout import ROOT, checkout
from tsfmscope.tasks.local_hub import LocalHub, Repository, serving
from tsfmscope.tasks.rehearsal.layouts import LAYOUTS
from tsfmscope.tasks.rehearsal.steps import write_step

# Model of the profile -> the released layout that takes its place: the smallest of its family.
SMALLEST = {
    "chronos-t5-base": "chronos-t5-tiny",
    "chronos-bolt-base": "chronos-bolt-tiny",
    "moirai-small": "moirai-small",
    "lag-llama": "lag-llama",
    "lag-llama-rope": "lag-llama",
}
# The trained PatchTST has no layout on the hub.
MODELS = {*SMALLEST, "patchtst"}
# One method each of those that the profile has at seven sizes.
METHODS = ("svd-0.237", "joint-0.237", "aware-0.237", "both-0.237", "epsilon-0.1")


def reduced(block: dict[str, Any]) -> dict[str, Any]:
    """Return the profile with one series per data set, fewer tokens and MODELS only; all studies are kept."""
    models = {name: model for name, model in block["models"].items() if name in MODELS}
    for name, layout in SMALLEST.items():
        models[name]["ref"] = f"hub:{LAYOUTS[layout].repository}"
    for study in block["studies"].values():
        if study["models"] != "all":
            kept = (name.partition("@") for name in study["models"])
            study["models"] = [
                base + at + method for base, at, method in kept if base in models and (not at or method in METHODS)
            ]
    table = block["studies"]["compression-table2"]
    table |= {"datasets": [name for name in table["datasets"] if name != "english"], "conditions": ["context-500"]}
    del block["datasets"]["sets"]["english"]
    del block["conditions"]["text-512"]
    block["datasets"]["max_series"] = 1
    block["compression"]["methods"] = {name: block["compression"]["methods"][name] for name in METHODS}
    block["compression"]["calibration"] |= {"datasets": ["seasonality-1", "trend-1"], "windows": 4}
    block["compression"]["fidelity"]["windows"] = 4
    sizes = {"kernelsynth": {"series": 8}, "tokens": {"rows": 256}, "embeddings": {"rows": 256}}
    sizes |= {"geometry": {"rows": 256, "cai": "last"}, "statistics": {"permutations": 999}}
    heads = block["heads"] | {"rows": 64, "lemma": {"tokens": [2], "windows": 1, "layers": "ends"}}
    theory = {"seeds": 2, "instances": 20}
    block.pop("resources", None)  # of GPUs
    return block | sizes | {"models": models, "heads": heads, "theory": theory}


@pytest.mark.slow
@pytest.mark.long
def test_every_stage_of_the_paper_profile_runs_on_released_layouts(tmp_path: Path) -> None:
    data = os.environ.get("TSFMSCOPE_DATA")
    made = checkout(tmp_path / "repository", Path(data) if data else None)
    block = reduced(yaml.safe_load((ROOT / "params" / "paper.yaml").read_text()))
    (made.folder / "params.yaml").write_text(yaml.safe_dump(block, sort_keys=False))
    with serving(LocalHub()) as hub:
        for name in set(SMALLEST.values()):
            write_step(LAYOUTS[name], tmp_path / name, seed=0)
            hub.repositories[LAYOUTS[name].repository] = Repository.of_folder(tmp_path / name)
        stages = made.repro(HF_ENDPOINT=hub.endpoint, HF_HOME=str(tmp_path / "hub"), HF_HUB_OFFLINE="0")
    assert {"tokens", "embeddings", "geometry", "spectra", "heads", "compression", "forecasts", "report"} <= set(stages)
    assert made.sql("select * from failures") == []
    measured = {row["model"] for row in made.sql("select distinct model from geometry")}
    assert measured == MODELS
    layers = made.sql("select max(layer) as last from geometry where model = 'chronos-t5-base'")
    assert layers == [{"last": LAYOUTS["chronos-t5-tiny"].config["num_layers"]}]
    compressed = {row["model"] for row in made.sql("select distinct model from compression")}
    assert compressed == {f"chronos-t5-base@{method}" for method in METHODS}
