"""The sampler of the family chronos-t5 for a `ChronosPipeline` of the package chronos-forecasting."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from chronos import ChronosPipeline
from chronos.chronos import ChronosModel
from transformers import T5ForConditionalGeneration

from tsfmscope.models.t5.decoding import sample_ids


def fast(pipeline: ChronosPipeline) -> ChronosPipeline:
    """Return a pipeline with the network of a stock `ChronosPipeline`, which samples in less time.

    It is a `ChronosPipeline` with the same methods, arguments and results. Its samples have the distribution of the
    stock pipeline's, but are others. The keys and values of cross-attention are computed and read once per series
    instead of once per sample path, and caches are allocated once. torch's global generator decides the samples, as in
    the stock pipeline (`torch.manual_seed`).

    Deviations: of ids whose logits tie at rank `top_k`, as many are kept as fit; transformers keeps all. Settings of
    the network's `generation_config` are not read.

    Args:
        pipeline: a `chronos.ChronosPipeline` of a T5 network, on any device. It is not changed, and its network is
            shared, not copied.

    Returns:
        The pipeline. Its `predict` raises ValueError for a `temperature`, `top_k` or `top_p` out of range.

    Raises:
        TypeError: `pipeline` is another object, such as a ChronosBoltPipeline or Chronos2Pipeline, which do not
            sample, or its network is no T5.
    """
    if not isinstance(pipeline, ChronosPipeline):
        raise TypeError(
            f"pipeline: got {type(pipeline).__name__}, expected a chronos.ChronosPipeline (Chronos-T5), the only "
            "pipeline of chronos that draws sample paths; load it with ChronosPipeline.from_pretrained"
        )
    network = pipeline.model.model
    if not isinstance(network, T5ForConditionalGeneration):
        raise TypeError(
            f"pipeline: got a ChronosPipeline with a {type(network).__name__}, expected a T5ForConditionalGeneration; "
            "other networks have only the stock sampler"
        )
    return ChronosPipeline(tokenizer=pipeline.tokenizer, model=FastChronosModel(pipeline.model.config, network))


class FastChronosModel(ChronosModel):
    """`ChronosModel` whose `forward` calls the sampler of the family chronos-t5."""

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        prediction_length: int | None = None,
        num_samples: int | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
    ) -> torch.Tensor:
        """Return sampled ids [series, sample, step]; what is None is as in the config of the model."""
        given = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
        config = replace(self.config, **{name: value for name, value in given.items() if value is not None})
        _check_settings(config)
        samples = self.config.num_samples if num_samples is None else num_samples
        steps = self.config.prediction_length if prediction_length is None else prediction_length
        uniforms = torch.rand(len(input_ids), samples, steps, dtype=torch.float64)
        return sample_ids(self.model, input_ids, attention_mask, uniforms, config)


def _check_settings(config: Any) -> None:
    """Raise ValueError for settings that transformers refuses too."""
    if not config.temperature > 0:
        raise ValueError(f"temperature: got {config.temperature}, expected a number above 0")
    if config.top_k < 0:
        raise ValueError(f"top_k: got {config.top_k}, expected at least 1, or 0 for all ids")
    if not 0 <= config.top_p <= 1:
        raise ValueError(f"top_p: got {config.top_p}, expected a number in [0, 1]")
