"""The profile `paper` reduced to what two cores run in a rehearsal of its stages."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from tsfmscope.tasks.rehearsal.layouts import LAYOUTS
from tsfmscope.tasks.series.catalog import CATALOG

# One size of each compression method of the profile.
METHODS = ("svd-0.073", "joint-0.073", "aware-0.073", "both-0.073", "epsilon-0.1", "share-0.073")
# Model of the profile -> the released layout that takes its place in the quick form: the smallest of its family.
SMALLEST: Mapping[str, str] = {
    "chronos-t5-base": "chronos-t5-tiny",
    "chronos-bolt-base": "chronos-bolt-tiny",
    "moirai-small": "moirai-small",
    "lag-llama": "lag-llama",
    "lag-llama-rope": "lag-llama",
}
# The only condition of the studies of all models; the studies of single figures keep theirs.
CONDITION = "context-500"
# Data sets for calibration; the quick form has no text.
CALIBRATION = ("seasonality-1", "trend-1", "english")
TEXT_DATASET, TEXT_CONDITION = "english", "text-512"
# Kept tokens of a layer, and sample paths of a forecast.
ROWS, SAMPLES = 32, 4
# Longest context and horizon in steps. With a context of 500, four stages of chronos-t5-large alone take half an hour
# on two cores. With this horizon, one window of most data sets has ROWS decoder tokens.
CONTEXT, HORIZON = 256, 32
# Settings that replace keys of the profile's blocks.
SMALLER: Mapping[str, Mapping[str, Any]] = {
    "datasets": {"max_series": 1},
    # One more than max_series, which does not limit them.
    "kernelsynth": {"series": 2},
    "tokens": {"rows": ROWS},
    "embeddings": {"rows": ROWS},
    "geometry": {"rows": ROWS, "permutations": 4, "restarts": 2, "repeats": 2},
    "forecasts": {"samples": SAMPLES},
    # Periods of at most 48 steps, since a context holds two. With 512 steps, chronos-t5-large takes minutes.
    "checkpoints": {"skill": {"samples": SAMPLES, "context": 96}},
    # The derivatives of the lemma take 44 s in a cell of chronos-bolt-base, 16 times those of half the width.
    "heads": {"rows": ROWS, "lemma": {"windows": 0}},
    "statistics": {"permutations": 999},
    "theory": {"seeds": 2, "instances": 20},
}


def reduced_profile(block: Mapping[str, Any], *, quick: bool) -> dict[str, Any]:
    """Return the profile with one or two series per data set, few tokens and sample paths, and smaller stages.

    All studies are kept. Those of all models have the condition CONDITION only, those of single figures all of theirs.
    No context is longer than CONTEXT steps, whatever the name of its condition, and no horizon of a data set than
    HORIZON.
    quick: with the models of SMALLEST and PatchTST only, and without text.
    """
    reduced = copy.deepcopy(dict(block))
    layouts = {name: name for name in reduced["models"] if name in LAYOUTS} | {"lag-llama-rope": "lag-llama"}
    layouts = dict(SMALLEST) if quick else layouts
    # PatchTST has no layout: its checkpoint is committed here.
    models = {name: model for name, model in reduced["models"].items() if name in layouts or name == "patchtst"}
    for name, layout in layouts.items():
        models[name]["ref"] = f"hub:{LAYOUTS[layout].repository}"
    reduced["models"] = models
    for study in reduced["studies"].values():
        if study["models"] == "all":
            study["conditions"] = [CONDITION]
        else:
            study["models"] = [name for name in study["models"] if _is_kept(name, models)]
    for name, smaller in SMALLER.items():
        reduced[name] |= smaller
    if quick:
        _drop_text(reduced)
        reduced["heads"]["lemma"] = {"tokens": [2], "windows": 1, "layers": "ends"}
    for name, data_set in reduced["datasets"]["sets"].items():
        data_set["horizon"] = min(data_set.get("horizon") or CATALOG[name].horizon, HORIZON)
    for condition in reduced["conditions"].values():
        condition["context"] = min(condition["context"], CONTEXT)
    compression = reduced["compression"]
    compression["methods"] = {name: compression["methods"][name] for name in METHODS}
    kept = [name for name in CALIBRATION if name in reduced["datasets"]["sets"]]
    compression["calibration"] |= {"datasets": kept, "windows": 4, "context": CONTEXT}
    compression["fidelity"]["windows"] = 4
    del reduced["resources"]  # of GPUs
    return reduced


def _is_kept(model: str, models: Mapping[str, Any]) -> bool:
    base, at, method = model.partition("@")
    return base in models and (not at or method in METHODS)


def _drop_text(block: dict[str, Any]) -> None:
    del block["datasets"]["sets"][TEXT_DATASET], block["conditions"][TEXT_CONDITION]
    for study in block["studies"].values():
        for key, text in (("datasets", TEXT_DATASET), ("conditions", TEXT_CONDITION)):
            if study[key] != "all":
                study[key] = [name for name in study[key] if name != text]
