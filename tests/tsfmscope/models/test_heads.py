"""What heads read against norms written out, log Z against the package's own logits, and the entries of stage heads."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tasks import heads
from tasks.job import Job, Task
from tests.tsfmscope.models.families import CHECKPOINTS, CLASSES, FORECASTERS, names
from tsfmscope.errors import HealthError
from tsfmscope.geometry.heads import Axes, Bounds, log_partition, spectral_alignment
from tsfmscope.models import base
from tsfmscope.models.base import Family
from tsfmscope.models.chronos import ChronosT5
from tsfmscope.models.patchtst import PatchTST
from tsfmscope.models.registry import family_class
from tsfmscope.models.t5 import T5Stacks
from tsfmscope.models.timesfm import TimesFM
from tsfmscope.models.types import LayerStates, TokenKind, Tokens, projections, tokens_to_table
from tsfmscope.series.types import Windows

Make = Callable[..., Windows]
CELL = {"model": "m", "base_model": None, "size_parameter": None, "size_rule": None, "dataset": "d", "condition": "c"}
CELL |= {"context": 48, "noise": 0.0}
MODEL = {"family": "f", "ref": "r", "seed": 0}
LEMMA = {"tokens": [2, 8], "windows": 1, "layers": "all"}
plain = pytest.mark.parametrize(
    "family", [name for name in FORECASTERS if CLASSES[name].plain_attention], indirect=True
)


def rows_of(entry: Callable[..., Any], family: Family, tokens: Tokens, /, **spec: Any) -> list[dict[str, Any]]:
    job = Job(Task("t", 1, "m:f"), CELL | MODEL | spec)
    return list(entry(job, tokens_to_table(tokens), family).rows)


def align(family: Family, tokens: Tokens, rows: int = 100) -> list[dict[str, Any]]:
    return rows_of(heads.align, family, tokens, rows=rows, batch=3)


def inputs_of(family: Family, tokens: Tokens) -> dict[tuple[str, int], np.ndarray]:
    return {(layer.stack, layer.layer): layer.states for layer in family.attention_inputs(tokens)}


def states_of(family: Family, tokens: Tokens) -> dict[tuple[str, int], np.ndarray]:
    return {(s.stack, s.layer): s.states for s in family.hidden_states(tokens) if not s.normed}


@pytest.mark.parametrize("family", [name for name in FORECASTERS if issubclass(CLASSES[name], T5Stacks)], indirect=True)
def test_a_t5_head_is_given_the_residual_state_over_its_root_mean_square(family: Any, windows: Make) -> None:
    tokens = family.tokenize(windows())
    given, states = inputs_of(family, tokens), states_of(family, tokens)
    assert list(given) == [(stack, n + 1) for stack in family.stacks for n in range(family.layers[stack])]
    for (stack, layer), found in given.items():
        before = states[stack, layer - 1].astype(np.float64)
        weight = getattr(family.network, stack).block[layer - 1].layer[0].layer_norm.weight.detach().numpy()
        expected = weight * before / np.sqrt(np.square(before).mean(axis=-1, keepdims=True) + 1e-6)
        np.testing.assert_allclose(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("pre_norm", [True, False])
@pytest.mark.parametrize("kind", ["batchnorm", "layernorm"])
def test_a_patchtst_head_is_given_what_the_order_of_its_norms_says(windows: Make, kind: str, pre_norm: bool) -> None:
    family = PatchTST.new({**family_class("patchtst").example, "norm_type": kind, "pre_norm": pre_norm}, seed=1)
    blocks = family.network.model.encoder.layers
    rng = np.random.default_rng(0)
    for block in blocks:  # statistics and weights that are not the identity
        norm = block.norm_sublayer1.batchnorm if kind == "batchnorm" else block.norm_sublayer1
        for tensor in norm.state_dict().values():
            if tensor.ndim:
                tensor.copy_(torch.from_numpy(rng.uniform(0.5, 2.0, tensor.shape)))
    tokens = family.tokenize(windows())
    given, states = inputs_of(family, tokens), states_of(family, tokens)
    assert list(given) == [("encoder", layer) for layer in (1, 2, 3)]
    for (_, layer), found in given.items():
        before = states["encoder", layer - 1].astype(np.float64)
        expected = _normed(blocks[layer - 1].norm_sublayer1, kind, before) if pre_norm else before
        np.testing.assert_allclose(found, expected, atol=1e-5, rtol=1e-5)


def _normed(module: Any, kind: str, states: np.ndarray) -> np.ndarray:
    norm = module.batchnorm if kind == "batchnorm" else module
    weight, bias = norm.weight.detach().numpy(), norm.bias.detach().numpy()
    if kind == "batchnorm":
        mean, variance = norm.running_mean.numpy(), norm.running_var.numpy()
    else:
        mean, variance = states.mean(axis=-1, keepdims=True), states.var(axis=-1, keepdims=True)
    return (states - mean) / np.sqrt(variance + norm.eps) * weight + bias


# Query projections of a family's blocks; of a family without an entry, those that its pass names.
QUERIES = {
    **dict.fromkeys(
        names(lambda cls: issubclass(cls, T5Stacks)), "{stack}.block.{at}.layer.0.SelfAttention.q"
    ),
    "patchtst": "model.encoder.layers.{at}.self_attn.q_proj", "totem": "encoder.{at}.q",
    **dict.fromkeys(("visionts", "vit"), "vit.layers.{at}.attention.q_proj"),
    "timesfm": "decoder.layers.{at}.self_attn.q_proj",
}  # fmt: skip


@pytest.mark.parametrize("any_family", names(lambda cls: cls.plain_attention), indirect=True)
def test_the_inputs_and_the_weights_make_the_scores_that_the_model_itself_makes(any_family: Any, items: Make) -> None:
    """W_Q times the input is what the query projection answers, bias apart: input and weights are of one block."""
    tokens = any_family.tokenize(items(any_family, count=2))
    weights, path = projections(any_family), QUERIES.get(any_family.name)
    queries = any_family._pass(tokens).queries
    for (stack, layer), states in inputs_of(any_family, tokens).items():
        module, scale = queries[stack][layer - 1], np.ones(1)
        if path is not None:
            module = any_family.network.get_submodule(path.format(stack=stack, at=layer - 1))
        if isinstance(any_family, TimesFM):
            attention = any_family.network.decoder.layers[layer - 1].self_attn
            ones = torch.ones(1, 2, 1, attention.head_dim)
            scale = attention._scale_query(ones).detach().numpy().reshape(-1)  # of both heads
        answer = module(torch.from_numpy(states)).detach().numpy()
        bias = 0.0 if module.bias is None else module.bias.detach().numpy()
        made = states @ weights[stack, layer].query.T + bias * scale
        np.testing.assert_allclose(made, answer * scale, atol=1e-5, rtol=1e-4)


@plain
def test_the_batch_changes_nothing_but_rounding_and_hooks_are_gone(family: Any, windows: Make) -> None:
    tokens = family.tokenize(windows())
    whole, usual = inputs_of(family, tokens), family.batch
    with heads.in_batches(family, 2):
        parted = inputs_of(family, tokens)
    assert family.batch == usual
    for key, states in whole.items():
        np.testing.assert_allclose(parted[key], states, atol=2e-5)
    assert not any(module._forward_pre_hooks for module in family.network.modules())


@pytest.mark.parametrize("any_family", names(lambda cls: not cls.plain_attention), indirect=True)
def test_families_of_other_scores_have_no_alignment_and_no_logits(any_family: Family, items: Make) -> None:
    tokens = any_family.tokenize(items(any_family))
    assert not any_family.softmax_head
    assert not list(any_family.attention_inputs(tokens)) and not list(any_family.forecast_logits(tokens))
    assert align(any_family, tokens) == []
    assert any_family.name != "chronos-2" or projections(any_family) == {}  # its groups are not a window's tokens


@pytest.mark.parametrize("gaps", [False, True])
def test_log_z_is_logsumexp_of_the_packages_own_logits(t5: ChronosT5, windows: Make, gaps: bool) -> None:
    made = windows(count=7)
    if gaps:
        made.context[1, :9] = np.nan
        made.future[2, 3:5] = np.nan
    tokens = t5.tokenize(made)
    with torch.no_grad():
        logits = t5.network(
            input_ids=torch.from_numpy(tokens.arrays["ids"]).long(),
            attention_mask=torch.from_numpy(tokens.arrays["mask"]),
            decoder_input_ids=torch.from_numpy(tokens.arrays["decoder_ids"]).long(),
        ).logits
    log_z = torch.logsumexp(logits.double(), dim=-1).numpy()
    found = np.concatenate([log_partition(part) for part in t5.forecast_logits(tokens)])
    np.testing.assert_allclose(found, log_z, atol=1e-5, rtol=1e-5)
    (row,) = rows_of(heads.partition, t5, tokens, rows=10_000, batch=3)
    seen = log_z[tokens.kinds["decoder"] != TokenKind.PADDING]  # START and FUTURE
    assert (row["n_positions"], row["n_ids"]) == (7 * 12 - 2 * gaps, 128)
    assert row["log_z_mean"] == pytest.approx(seen.mean(), abs=1e-5)
    assert row["log_z_sd"] == pytest.approx(seen.std(ddof=1), abs=1e-5)
    assert row["log_z_range"] == pytest.approx(seen.max() - seen.min(), abs=1e-5)
    assert row["reason"] is None


def test_a_single_forecast_position_has_no_spread_and_says_why(t5: ChronosT5, windows: Make) -> None:
    (row,) = rows_of(heads.partition, t5, t5.tokenize(windows(count=1, horizon=1)), rows=10, batch=3)
    assert (row["n_positions"], row["log_z_sd"], row["log_z_range"]) == (1, None, 0.0)
    assert row["reason"] == "1 forecast positions; a spread needs 2"


def test_logits_that_are_not_finite_or_not_of_the_tokens_are_refused(
    t5: ChronosT5, windows: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = t5.tokenize(windows())
    one_pass = t5._pass(tokens)
    for wrong, text in ((torch.full((5, 12, 4), torch.nan), "NaN or infinity"), (torch.zeros(5, 11, 4), "got rows")):
        answer = one_pass._replace(logits=lambda part, wrong=wrong: wrong)
        monkeypatch.setattr(type(t5), "_pass", lambda self, tokens, answer=answer: answer)
        with pytest.raises(HealthError, match=text):
            list(t5.forecast_logits(tokens))


def test_inputs_that_are_not_finite_or_not_of_the_tokens_are_refused(
    t5: ChronosT5, windows: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = t5.tokenize(windows())
    shape = (*tokens.kinds["encoder"].shape, 16)
    for wrong, text in ((np.full(shape, np.inf), "NaN or infinity"), (np.zeros((5, 3, 16)), "got shape")):
        layer = LayerStates("encoder", 1, False, wrong)
        monkeypatch.setattr(base, "run_projected", lambda *args, layer=layer: iter([layer]))
        with pytest.raises(HealthError, match=text):
            list(t5.attention_inputs(tokens))


@plain
def test_there_is_a_row_a_head_and_it_is_that_of_the_kept_tokens(family: Any, windows: Make) -> None:
    tokens = family.tokenize(windows(count=9))
    rows = align(family, tokens, rows=10_000)
    weights = projections(family)
    seen = {where: one for where, one in weights.items() if where[0] in family.stacks}  # VisionTS' decoder is no stack
    wanted = [(*where, head) for where, one in seen.items() for head in range(one.heads)]
    assert [(row["stack"], row["layer"], row["head"]) for row in rows] == wanted
    given = inputs_of(family, tokens)
    for row in rows:
        where = row["stack"], row["layer"]
        valued = np.isin(tokens.kinds[row["stack"]], heads.VALUED)
        if valued.shape[1] == 1:
            assert row["query"] is None and "one token a window" in row["reason"]
            continue
        query, key, count = weights[where]
        own = [np.split(matrix, count)[row["head"]] for matrix in (query, key)]
        expected = spectral_alignment(*own, Axes.of(given[where][valued]))
        assert row["n_tokens"] == valued.sum()
        assert row["query"] == pytest.approx(expected.query, abs=1e-4)
        assert row["key"] == pytest.approx(expected.key, abs=1e-4)
        assert row["reason"] is None


def test_a_head_made_to_read_the_leading_directions_scores_1(t5: ChronosT5, windows: Make) -> None:
    tokens = t5.tokenize(windows(count=9))
    valued = np.isin(tokens.kinds["encoder"], heads.VALUED)
    axes = Axes.of(inputs_of(t5, tokens)["encoder", 2][valued])
    family = ChronosT5(copy.deepcopy(t5.network))
    attention = family.network.encoder.block[1].layer[0].SelfAttention
    top = torch.from_numpy((axes.directions[:, :6] / np.sqrt(axes.eigenvalues[:6])).T.astype(np.float32))
    with torch.no_grad():
        for module in (attention.q, attention.k):
            module.weight[6:12] = top  # the second head: Λ* of Theorem 2
    rows = {(r["stack"], r["layer"], r["head"]): r for r in align(family, tokens, rows=10_000)}
    made, other = rows["encoder", 2, 1], rows["encoder", 2, 0]
    assert (made["query"], made["key"], made["inverse_cosine"]) == pytest.approx((1.0, 1.0, 1.0), abs=1e-3)
    assert other["query"] < 0.9


HARD = {
    "constant": np.full((4, 48), 3.0),
    "zero": np.zeros((4, 48)),
    "huge constant": np.full((4, 48), 3e38),
    "tiny constant": np.full((4, 48), 1e-38),
    "one step": np.where(np.arange(48) == 47, 2.0, np.nan)[None].repeat(4, axis=0),
}


@plain
@pytest.mark.parametrize("name", HARD)
def test_an_input_without_directions_is_null_with_a_reason_and_never_nan(
    family: Any, windows_of: Callable[..., Windows], name: str
) -> None:
    tokens = family.tokenize(windows_of(HARD[name], np.repeat(HARD[name][:, -1:], 12, axis=1)))
    # MOMENT reads whole patches only.
    if name == "one step" and family.name == "moment":
        with pytest.raises(ValueError, match="no stack has a token of"):
            align(family, tokens)
        return
    rows = align(family, tokens)
    first = next(row for row in rows if (row["stack"], row["layer"]) == (family.stacks[0], 1))
    # most patches have a place in the input; ids, and TimesFM 2.0's patches, have none
    if isinstance(family, ChronosT5 | TimesFM) or name == "one step":
        assert first["query"] is None and "fewer than m" in first["reason"]
    for row in (*rows, *rows_of(heads.lemma, family, tokens, **LEMMA)):
        numbers = [value for value in row.values() if isinstance(value, float)]
        assert np.isfinite(numbers).all()
        assert row["reason"] is not None or None not in (row.get("query", 0), row.get("norm", 0))


@pytest.mark.parametrize("scale", [1e30, 1e-30])
def test_huge_and_tiny_series_have_the_alignment_of_their_scaled_copy(
    t5: ChronosT5, windows: Make, windows_of: Callable[..., Windows], scale: float
) -> None:
    small = windows(count=9)
    power = 2.0 ** np.round(np.log2(scale))
    rows = [align(t5, t5.tokenize(w)) for w in (small, windows_of(small.context * power, small.future * power))]
    assert [row["query"] for row in rows[0]] == pytest.approx([row["query"] for row in rows[1]], abs=1e-6)


def test_as_few_windows_are_drawn_as_hold_the_rows_and_the_seed_decides_which(t5: ChronosT5, windows: Make) -> None:
    tokens = t5.tokenize(windows(count=40))  # 48 valued rows a window in the encoder, 11 in the decoder
    assert len(heads.sample_windows(tokens, 33, 0)) == 3
    assert len(heads.sample_windows(tokens, 34, 0)) == 4
    assert len(heads.sample_windows(tokens, 10_000, 0)) == 40
    one, again, other = (heads.sample_windows(tokens, 33, seed) for seed in (1, 1, 2))
    assert one.series == again.series != other.series
    assert one.series == sorted(one.series, key=tokens.series.index)


def test_a_stack_of_one_token_a_window_asks_for_no_more_windows(bolt: Family, windows: Make) -> None:
    tokens = bolt.tokenize(windows(count=40))
    assert len(heads.sample_windows(tokens, 12, 0)) == 2


@plain
def test_lemma_instances_are_tokens_of_one_window_that_stand_for_values(family: Any, windows: Make) -> None:
    made = windows(count=6)
    made.context[:3, :40] = np.nan
    tokens = family.tokenize(made)
    for kinds in tokens.kinds.values():
        rng = np.random.default_rng(0)
        found = heads._instances(kinds, [2, 4], 5, rng)
        sizes = sorted({len(one.positions) for one in found})
        assert sizes == ([1] if kinds.shape[1] == 1 else [2, 4])
        assert len({(one.window, len(one.positions)) for one in found}) == len(found) <= 5 * len(sizes)
        for one in found:
            assert np.isin(kinds[one.window, one.positions], heads.VALUED).all()
            assert (np.diff(one.positions) > 0).all()


def test_a_lemma_row_is_the_bound_of_its_head_and_the_ends_are_the_first_and_last_block(
    t5: ChronosT5, windows: Make
) -> None:
    tokens = t5.tokenize(windows())
    rows = rows_of(heads.lemma, t5, tokens, **LEMMA | {"windows": 2})
    layers = [(stack, n + 1) for stack in t5.stacks for n in range(t5.layers[stack])]
    assert len(rows) == len(layers) * 3 * 2 * 2
    ends = rows_of(heads.lemma, t5, tokens, **LEMMA | {"layers": "ends"})
    assert {(row["stack"], row["layer"]) for row in ends} == {
        ("encoder", 1),
        ("encoder", 3),
        ("decoder", 1),
        ("decoder", 2),
    }
    assert [row["n_tokens"] for row in rows[:4]] == [2, 2, 8, 8]
    assert [row["instance"] for row in rows[:4]] == [0, 1, 2, 3]
    assert all(row["reason"] is None for row in rows)


def test_a_window_of_one_token_gives_no_instance_and_says_why(bolt: Family, windows: Make) -> None:
    rows = rows_of(heads.lemma, bolt, bolt.tokenize(windows()), **LEMMA)
    decoder = [row for row in rows if row["stack"] == "decoder"]
    assert decoder and all(row["norm"] is None and "1 tokens an instance" in row["reason"] for row in decoder)


@pytest.mark.parametrize("name", ["chronos-t5", "patchtst"])
def test_the_safe_bound_holds_on_real_inputs_of_the_committed_checkpoints(name: str, windows: Make) -> None:
    family = CLASSES[name].load(CHECKPOINTS / f"{name}-mini")
    made = windows(count=4, context=300, horizon=16)
    rows = rows_of(heads.lemma, family, family.tokenize(made), **LEMMA)
    found = [row for row in rows if row["reason"] is None]
    assert len(found) >= 8
    bounds = [Bounds(*(row[part] for part in ("norm", "printed", "appendix", "safe"))) for row in found]
    assert all(one.norm <= one.safe * (1 + 1e-9) for one in bounds)
    for row, one in zip(found, bounds, strict=True):
        assert one.norm > 0
        assert one.appendix - one.printed == pytest.approx(row["n_tokens"], abs=1e-9 * one.printed)
