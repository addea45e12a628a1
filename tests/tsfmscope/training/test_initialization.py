"""Models that are pretrained with narrower heads begin with the family's own law, save, load and forecast."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tasks.job import Job, Task
from tasks.pretraining import pretrain
from tsfmscope.compression.options import HeadRanks
from tsfmscope.compression.schedules import Product, attention_widths, merge_factors
from tsfmscope.errors import ModelError
from tsfmscope.models.registry import family_class, snapshots
from tsfmscope.series.types import Windows
from tsfmscope.training.initialization import start
from tsfmscope.training.options import Recipe

SHAPE = {"d_model": 16, "d_ff": 16, "d_kv": 8, "num_heads": 2, "num_layers": 3, "num_decoder_layers": 2}
COMMON = {**SHAPE, "context_length": 32, "prediction_length": 8, "dropout_rate": 0.0}
CONFIGS: dict[str, dict[str, Any]] = {
    "chronos-t5": {**COMMON, "n_tokens": 64},
    "chronos-bolt": {**COMMON, "input_patch_size": 8, "input_patch_stride": 8},
}
FLOW = {"flow": {"first": 1.0, "growth": 1.0}}


def recipe(family: str, **changes: Any) -> dict[str, Any]:
    return {
        "family": family, "config": CONFIGS[family], "steps": 4, "batch_steps": 160, "learning_rate": 0.01,
        "weight_decay": 0.0, "warm_up": 0, "contexts": [32], "horizon": 8, "futures": [], "min_past": 8,
        "mixture": {"kernelsynth": 0.5, "tsmixup": 0.5}, "pool": 4, "length": 128, "seed": 0, "log_every": 2,
        "save_every": 2,
    } | changes  # fmt: skip


def begin(recipe: Mapping[str, Any], embedding: Path | None = None) -> Any:
    return start(Recipe.model_validate(recipe), embedding)


def train(folder: Path, family: str, embedding: dict[str, str] | None = None, **changes: Any) -> Any:
    extra = {} if embedding is None else {"embedding": embedding}
    job = Job(
        Task("pretrain", 1, "tasks.pretraining:pretrain"), {"model": "m", "recipe": recipe(family, **changes), **extra}
    )
    result = pretrain(job, folder, None)
    return job, result


@pytest.mark.parametrize(("schedule", "expected"), [
    ({"flat": 3}, {"encoder.1.self": 3, "encoder.3.self": 3, "decoder.2.self": 3, "decoder.2.cross": 3}),
    (FLOW, {"encoder.1.self": 1, "encoder.3.self": 3, "decoder.2.self": 2, "decoder.2.cross": 2}),
    ({"flow": {"first": 1.0, "growth": 1.0, "cross_offset": True, "origin": 1}},
        {"encoder.3.self": 3, "decoder.1.self": 1, "decoder.1.cross": 4, "decoder.2.cross": 5}),
    ({"flow": {"first": 3.0, "growth": 1.0, "rounding": "power_of_two", "origin": 2}},
        {"encoder.1.self": 8, "encoder.2.self": 8, "encoder.3.self": 16, "decoder.1.cross": 8}),
    (  # 4 + (8 - 4) (l - 1)^0.5 / 2^0.5 over 2 heads; half the width where none is named
        {"guideline": {"smallest": 4.0, "bend": 0.5}},
        {"encoder.1.self": 2, "encoder.2.self": math.ceil((4 + 4 / 2**0.5) / 2), "encoder.3.self": 4},
    ),
])  # fmt: skip
def test_every_attention_layer_has_the_rank_of_its_schedule(schedule: Any, expected: dict[str, int]) -> None:
    layers = list(family_class("chronos-t5").new(CONFIGS["chronos-t5"], seed=0).attentions())
    found = attention_widths(HeadRanks.model_validate(schedule).schedule, layers)
    assert list(found) == [layer.name for layer in layers] and len(found) == 3 + 2 * 2
    assert {name: found[name] for name in expected} == expected


VISIONTS = {"image_size": 16, "patch_size": 4, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3}
VISIONTS |= {"num_attention_heads": 2, "decoder_hidden_size": 12, "decoder_intermediate_size": 12, "periodicity": 7}
VISIONTS |= {"decoder_num_hidden_layers": 2, "decoder_num_attention_heads": 2}


@pytest.mark.parametrize(("schedule", "encoder", "decoder"), [
    ({"flow": {"first": 1.0, "growth": 1.0}}, [1, 2, 3], [1, 2]),
    ({"flow": {"first": 1.0, "growth": 1.0, "cross_offset": True}}, [1, 2, 3], [1, 2]),  # no cross-attention
    ({"flat": 2}, [2, 2, 2], [2, 2]),
    ({"guideline": {"smallest": 2.0, "bend": 1.0}}, [1, 3, 4], [1, 3]),  # to half of 16, and half of 12, over 2
])  # fmt: skip
def test_a_decoder_of_which_nothing_is_embedded_is_as_deep_and_wide_as_its_attention(
    schedule: Any, encoder: list[int], decoder: list[int]
) -> None:
    """VisionTS': it holds no states that are looked at, so `layers` does not tell of it."""
    model = begin(recipe("chronos-t5", heads=schedule) | {"family": "visionts", "config": VISIONTS})
    assert "decoder" not in model.layers
    widths = {layer.name: layer.widths for layer in model.attentions()}
    named = {f"encoder.{at}.self": rank for at, rank in enumerate(encoder, start=1)}
    named |= {f"decoder.{at}.self": rank for at, rank in enumerate(decoder, start=1)}
    assert widths == {name: (rank, rank) for name, rank in named.items()}


def test_the_guideline_s_ranks_of_whole_matrices_are_divided_among_heads_where_each_has_factors_of_its_own() -> None:
    """Width 16, 2 heads, from 2 to 6: a matrix that all heads share is of rank 2, 4, 6; heads are half as wide."""
    said = {"guideline": {"smallest": 2.0, "largest": 6.0, "bend": 1.0}}
    shared = begin(recipe("chronos-t5", heads={**said, "factors": "shared"}))
    narrow = begin(recipe("chronos-t5", heads=said))
    for at, rank in ((1, 2), (2, 4), (3, 6)):
        layers = [{one.name: one for one in model.attentions()}[f"encoder.{at}.self"] for model in (shared, narrow)]
        assert layers[0].linear("q").parametrizations.weight[0].rank == rank
        assert np.linalg.matrix_rank(layers[0].linear("q").weight.detach().numpy(), tol=1e-4) == rank
        assert layers[1].widths == (rank // 2, rank // 2)


def test_layers_of_other_kinds_of_attention_stay_whole() -> None:
    whole = {one.name: one for one in begin(recipe("chronos-t5")).attentions()}
    for kinds in (["cross"], ["self"], ["self", "cross"]):
        said = {"flat": 3, "attention": kinds}
        narrow = begin(recipe("chronos-t5", heads=said))
        for one in narrow.attentions():
            assert one.widths == ((3, 3) if one.kind in kinds else (8, 8))
            if one.kind not in kinds:
                assert np.array_equal(one.read().q, whole[one.name].read().q)
        assert narrow.compression["ranks"] == said
        shared = begin(recipe("chronos-t5", heads={**said, "factors": "shared"}))
        factors = {one.name: hasattr(one.linear("q"), "parametrizations") for one in shared.attentions()}
        assert factors == {name: name.split(".")[-1] in kinds for name in whole}


def test_ranks_of_which_none_is_narrower_than_a_head_are_refused() -> None:
    """They trained a dense model under a narrow name. One as wide as the heads is a control; a flow may end so."""
    width = max(max(layer.widths) for layer in begin(recipe("chronos-t5")).attentions())
    with pytest.raises(ValueError, match=rf"ranks of at least {width + 1}, expected some of at most {width}"):
        begin(recipe("chronos-t5", heads={"flat": width + 1}))
    begin(recipe("chronos-t5", heads={"flat": width}))
    begin(recipe("chronos-t5", heads={"flow": {"first": width - 1, "growth": 3.0}}))


def test_a_kind_of_attention_that_the_family_lacks_is_named() -> None:
    with pytest.raises(ValueError, match=r"heads.attention: got \['time'\], expected some of \['cross', 'self'\]"):
        begin(recipe("chronos-t5", heads={"flat": 3, "attention": ["self", "time"]}))


@pytest.mark.parametrize("schedule", [{"flat": 2, "flow": FLOW["flow"]}, {"share": 0.5}, {}])
def test_what_is_no_schedule_is_refused(schedule: Any) -> None:
    with pytest.raises(ValueError, match=r"expected one of flow, guideline, flat|Extra inputs"):
        HeadRanks.model_validate(schedule)
    with pytest.raises(ValueError, match="layers\n  Extra inputs are not permitted"):
        begin(recipe("chronos-t5", heads={"flow": {"first": 3, "growth": 1, "layers": 2}}))


@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_heads_keep_the_law_of_the_full_width_and_all_else_is_as_it_was(family: str) -> None:
    whole, narrow = begin(recipe(family)), begin(recipe(family, heads={"flat": 3}))
    for one, other in zip(whole.attentions(), narrow.attentions(), strict=True):
        full, part = one.read(), other.read()
        assert part.widths == (3, 3) and other.scale == one.scale
        assert np.array_equal(part.q, full.q[:, :3]) and np.array_equal(part.o, full.o[:, :, :3])
    apart = {name for one in ("q", "k", "v", "o") for name in whole.network.state_dict() if f"ttention.{one}." in name}
    for name, tensor in whole.network.state_dict().items():
        if name not in apart:
            assert torch.equal(tensor, narrow.network.state_dict()[name]), name


@pytest.mark.parametrize("family", sorted(CONFIGS))
@pytest.mark.parametrize("heads", [FLOW, {**FLOW, "factors": "shared"}], ids=["head", "shared"])
def test_a_model_with_low_ranks_trains_saves_loads_and_forecasts(family: str, heads: Any, tmp_path: Path) -> None:
    _, result = train(tmp_path, family, heads=heads, snapshots=[0, 3])
    assert [row["step"] for row in result.rows] == [2, 4] and result.tokens > 0
    for folder in (tmp_path, *snapshots(tmp_path).values()):
        model = family_class(family).load(folder)
        ranks = attention_widths(HeadRanks.model_validate(heads).schedule, list(model.attentions()))
        for attention in model.attentions():
            read = attention.read()
            wide = 8 if "factors" in heads else ranks[attention.name]
            assert read.widths == (wide, wide)
            whole = read.v.reshape(-1, read.v.shape[-1])
            assert np.linalg.matrix_rank(whole, tol=1e-4 * np.linalg.norm(whole)) <= shared_rank(
                heads, ranks, attention
            )
    context = np.random.default_rng(0).normal(size=(2, 32)).astype(np.float32)
    windows = Windows(context, context[:, :8], ["a", "b"], np.full(2, 32), "toy", "D", 1)
    assert np.isfinite(model.forecast(windows, samples=2, seeds=[0, 1]).values).all()


@pytest.mark.parametrize(("rows", "columns", "rank"), [(7, 5, 2), (4, 6, 3), (5, 5, 1)])
def test_factors_to_train_begin_as_the_best_matrix_of_their_rank_in_equal_norm(
    rows: int, columns: int, rank: int
) -> None:
    weight = torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows))
    u, values, vt = np.linalg.svd(weight.numpy().astype(float))
    first, second = Product(rank).right_inverse(weight)
    assert (first.shape, second.shape, first.dtype) == ((rows, rank), (rank, columns), torch.float32)
    best = (u[:, :rank] * values[:rank]) @ vt[:rank]
    np.testing.assert_allclose(Product(rank)(first, second), best, atol=1e-6)
    for gram in (first.T @ first, second @ second.T):
        np.testing.assert_allclose(gram, np.diag(values[:rank]), atol=1e-6)


def test_products_of_factors_are_what_is_saved_and_leave_the_training_model_alone(tmp_path: Path) -> None:
    model = begin(recipe("chronos-t5", heads={"flat": 2, "factors": "shared"}))
    before = list(model.network.state_dict())
    whole = merge_factors(model)
    assert list(model.network.state_dict()) == before and any("parametrizations" in name for name in before)
    assert not any("parametrizations" in name for name in whole.network.state_dict())
    for one, other in zip(model.attentions(), whole.attentions(), strict=True):
        assert np.allclose(one.read().q, other.read().q, atol=1e-7)
    assert merge_factors(whole) is whole


def test_an_embedding_is_taken_over_and_only_the_one_that_the_key_covers(tmp_path: Path) -> None:
    source, _ = train(tmp_path / "source", "chronos-t5")
    said = {"folder": str(tmp_path / "source"), "key": source.key}
    other, _ = train(tmp_path / "other", "chronos-t5", said, heads=FLOW, seed=1, snapshots=[0])
    model, made = (
        family_class("chronos-t5").load(path) for path in (tmp_path / "source", snapshots(tmp_path / "other")[0])
    )
    assert torch.equal(model.network.shared.weight, made.network.shared.weight)
    assert other.key != train(tmp_path / "drawn", "chronos-t5", heads=FLOW, seed=1, snapshots=[0])[0].key
    with pytest.raises(ModelError, match="expected 0; run `make retry`"):
        train(tmp_path / "wrong", "chronos-t5", {**said, "key": "0"}, heads=FLOW)
    recorded = json.loads((tmp_path / "other" / "recipe.json").read_text())
    assert recorded["key"] == other.key


@pytest.mark.parametrize(
    ("family", "config", "words"),
    [("chronos-bolt", {}, "chronos-bolt has no embedding of ids"), ("chronos-t5", {"n_tokens": 96}, r"got \(64, 16\)")],
)
def test_an_embedding_that_does_not_fit_is_refused(family: str, config: Any, words: str, tmp_path: Path) -> None:
    family_class("chronos-t5").new(CONFIGS["chronos-t5"], seed=0).save(tmp_path)
    with pytest.raises(ValueError, match=words):
        begin(recipe(family, config=CONFIGS[family] | config), tmp_path)


def test_bfloat16_trains_close_to_float32_and_keeps_float32_weights(tmp_path: Path) -> None:
    _, exact = train(tmp_path / "exact", "chronos-t5")
    _, rounded = train(tmp_path / "rounded", "chronos-t5", precision="bfloat16")
    losses = np.array([[row["loss"] for row in one.rows] for one in (exact, rounded)])
    assert 0 < np.abs(losses[0] / losses[1] - 1).max() < 0.01
    assert family_class("chronos-t5").load(tmp_path / "rounded").network.shared.weight.dtype == torch.float32


def shared_rank(heads: dict[str, Any], ranks: dict[str, int], attention: Any) -> int:
    """Of W_V as a whole: the layer's rank where its heads share a sketch, else that of each head times heads."""
    return ranks[attention.name] * (1 if "factors" in heads else attention.heads)


def test_position_biases_are_spread_as_the_recipe_says_and_nothing_else_changes() -> None:
    plain, spread = (
        dict(begin(recipe("chronos-bolt", **changes)).network.named_parameters())
        for changes in ({}, {"relative_bias_std": 3.0})
    )
    changed = {name for name in plain if not torch.equal(plain[name], spread[name])}
    assert changed == {name for name in plain if "relative_attention_bias" in name}
    values = torch.cat([spread[name].flatten() for name in changed])
    assert float(values.detach().std()) == pytest.approx(3.0, rel=0.2)


def test_a_family_without_position_biases_refuses_to_spread_them() -> None:
    config = {"context_length": 16, "n_layer": 1, "n_head": 2, "n_embd_per_head": 8, "lags": [0, 1, 7]}
    with pytest.raises(ValueError, match="lag-llama has no relative position biases"):
        begin({**recipe("chronos-bolt"), "family": "lag-llama", "config": config, "relative_bias_std": 1.0})
