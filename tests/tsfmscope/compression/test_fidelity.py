"""A compressed model beside its base: overlap and perplexity against naive forms and transformers' own loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tasks.compression import measure_fidelity
from tasks.job import Job, Task
from tsfmscope.compression import fidelity
from tsfmscope.compression.fidelity import shift_into_decoder, surprisal, top_overlap
from tsfmscope.compression.options import Method
from tsfmscope.compression.truncation import compress
from tsfmscope.models.registry import family_class
from tsfmscope.series.tables import series_table
from tsfmscope.series.types import Series, Windows

T5: dict[str, Any] = {"d_model": 16, "d_ff": 32, "d_kv": 8, "num_heads": 2, "num_layers": 2, "num_decoder_layers": 2}
T5 |= {"dropout_rate": 0.0}
OWN = {"context_length": 32, "prediction_length": 8}
CONFIGS = {
    "chronos-t5": {**T5, **OWN, "n_tokens": 64, "initializer_factor": 1.0},
    "chronos-bolt": {**T5, **OWN, "input_patch_size": 8, "input_patch_stride": 8},
    "t5-text": {**T5, "initializer_factor": 0.2},
}
CELL = {"base_model": "b", "size_parameter": 0.5, "size_rule": "share", "dataset": "d"}
CELL |= {"condition": "c", "context": 32, "noise": 0.0}
NUMBERS = st.integers(-50, 50).map(float)


def make_model(family: str) -> Any:
    return family_class(family).new(CONFIGS[family], seed=1)


def job(**changes: Any) -> Job:
    spec = {"horizon": 8, "min_context": 32, "held_out": None, "seed": 0, "fidelity": {"windows": 4, "top": 10}}
    spec |= {"family": "f", "ref": "r", "base": {"family": "f", "ref": "r"}}
    return Job(Task("fidelity", 1, ""), {"model": "b@half", **CELL, **spec, **changes})


def series(count: int = 4, steps: int = 60, text: bool = False) -> list[Series]:
    rng = np.random.default_rng(4)
    values = rng.integers(97, 122, (count, steps)) if text else rng.normal(size=(count, steps)).cumsum(axis=1)
    return [Series("d", f"s{n}", one.astype(np.float32), freq="D") for n, one in enumerate(values)]


def row(family: str, ranks: dict[str, Any], **changes: Any) -> dict[str, Any]:
    base, small = make_model(family), make_model(family)
    compress(small, Method.model_validate({"method": "joint", "ranks": ranks}))
    text = family == "t5-text"
    (found,) = measure_fidelity(job(**changes), series_table(series(text=text)), (small, base)).rows
    return dict(found)


@given(
    arrays.arrays(np.float32, (3, 12), elements=NUMBERS, unique=True),
    arrays.arrays(np.float32, (3, 12), elements=NUMBERS, unique=True),
    st.integers(1, 12),
)
def test_overlap_is_that_of_the_sets_of_largest_logits(ours: np.ndarray, theirs: np.ndarray, top: int) -> None:
    found = top_overlap(ours, theirs, top)
    for line, a, b in zip(found, ours, theirs, strict=True):
        first, second = (set(np.argsort(one)[::-1][:top].tolist()) for one in (a, b))
        assert line == pytest.approx(len(first & second) / len(first | second))


def test_overlap_of_a_row_with_itself_is_1_and_too_few_ids_are_refused() -> None:
    logits = np.random.default_rng(0).normal(size=(5, 20))
    assert (top_overlap(logits, logits, 10) == 1).all()
    assert (top_overlap(logits, -logits, 10) == 0).all()
    with pytest.raises(ValueError, match="expected one shape of 21 ids or more"):
        top_overlap(logits, logits, 21)


@given(arrays.arrays(np.float32, (4, 9), elements=st.floats(-1e4, 1e4, width=32)), st.integers(0, 8))
def test_surprise_is_torch_cross_entropy_at_any_scale(logits: np.ndarray, label: int) -> None:
    labels = np.full(4, label)
    expected = torch.nn.functional.cross_entropy(
        torch.from_numpy(logits).double(), torch.from_numpy(labels), reduction="none"
    )
    assert surprisal(logits, labels) == pytest.approx(expected.numpy(), abs=1e-9)


@pytest.mark.parametrize("family", ["chronos-t5", "t5-text"])
def test_perplexity_and_overlap_are_of_the_networks_own_loss_and_logits_with_their_inputs_as_labels(
    family: str,
) -> None:
    model, small = make_model(family), make_model(family)
    found = row(family, {"share": 0.5})
    compress(small, Method.model_validate({"method": "joint", "ranks": {"share": 0.5}}))
    data = series(text=family == "t5-text")
    context = np.stack([one.values[-40:-8] for one in data])
    cut = Windows(context, context[:, :8], [one.series for one in data], np.zeros(4, np.int64), "d", "D", 1)
    ids, mask = (torch.from_numpy(model.tokenize(cut).arrays[name]) for name in ("ids", "mask"))
    with torch.no_grad():
        labels = ids.long().masked_fill(~mask.bool(), -100)
        base, other = (one.network(input_ids=ids.long(), attention_mask=mask, labels=labels) for one in (model, small))
    assert found["base_log_ppl"] == pytest.approx(float(base.loss), rel=1e-5)
    assert found["log_ppl"] == pytest.approx(float(other.loss), rel=1e-5)
    assert found["lppl"] == pytest.approx(float(other.loss / base.loss), rel=1e-5)
    tops = [[set(line.topk(10).indices.tolist()) for line in one.logits[mask.bool()]] for one in (base, other)]
    assert found["overlap"] == pytest.approx(np.mean([len(a & b) / len(a | b) for a, b in zip(*tops, strict=True)]))
    assert (found["n_positions"], found["n_windows"]) == (4 * 33, 4)  # 32 steps and EOS


def test_the_error_of_states_is_relative_to_the_base_s_last_ones_of_values_the_future_fed() -> None:
    """Chronos-T5's decoder, which reads the horizon's ids shifted right, through transformers' own forward pass."""
    model, small = make_model("chronos-t5"), make_model("chronos-t5")
    compress(small, Method.model_validate({"method": "joint", "ranks": {"share": 0.5}}))
    data = series()
    context, future = (np.stack([one.values[part] for one in data]) for part in (slice(-40, -8), slice(-8, None)))
    arrays = model.tokenize(Windows(context, future, list("abcd"), np.zeros(4, np.int64), "d", "D", 1)).arrays
    fed = {"input_ids": "ids", "attention_mask": "mask", "decoder_input_ids": "decoder_ids"}
    given = {name: torch.from_numpy(arrays[ours]).long() for name, ours in fed.items()}
    with torch.no_grad():
        states, others = (
            one.network(**given, output_hidden_states=True).decoder_hidden_states[-1].double().numpy()
            for one in (model, small)
        )
    assert states.shape == (4, 8, 16)  # the start, which stands for no value, and all of the future but its last step
    assert (given["decoder_input_ids"][:, 0] == model.network.config.decoder_start_token_id).all()
    error = np.linalg.norm((others - states)[:, 1:]) / np.linalg.norm(states[:, 1:])
    assert row("chronos-t5", {"share": 0.5})["state_error"] == pytest.approx(error, rel=1e-5)


@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_full_rank_is_the_base_itself_and_a_lower_rank_is_further_from_it(family: str) -> None:
    full, half, least = (row(family, {"share": share}) for share in (1.0, 0.5, 0.125))
    assert full["state_error"] < 1e-5 < half["state_error"] < least["state_error"]
    if family == "chronos-bolt":
        assert {(one["n_positions"], one.get("overlap"), one["reason"]) for one in (full, half)} == {
            (0, None, fidelity.NO_HEAD)
        }
        return
    assert full["overlap"] > 0.99 > half["overlap"] > least["overlap"]
    assert full["lppl"] == pytest.approx(1, abs=1e-4)
    assert full["reason"] is None


def test_series_without_a_whole_context_are_left_out_and_none_left_has_a_reason() -> None:
    found = row("chronos-t5", {"share": 0.5}, context=56, min_context=56)
    assert (found["n_windows"], found["n_positions"]) == (0, 0)
    assert found["reason"].startswith("no window: too short for 56 steps of context")
    assert "overlap" not in found


def test_padding_is_no_label() -> None:
    model = make_model("chronos-t5")
    context = np.full((1, 32), np.nan, np.float32)
    context[0, 12:] = np.arange(20)
    cut = Windows(context, np.ones((1, 8), np.float32), ["s"], np.zeros(1, np.int64), "d", "D", 1)
    tokens, mask = shift_into_decoder(model.tokenize(cut))
    assert mask.sum() == 21  # 20 steps and EOS
    assert tokens.arrays["decoder_ids"].shape == mask.shape == tokens.kinds["decoder"].shape
