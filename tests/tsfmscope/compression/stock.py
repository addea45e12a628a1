"""What a user without this project does with a checkpoint: as a script it imports the families' own packages alone.

`python -I stock.py FAMILY=FOLDER ... OUT.npz` forecasts with each.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

STEPS, HORIZON, SAMPLES = 48, 12, 5


def context() -> torch.Tensor:
    """Three random walks."""
    values = np.random.default_rng(7).normal(size=(3, STEPS)).cumsum(axis=1).astype(np.float32)
    return torch.from_numpy(values)


def pixels(network: Any) -> torch.Tensor:
    side = network.config.image_size
    return torch.from_numpy(np.random.default_rng(8).normal(size=(2, 3, side, side)).astype(np.float32))


def chronos_t5(pipeline: Any) -> dict[str, Any]:
    """Logits of the first two steps, and seeded sample paths."""
    ids, mask, _ = pipeline.tokenizer.context_input_transform(context())
    read = torch.tensor([[0, 40]] * len(ids))
    logits = pipeline.model.model(input_ids=ids, attention_mask=mask, decoder_input_ids=read).logits
    torch.manual_seed(0)
    return {"logits": logits, "paths": pipeline.predict(context(), prediction_length=HORIZON, num_samples=SAMPLES)}


def quantiles(pipeline: Any) -> dict[str, Any]:
    found, mean = pipeline.predict_quantiles(context()[:, None], prediction_length=HORIZON, quantile_levels=[0.1, 0.5])
    return {"quantiles": torch.stack(list(found)), "mean": torch.stack(list(mean))}


def bolt(pipeline: Any) -> dict[str, Any]:
    found, mean = pipeline.predict_quantiles(context(), prediction_length=HORIZON, quantile_levels=[0.1, 0.5])
    return {"quantiles": found, "mean": mean}


def patchtst(network: Any) -> dict[str, Any]:
    answer = network(past_values=context()[:, :, None])
    return {f"parameter {number}": one for number, one in enumerate(answer.prediction_outputs)}


def timesfm(network: Any) -> dict[str, Any]:
    return {"all": network(past_values=list(context()), freq=[0, 1, 2]).full_predictions}


def timesfm_25(network: Any) -> dict[str, Any]:
    return {"all": network(past_values=list(context())).full_predictions}


def moirai(forecaster: Any) -> dict[str, Any]:
    """Seeded sample paths."""
    inputs = {
        "past_target": context()[:, :, None],
        "past_observed_target": torch.ones(3, STEPS, 1, dtype=torch.bool),
        "past_is_pad": torch.zeros(3, STEPS, dtype=torch.bool),
    }
    torch.manual_seed(0)
    return {"paths": forecaster(**inputs, num_samples=SAMPLES)}


def moirai_2(forecaster: Any) -> dict[str, Any]:
    observed = torch.ones(3, STEPS, 1, dtype=torch.bool)
    inputs = {"past_target": context()[:, :, None], "past_observed_target": observed}
    return {"quantiles": forecaster(**inputs, past_is_pad=torch.zeros(3, STEPS, dtype=torch.bool))}


def t5(network: Any) -> dict[str, Any]:
    ids = torch.arange(3, 27).reshape(2, 12)
    return {"logits": network(input_ids=ids, decoder_input_ids=ids[:, :4]).logits}


def vit(network: Any) -> dict[str, Any]:
    return {"states": network.vit(pixels(network)).last_hidden_state}


def visionts(network: Any) -> dict[str, Any]:
    tokens = (network.config.image_size // network.config.patch_size) ** 2
    return {"pixels": network(pixels(network), noise=torch.linspace(0, 1, tokens).expand(2, tokens)).logits}


def _chronos(name: str) -> Callable[[str], Any]:
    def load(folder: str) -> Any:
        import chronos

        return getattr(chronos, name).from_pretrained(folder)

    return load


def _transformers(name: str) -> Callable[[str], Any]:
    def load(folder: str) -> Any:
        import transformers

        return getattr(transformers, name).from_pretrained(folder).eval()

    return load


def _moirai(folder: str) -> Any:
    from uni2ts.model.moirai import MoiraiForecast, MoiraiModule

    sizes = {"prediction_length": HORIZON, "context_length": STEPS, "patch_size": 8}
    none = {"feat_dynamic_real_dim": 0, "past_feat_dynamic_real_dim": 0}
    return MoiraiForecast(module=MoiraiModule.from_pretrained(folder), target_dim=1, **sizes, **none).eval()


def _moirai_2(folder: str) -> Any:
    from uni2ts.model.moirai2 import Moirai2Forecast, Moirai2Module

    none = {"feat_dynamic_real_dim": 0, "past_feat_dynamic_real_dim": 0, "target_dim": 1}
    module = Moirai2Module.from_pretrained(folder)
    return Moirai2Forecast(module=module, prediction_length=HORIZON, context_length=STEPS, **none).eval()


STOCK: dict[str, tuple[Callable[[str], Any], Callable[[Any], dict[str, Any]]]] = {
    "chronos-t5": (_chronos("ChronosPipeline"), chronos_t5), "chronos-bolt": (_chronos("ChronosBoltPipeline"), bolt),
    "chronos-2": (_chronos("Chronos2Pipeline"), quantiles),
    "patchtst": (_transformers("PatchTSTForPrediction"), patchtst),
    "timesfm": (_transformers("TimesFmModelForPrediction"), timesfm),
    "timesfm-2.5": (_transformers("TimesFm2_5ModelForPrediction"), timesfm_25), "moirai": (_moirai, moirai),
    "moirai-2": (_moirai_2, moirai_2), "wavetoken": (_transformers("T5ForConditionalGeneration"), t5),
    "t5-text": (_transformers("T5ForConditionalGeneration"), t5),
    "vit": (_transformers("ViTForMaskedImageModeling"), vit),
    "visionts": (_transformers("ViTMAEForPreTraining"), visionts),
}  # fmt: skip


def answer(family: str, forecaster: Any) -> dict[str, np.ndarray]:
    """What the forecaster answers, by name."""
    with torch.no_grad():
        return {name: one.double().numpy() for name, one in STOCK[family][1](forecaster).items()}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    *named, out = sys.argv[1:]
    found = {}
    for family, _, folder in (one.partition("=") for one in named):
        for name, values in answer(family, STOCK[family][0](folder)).items():
            found[f"{family}/{name}"] = values
    if ours := [name for name in sys.modules if name.partition(".")[0] == "tsfmscope"]:
        sys.exit(f"imported {ours}")
    np.savez(out, **found)
