"""Against the chronos package, and loops written out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from chronos import BaseChronosPipeline, ChronosBoltPipeline

from tsfmscope.tasks.models.chronos_bolt import ChronosBolt
from tsfmscope.tasks.models.types import TokenKind
from tsfmscope.tasks.series.types import Windows

Make = Callable[..., Windows]


def hard(windows: Windows) -> Windows:
    """Rows with a gap, a constant, all missing, one step and a missing patch in the middle."""
    context = windows.context
    context[0, :7] = np.nan
    context[1] = 3.0
    context[2] = np.nan
    context[3, :-1] = np.nan
    context[4, 16:24] = np.nan
    windows.future[0, 3] = np.nan
    return windows


def test_a_window_worked_by_hand(bolt: ChronosBolt, windows_of: Callable[..., Windows]) -> None:
    context = np.r_[np.full(10, np.nan), 1.0, 3.0]  # 12 steps: patches of 8, padded on the left
    tokens = bolt.tokenize(windows_of(context[None], np.zeros((1, 4))))
    assert tokens.arrays["loc"].tolist() == [2.0]
    assert tokens.arrays["scale"].tolist() == [1.0]
    assert tokens.arrays["patches"].tolist() == [[[0.0] * 8, [0.0] * 6 + [-1.0, 1.0]]]
    assert tokens.arrays["masks"].tolist() == [[[False] * 8, [False] * 6 + [True, True]]]
    assert tokens.kinds["encoder"].tolist() == [[TokenKind.PADDING, TokenKind.OBSERVATION, TokenKind.REG]]
    assert tokens.kinds["decoder"].tolist() == [[TokenKind.FUTURE]]
    assert dict(tokens.types) == {}


@pytest.mark.parametrize("reg", [True, False])
def test_the_last_encoder_state_is_the_packages_embedding(windows: Make, reg: bool) -> None:
    config = {"d_model": 16, "d_ff": 24, "d_kv": 6, "num_heads": 3, "num_layers": 3, "num_decoder_layers": 2}
    config |= {"context_length": 48, "prediction_length": 12, "input_patch_size": 8, "input_patch_stride": 8}
    family = ChronosBolt.new(config | {"initializer_factor": 1.0, "use_reg_token": reg}, seed=2)
    made = hard(windows(count=8, context=60)) if reg else windows(count=8, context=60)
    embedded, (loc, scale) = ChronosBoltPipeline(family.network).embed(torch.from_numpy(made.context))
    tokens = family.tokenize(made)
    found = {(s.stack, s.layer, s.normed): s.states for s in family.hidden_states(tokens)}
    np.testing.assert_allclose(found["encoder", 3, True], embedded, atol=1e-5)
    np.testing.assert_array_equal(tokens.arrays["loc"], loc)
    np.testing.assert_array_equal(tokens.arrays["scale"], scale)
    assert (TokenKind.REG in tokens.kinds["encoder"]) == reg


def test_every_layer_is_that_of_transformers(bolt: ChronosBolt, windows: Make) -> None:
    made = hard(windows(count=6))
    network = bolt.network
    with torch.no_grad():
        _, _, embedded, mask = network.encode(torch.from_numpy(made.context))
        encoder = network.encoder(inputs_embeds=embedded, attention_mask=mask, output_hidden_states=True)
        decoder = network.decoder(
            input_ids=torch.zeros(6, 1, dtype=torch.long),
            encoder_hidden_states=encoder.last_hidden_state,
            encoder_attention_mask=mask,
            output_hidden_states=True,
        )
    theirs = {"encoder": encoder.hidden_states, "decoder": decoder.hidden_states}
    for layer in bolt.hidden_states(bolt.tokenize(made)):
        states = torch.from_numpy(layer.states)
        if layer.layer == bolt.layers[layer.stack] and not layer.normed:
            states = getattr(network, layer.stack).final_layer_norm(states).detach()
        np.testing.assert_allclose(states, theirs[layer.stack][layer.layer], atol=1e-5)


def test_a_saved_model_is_a_bolt_pipeline(bolt: ChronosBolt, windows: Make, tmp_path: Path) -> None:
    bolt.save(tmp_path)
    pipeline = BaseChronosPipeline.from_pretrained(tmp_path)
    assert isinstance(pipeline, ChronosBoltPipeline)
    context = torch.from_numpy(windows().context)
    assert torch.equal(pipeline.embed(context)[0], ChronosBoltPipeline(bolt.network).embed(context)[0])


@pytest.mark.parametrize("horizon", [5, 12])
@pytest.mark.parametrize("levels", [(0.1, 0.5, 0.9), (0.25, 0.5, 0.95)])
def test_a_forecast_is_that_of_the_package(
    bolt: ChronosBolt, windows: Make, horizon: int, levels: tuple[float, ...]
) -> None:
    made = hard(windows(count=6, context=60, horizon=horizon))
    pipeline = ChronosBoltPipeline(bolt.network)
    theirs, _ = pipeline.predict_quantiles(torch.from_numpy(made.context), horizon, quantile_levels=list(levels))
    ours = bolt.forecast(made, levels=levels, seeds=[0] * 6)
    np.testing.assert_allclose(ours.values, theirs.permute(0, 2, 1), rtol=1e-4, atol=1e-5)


def test_a_long_forecast_recurs_over_the_quantiles(bolt: ChronosBolt, windows: Make) -> None:
    made = windows(count=2, horizon=20)
    ours = bolt.forecast(made, seeds=[0, 0]).values
    context = torch.from_numpy(made.context)
    with torch.no_grad():
        first = bolt.network(context=context).quantile_preds  # [W, 9, 12]
        for w in range(2):
            paths = torch.stack([torch.cat((context[w], first[w, q]))[-48:] for q in range(9)])
            second = bolt.network(context=paths).quantile_preds.reshape(81, 12).numpy()
            np.testing.assert_allclose(ours[w, :, :12], first[w], rtol=1e-4, atol=1e-5)
            wanted = np.quantile(second, np.arange(1, 10) / 10, axis=0)[:, :8]
            np.testing.assert_allclose(ours[w, :, 12:], wanted, rtol=1e-4, atol=1e-4)


def test_the_loss_is_the_quantile_loss_of_the_scaled_future(bolt: ChronosBolt, windows: Make) -> None:
    made = windows(count=4)
    made.future[1, 2:5] = np.nan
    context, future = torch.from_numpy(made.context), torch.from_numpy(made.future)
    with torch.no_grad():
        predicted = bolt.network(context=context).quantile_preds.double().numpy()
    total = 0.0
    for w in range(4):
        scale = made.context[w].std(dtype=float)
        for q, level in enumerate(np.arange(1, 10) / 10):
            for h in range(12):
                if not np.isnan(made.future[w, h]):
                    gap = (made.future[w, h] - predicted[w, q, h]) / scale
                    total += 2 * max(level * gap, (level - 1) * gap)
    # the package averages over the quantiles and sums over the horizon; missing steps count as 0
    assert bolt.loss(context, future).item() == pytest.approx(total / (4 * 9), rel=1e-4)
