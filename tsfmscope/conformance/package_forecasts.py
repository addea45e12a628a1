"""Packages that have the network of a family: how each network is built, and how it forecasts.

Networks get our config and tensors. No package reads a checkpoint folder: some would instantiate what its config.json
names.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tsfmscope.conformance.verdict import demand
from tsfmscope.models.common import checkpoint_folder
from tsfmscope.models.types import TokenKind, Tokens

if TYPE_CHECKING:
    import torch

    from tsfmscope.models.base import Family
    from tsfmscope.series.types import Windows

LEVELS = (0.1, 0.5, 0.9)
# granite-tsfm's token of daily data, DEFAULT_FREQUENCY_MAPPING["D"]; 0 where the model has no such token.
DAILY = 8


@dataclass(frozen=True)
class Answer:
    """Forecast of a package.

    quantiles: [W, Q, H] at the levels. logits: [W, T, ids]. Both are None where the forecast is sampled.
    """

    quantiles: np.ndarray | None = None
    levels: tuple[float, ...] = ()
    logits: np.ndarray | None = None


def _read_pretrained(network_class: Any, model: Family, folder: Path) -> Any:
    return checkpoint_folder.load_network(network_class, folder, "cpu")


def _read_granite(network_class: Any, model: Any, folder: Path) -> Any:
    # Classes of granite-tsfm do not declare every key that they read.
    return checkpoint_folder.load_network(network_class, folder, "cpu", **model.config)


@dataclass(frozen=True)
class Package:
    """Package that has the network of a family.

    name: as pip installs it. network_class: "module:Class". run: forecasts windows with such a network.
    read: builds the network from our config and tensors of a folder. inner: the part of the network that has the names
    of ours. wants_all_steps: the network reads contexts of its full length only. first_rows: rows that it adds stand
    after ours, not in front of them. rows_first: its states are [T, W, d].
    """

    name: str
    network_class: str
    run: Callable[[Any, Family, Windows, Tokens], Answer]
    read: Callable[[Any, Family, Path], Any] = _read_pretrained
    inner: Callable[[Any], Any] = lambda network: network
    wants_all_steps: bool = False
    first_rows: bool = False
    rows_first: bool = False


def _past(windows: Windows) -> torch.Tensor:
    import torch

    return torch.from_numpy(windows.context)


def _stock_model(network: Any, model: Family, **options: Any) -> Any:
    """Return the package's class that forecasts, around the package's own network."""
    twin: Any = copy.copy(model)
    twin.network = network
    return twin.stock_model(**options)


def _bolt(network: Any, model: Family, windows: Windows, tokens: Tokens) -> Answer:
    pipeline = _stock_model(network, model)
    found, _ = pipeline.predict_quantiles(_past(windows), windows.horizon, quantile_levels=list(LEVELS))
    return Answer(found.permute(0, 2, 1).numpy(), LEVELS)


def _chronos_2(network: Any, model: Family, windows: Windows, tokens: Tokens) -> Answer:
    pipeline = _stock_model(network, model)
    found, _ = pipeline.predict_quantiles(_past(windows)[:, None], windows.horizon, quantile_levels=list(LEVELS))
    return Answer(np.stack([one[0].numpy().T for one in found]), LEVELS)


def _teacher_forced(network: Any, model: Family, windows: Windows, tokens: Tokens) -> Answer:
    """Run transformers' T5 on our ids; the ids of Chronos are those of its own tokenizer."""
    import torch

    ids, mask, decoder_ids = (torch.from_numpy(tokens.arrays[name]).long() for name in ("ids", "mask", "decoder_ids"))
    logits = network(input_ids=ids, attention_mask=mask, decoder_input_ids=decoder_ids).logits
    return Answer(logits=logits.numpy()) if model.softmax_head else Answer()


def _chronos_t5(network: Any, model: Family, windows: Windows, tokens: Tokens) -> Answer:
    ids, mask, _ = _stock_model(network, model).tokenizer.context_input_transform(_past(windows))
    own = tokens.arrays
    demand(
        np.array_equal(ids, own["ids"]) and np.array_equal(mask, own["mask"]), "the package's tokenizer makes other ids"
    )
    return _teacher_forced(network, model, windows, tokens)


def _timesfm(network: Any, model: Family, windows: Windows, tokens: Tokens, **options: Any) -> Answer:
    predictions = network(past_values=list(_past(windows)), **options).full_predictions.numpy()
    values = predictions[:, : windows.horizon, 1:].transpose(0, 2, 1)
    return Answer(values, tuple(network.config.quantiles))


def _timesfm_2(network: Any, model: Family, windows: Windows, tokens: Tokens) -> Answer:
    # 0 stands for data of days or shorter steps, such as these windows.
    return _timesfm(network, model, windows, tokens, freq=[0] * len(windows))


def _patchtst(network: Any, model: Family, windows: Windows, tokens: Tokens) -> Answer:
    """Return quantiles of the distribution whose samples `generate` draws, or the point at every level."""
    from scipy import stats

    output = network(past_values=_past(windows)[:, :, None])
    if not network.distribution_output:
        point = output.prediction_outputs[:, : windows.horizon, 0].numpy()
        return Answer(np.repeat(point[:, None], len(LEVELS), axis=1), LEVELS)
    *df, loc, scale = (part[..., 0].double().numpy() for part in output.prediction_outputs)
    kind = stats.t(df[0], loc, scale) if df else stats.norm(loc, scale)
    scaled = np.stack([kind.ppf(level) for level in LEVELS], axis=1)
    values = scaled * output.scale.double().numpy() + output.loc.double().numpy()
    return Answer(values[:, :, : windows.horizon], LEVELS)


def _moirai(module: Any, model: Family, windows: Windows, tokens: Tokens) -> Answer:
    forecaster, inputs = _uni2ts(module, model, windows)
    forecaster(**inputs, num_samples=1)
    return Answer()


def _moirai_2(module: Any, model: Family, windows: Windows, tokens: Tokens) -> Answer:
    forecaster, inputs = _uni2ts(module, model, windows)
    return Answer(forecaster(**inputs).numpy(), tuple(module.quantile_levels))


def _read_uni2ts(network_class: Any, model: Any, folder: Path) -> Any:
    from tsfmscope.models.moirai.checkpoint import load_network

    return load_network(folder, "cpu", model.schema)[0]


def _uni2ts(module: Any, model: Family, windows: Windows) -> tuple[Any, Mapping[str, Any]]:
    """Return the package's class around its module, and its inputs of windows without gaps."""
    import torch

    past = _past(windows)
    size = getattr(model, "patch_size", None)
    options = {"patch_size": size(windows.freq)} if callable(size) else {}
    forecaster = _stock_model(module, model, prediction_length=windows.horizon, context_length=past.shape[1], **options)
    observed = torch.ones_like(past, dtype=torch.bool)
    inputs = {"past_target": past[:, :, None], "past_observed_target": observed[:, :, None], "past_is_pad": ~observed}
    return forecaster, inputs


def _patchtst_fm(network: Any, model: Family, windows: Windows, tokens: Tokens) -> Answer:
    import torch

    output = network(list(_past(windows)), prediction_length=windows.horizon)
    values = torch.stack(list(output.quantile_outputs))[..., 0].numpy()
    return Answer(values, tuple(getattr(model, "levels", LEVELS)))


def _flowstate(network: Any, model: Family, windows: Windows, tokens: Tokens) -> Answer:
    past = _past(windows)[:, :, None]
    masked = int((tokens.kinds["encoder"] == TokenKind.MASK).sum(axis=1)[0])
    kept = tokens.kinds["encoder"].shape[1] - masked
    # A forecast runs the last layer for the last rows only; states are captured from this first run, of all rows.
    network.config.min_context = 1
    network.model(past[:, -kept:], batch_first=True, mask_n=masked)
    output = network(past, prediction_length=windows.horizon, batch_first=True)
    return Answer(output.quantile_outputs[..., 0].numpy(), tuple(getattr(model, "levels", LEVELS)))


def _ttm(network: Any, model: Family, windows: Windows, tokens: Tokens) -> Answer:
    past = _past(windows)[:, :, None]
    token = None
    if network.config.resolution_prefix_tuning:
        import torch

        token = torch.full((len(past),), DAILY if network.config.frequency_token_vocab_size > DAILY else 0)
    point = network(past, freq_token=token).prediction_outputs[:, : windows.horizon, 0].numpy()
    return Answer(point[:, None], (0.5,))


def _read_moment(network_class: Any, model: Any, folder: Path) -> Any:
    from tsfmscope.models.moment.checkpoint import saved_config
    from tsfmscope.models.moment.keys import UNUSED

    network = network_class(saved_config(model.config), model_kwargs={"task_name": "reconstruction"})
    different = network.load_state_dict(checkpoint_folder.read_weights(folder), strict=False)
    names = sorted({*different.missing_keys, *different.unexpected_keys} - set(UNUSED))
    demand(not names, f"momentfm's network and the files do not have the same tensors: {names[:5]}")
    return network


def _moment(pipeline: Any, model: Family, windows: Windows, tokens: Tokens) -> Answer:
    import torch

    past = _past(windows)[:, -pipeline.seq_len :]
    mask = torch.nn.functional.pad(torch.ones_like(past), (pipeline.seq_len - past.shape[1], 0))
    values = torch.nn.functional.pad(past, (pipeline.seq_len - past.shape[1], 0))
    output = pipeline.short_forecast(x_enc=values[:, None], input_mask=mask, forecast_horizon=windows.horizon)
    return Answer(output.forecast.numpy(), (0.5,))


_transformers = partial(Package, "transformers")
PACKAGES: Mapping[str, Package] = {
    "chronos-t5": Package("chronos-forecasting", "transformers:T5ForConditionalGeneration", _chronos_t5),
    "chronos-bolt": Package("chronos-forecasting", "chronos.chronos_bolt:ChronosBoltModelForForecasting", _bolt),
    "chronos-2": Package("chronos-forecasting", "chronos.chronos2.model:Chronos2Model", _chronos_2),
    "patchtst": _transformers("transformers:PatchTSTForPrediction", _patchtst, wants_all_steps=True),
    "timesfm": _transformers("transformers:TimesFmModelForPrediction", _timesfm_2),
    "timesfm-2.5": _transformers("transformers:TimesFm2_5ModelForPrediction", _timesfm),
    "t5-text": _transformers("transformers:T5ForConditionalGeneration", _teacher_forced),
    "moirai": Package("uni2ts", "uni2ts.model.moirai:MoiraiModule", _moirai, _read_uni2ts),
    "moirai-2": Package("uni2ts", "uni2ts.model.moirai2:Moirai2Module", _moirai_2, _read_uni2ts, first_rows=True),
    "patchtst-fm": Package(
        "granite-tsfm",
        "tsfm_public.models.patchtst_fm.modeling_patchtst_fm:PatchTSTFMForPrediction",
        _patchtst_fm,
        _read_granite,
        inner=lambda network: network.backbone,
    ),
    "flowstate": Package(
        "granite-tsfm",
        "tsfm_public:FlowStateForPrediction",
        _flowstate,
        _read_granite,
        inner=lambda network: network.model,
        rows_first=True,
    ),
    "moment": Package("momentfm", "momentfm:MOMENTPipeline", _moment, _read_moment),
    "ttm": Package(
        "granite-tsfm",
        "tsfm_public.models.tinytimemixer:TinyTimeMixerForPrediction",
        _ttm,
        _read_granite,
        wants_all_steps=True,
    ),
}
