"""The entries of stages tokens and embeddings, one after the other, on small random checkpoints."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from scipy import stats

from tasks.embeddings import embed, sample_seed, schema
from tasks.job import EXECUTION_CONTEXT, IDENTITY, ExecutionContext, Job, Task
from tasks.tokens import tokenize
from tsfmscope.errors import DataError, HealthError
from tsfmscope.models.base import Family
from tsfmscope.models.common.capture import PASS_TOKENS, Pass, kept_rows, pass_windows
from tsfmscope.models.types import TokenKind, Tokens, tokens_from_table
from tsfmscope.series.tables import series_table
from tsfmscope.series.types import Series

CELL = dict(zip(IDENTITY, ("m", None, None, None, "walks", "c", 40, 0.0), strict=True))
MODEL = {"family": "f", "ref": "r", "seed": 0, "format": "arrow"}
SPEC = {**CELL, "horizon": 12, "min_context": 16, "held_out": None, "rows": 30, **MODEL}
EMBED = {**CELL, "rows": 50, "batch": 4, "store_dtype": "float32", **MODEL}


def job(spec: dict[str, Any], **changes: Any) -> Job:
    return Job(Task("t", 1, "m:f"), spec | changes)


def walks(count: int = 5, steps: int = 200, **changes: Any) -> pa.Table:
    rng = np.random.default_rng(0)
    values = [rng.normal(size=steps).cumsum().astype(np.float32) for _ in range(count)]
    return series_table([Series("walks", f"s{i}", v, freq="D", **changes) for i, v in enumerate(values)])


def dumped(family: Family, data: pa.Table, **changes: Any) -> pa.Table:
    result = tokenize(job(SPEC, **changes), data, family)
    assert result.dump is not None
    (table,) = result.dump
    return table


def test_a_token_dump_has_the_rows_asked_for_and_every_series(family: Family) -> None:
    result = tokenize(job(SPEC), walks(), family)
    table = next(iter(result.dump or []))
    tokens = tokens_from_table(table)
    assert set(tokens.series) == {f"s{i}" for i in range(5)}
    for kinds in tokens.kinds.values():
        assert np.isin(kinds, (TokenKind.OBSERVATION, TokenKind.FUTURE)).sum() >= 30
    assert list(result.rows) == [
        {name: SPEC[name] for name in IDENTITY}
        | {"kind": "tokens", "width": None, "dtype": None, "n_windows": len(tokens), "batch": None}
        | {"n_context_min": 40, "n_context_median": 40.0}
    ]
    assert result.tokens == sum(kinds.size for kinds in tokens.kinds.values())


def test_missing_steps_are_made_up_for_by_more_windows(t5: Family) -> None:
    series = [Series("walks", "s", np.where(np.arange(400) % 2, np.nan, np.arange(400.0)).astype(np.float32), freq="D")]
    tokens = tokens_from_table(dumped(t5, series_table(series), rows=100))
    assert (tokens.kinds["decoder"] == TokenKind.FUTURE).sum() >= 100


def test_as_many_rows_as_there_are_is_enough(t5: Family) -> None:
    tokens = tokens_from_table(dumped(t5, walks(count=1, steps=60), rows=10_000))
    assert len(tokens) == 60 - 16 - 12 + 1


def test_a_token_dump_counts_the_observed_steps_of_its_contexts(t5: Family) -> None:
    values = [np.arange(30.0), np.arange(200.0), np.where(np.arange(52) == 20, np.nan, np.arange(52.0))]
    series = [Series("walks", f"s{n}", one.astype(np.float32), freq="D") for n, one in enumerate(values)]
    (row,) = tokenize(job(SPEC, rows=1), series_table(series), t5).rows  # the last window of each: 18, 40, 39 steps
    assert (row["n_windows"], row["n_context_min"], row["n_context_median"]) == (3, 18, 39.0)


def test_series_that_give_no_window_are_counted_by_reason(t5: Family) -> None:
    data = pa.concat_tables(
        [walks(3), series_table([Series("walks", f"x{i}", np.ones(9, np.float32), freq="D") for i in (1, 2)])]
    )
    skipped = json.loads(dumped(t5, data).schema.metadata[b"skipped"])
    assert list(skipped.values()) == [2]
    assert "too short" in next(iter(skipped))
    with pytest.raises(DataError, match="data set walks: expected at least one series, got none"):
        tokenize(job(SPEC), data.slice(0, 0), t5)


def test_a_data_set_without_windows_gives_a_dump_without_rows_that_counts_why(t5: Family) -> None:
    data = series_table([Series("walks", f"x{i}", np.ones(9, np.float32), freq="D") for i in (1, 2)])
    result = tokenize(job(SPEC), data, t5)
    (table,) = result.dump or []
    assert (len(table), result.rows[0]["n_windows"], result.tokens) == (0, 0, 0)
    assert json.loads(table.schema.metadata[b"skipped"]) == {"too short for 16 steps of context and a horizon of 12": 2}


def test_a_horizon_of_one_step_leaves_the_encoder_and_counts_the_decoder_out(t5: Family) -> None:
    data = dumped(t5, walks(), horizon=1)
    reasons = json.loads(data.schema.metadata[b"skipped"])
    assert reasons == {"no token of stack decoder stands for a value": len(data)}
    assert {table["stack"][0].as_py() for table in embed(job(EMBED), data, t5).dump or []} == {"encoder"}


def test_tokens_that_all_stand_for_nothing_are_no_dump(lag_llama: Family) -> None:
    values = np.where((np.arange(160) >= 20) & (np.arange(160) < 36), np.arange(160.0), np.nan)
    values[159] = 1  # the one window's context ends with 112 missing steps, and the model's tokens are the last 48
    data = series_table([Series("walks", "s", values.astype(np.float32), freq="D")])
    table = dumped(lag_llama, data, context=128)
    assert len(table) == 0
    assert json.loads(table.schema.metadata[b"skipped"]) == {"no token of stack decoder stands for a value": 1}


def test_noise_changes_the_context_alone(t5: Family) -> None:
    clean, noisy = (tokens_from_table(dumped(t5, walks(), noise=noise)) for noise in (0.0, 0.5))
    assert not np.array_equal(clean.arrays["ids"], noisy.arrays["ids"])
    assert clean.series == noisy.series


def test_a_dump_holds_the_states_of_its_tokens_layer_by_layer(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(family, "batch", EMBED["batch"])  # another batch may round otherwise
    data = dumped(family, walks())
    result = embed(job(EMBED), data, family)
    tables = list(result.dump or [])
    tokens = tokens_from_table(data)
    layers = list(family.hidden_states(tokens))
    assert len(tables) == len(layers)
    for table, layer in zip(tables, layers, strict=True):
        assert table.schema == schema(family.width, "float32")
        rows = table.to_pydict()
        kinds = tokens.kinds[layer.stack]
        assert set(rows["stack"]) == {layer.stack}
        assert (set(rows["layer"]), set(rows["normed"])) == ({layer.layer}, {layer.normed})
        window, position = np.divmod(rows["token"], kinds.shape[1])
        assert rows["series"] == [tokens.series[w] for w in window]
        assert rows["origin"] == tokens.origin[window].tolist()
        assert rows["position"] == position.tolist()
        assert rows["kind"] == kinds[window, position].tolist()
        assert set(rows["kind"]) <= {TokenKind.OBSERVATION, TokenKind.FUTURE}
        types = tokens.types.get(layer.stack)
        assert rows["type"] == ([None] * len(window) if types is None else types[window, position].tolist())
        found, wanted = np.array(rows["state"], np.float32), layer.states[window, position]
        # windows without a kept token are not run: other batches, other rounding
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * float(np.abs(wanted).max()))
    assert list(result.rows) == [
        CELL | {"kind": "embeddings", "width": family.width, "dtype": "float32", "n_windows": len(tokens), "batch": 4}
    ]


def test_where_every_window_is_run_the_states_are_those_of_the_plain_pass_bit_by_bit(family: Family) -> None:
    tokens = tokens_from_table(dumped(family, walks()))
    rng = np.random.default_rng(0)
    shapes = {stack: kinds.shape for stack, kinds in tokens.kinds.items()}
    rows = {  # of every window one row at least
        stack: np.unique(np.r_[np.arange(w) * t + rng.integers(t, size=w), rng.integers(w * t, size=w)])
        for stack, (w, t) in shapes.items()
    }
    for kept, whole in zip(family.hidden_states(tokens, rows), family.hidden_states(tokens), strict=True):
        assert (kept.stack, kept.layer, kept.normed) == (whole.stack, whole.layer, whole.normed)
        np.testing.assert_array_equal(kept.states, whole.states.reshape(-1, family.width)[rows[kept.stack]])


@pytest.mark.parametrize("batch", [2, 100])
def test_one_row_of_one_window_is_that_row(family: Family, monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    monkeypatch.setattr(family, "batch", batch)
    tokens = tokens_from_table(dumped(family, walks()))
    stack = family.stacks[-1]
    last = tokens.kinds[stack].size - 1
    kept = list(family.hidden_states(tokens, {stack: np.array([last])}))
    whole = [layer for layer in family.hidden_states(tokens) if layer.stack == stack]
    for found, layer in zip(kept, whole, strict=True):
        wanted = layer.states[-1, -1]
        assert found.states.shape == (1, family.width)
        np.testing.assert_allclose(found.states[0], wanted, rtol=0, atol=1e-5 * float(np.abs(layer.states).max()))


def test_windows_without_a_kept_token_are_not_run(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = tokens_from_table(dumped(family, walks()))
    stack = family.stacks[0]
    count = tokens.kinds[stack].shape[1]
    seen: list[int] = []
    one_pass = family._pass

    def counted(some: Tokens) -> Pass:
        seen.append(len(some))
        return one_pass(some)

    monkeypatch.setattr(family, "_pass", counted)
    list(family.hidden_states(tokens, {stack: np.array([1, count, count + 2, 3 * count])}))
    assert seen == [3]


def test_memory_of_a_pass_follows_the_kept_rows(bolt: Family) -> None:
    tokens = tokens_from_table(dumped(bolt, walks(count=5, steps=2000), rows=3000))
    states = 4 * bolt.width * sum(kinds.size for kinds in tokens.kinds.values())  # bytes of one layer
    peaks = []
    for rows in ({"encoder": np.array([5])}, None):
        tracemalloc.start()
        list(bolt.hidden_states(tokens, rows))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] > 3 * states  # numpy's arrays alone, and every layer
    assert peaks[0] < states


@pytest.mark.parametrize("ids", [[-1, 2], [3, 2], [2, 2], [0, 10**6]])
def test_rows_that_cannot_be_are_refused(t5: Family, ids: list[int]) -> None:
    tokens = tokens_from_table(dumped(t5, walks()))
    with pytest.raises(ValueError, match=r"rows of encoder: expected ascending ids of its \d+ tokens"):
        next(t5.hidden_states(tokens, {"encoder": np.array(ids)}))


def test_no_rows_give_no_states(t5: Family) -> None:
    tokens = tokens_from_table(dumped(t5, walks()))
    assert list(t5.hidden_states(tokens, {"encoder": np.array([], np.int64)})) == []


def test_a_kept_row_that_is_not_finite_is_named(bolt: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    data = dumped(bolt, walks())
    weight = bolt.network.encoder.block[1].layer[1].DenseReluDense.wo.weight
    whole = weight.detach().clone()
    with torch.no_grad():
        weight[0, 0] = torch.nan
    try:
        with pytest.raises(HealthError, match=r"chronos-bolt encoder layer 2: hidden states contain NaN or infinity"):
            list(embed(job(EMBED), data, bolt).dump or [])
    finally:
        weight.data = whole


def test_the_batch_is_found_from_the_tokens_of_a_window_and_halved_where_memory_lacks(family: Family) -> None:
    data = dumped(family, walks())
    each = sum(kinds.shape[1] for kinds in tokens_from_table(data).kinds.values())
    unset = job(EMBED | {"batch": None})
    assert embed(unset, data, family).rows[0]["batch"] == PASS_TOKENS["cpu"] // each
    token = EXECUTION_CONTEXT.set(ExecutionContext(divisor=4))
    try:
        assert embed(unset, data, family).rows[0]["batch"] == PASS_TOKENS["cpu"] // each // 4
        assert embed(job(EMBED | {"batch": 2}), data, family).rows[0]["batch"] == 1
    finally:
        EXECUTION_CONTEXT.reset(token)


def test_the_batch_changes_states_by_rounding_only_and_never_the_tokens(family: Family) -> None:
    data = dumped(family, walks())
    for a, b in zip(*(embed(job(EMBED | {"batch": n}), data, family).dump or [] for n in (1, 5)), strict=True):
        assert a["token"].equals(b["token"])
        one, other = (np.array(table["state"].to_pylist()) for table in (a, b))
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * float(np.abs(one).max()))


def test_the_same_job_gives_the_same_bytes(t5: Family) -> None:
    data, unset = dumped(t5, walks()), job(EMBED | {"batch": None})
    first, second = (list(embed(unset, data, t5).dump or []) for _ in range(2))
    assert all(a.equals(b) for a, b in zip(first, second, strict=True))


def test_every_layer_of_a_stack_keeps_the_same_tokens(t5: Family) -> None:
    tables = list(embed(job(EMBED), dumped(t5, walks()), t5).dump or [])
    for stack in t5.stacks:
        kept = [table["token"].to_pylist() for table in tables if table["stack"][0].as_py() == stack]
        assert len(kept[0]) == 50
        assert all(ids == kept[0] for ids in kept)


def test_a_window_of_more_tokens_than_a_pass_should_have_is_run_alone() -> None:
    tokens = Tokens({}, {"encoder": np.zeros((4, 10**6), np.int8)}, {}, ["a"] * 4, np.zeros(4))
    assert pass_windows(tokens, "cpu") == pass_windows(tokens, "cuda:0") == 1


def test_other_kinds_can_be_asked_for(t5: Family) -> None:
    tables = list(embed(job(EMBED, kinds=["eos", "start"]), dumped(t5, walks()), t5).dump or [])
    kinds = {table["stack"][0].as_py(): set(table["kind"].to_pylist()) for table in tables}
    assert kinds == {"encoder": {TokenKind.EOS}, "decoder": {TokenKind.START}}
    only = list(embed(job(EMBED, kinds=["eos"]), dumped(t5, walks()), t5).dump or [])
    assert {table["stack"][0].as_py() for table in only} == {"encoder"}


def test_unknown_or_absent_kinds_are_named(t5: Family, bolt: Family) -> None:
    with pytest.raises(ValueError, match=r"kinds: got \['values'\], expected some of \['observation'"):
        embed(job(EMBED, kinds=["values"]), dumped(t5, walks()), t5)
    with pytest.raises(ValueError, match=r"no stack has a token of \['eos'\]"):
        embed(job(EMBED, kinds=["eos"]), dumped(bolt, walks()), bolt)


def test_half_precision_is_used_where_states_fit(bolt: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    data = dumped(bolt, walks())
    half = embed(job(EMBED, store_dtype="float16"), data, bolt)
    full = list(embed(job(EMBED), data, bolt).dump or [])
    assert half.rows[0]["dtype"] == "float16"
    for a, b in zip(half.dump or [], full, strict=True):
        assert a.schema == schema(16, "float16")
        states = [np.array(t["state"].to_pylist(), np.float32) for t in (a, b)]
        assert a["token"].equals(b["token"])
        np.testing.assert_array_equal(states[0], states[1].astype(np.float16).astype(np.float32))
    monkeypatch.setattr("tasks.embeddings.LARGEST_FLOAT16", 1e-3)
    assert embed(job(EMBED, store_dtype="float16"), data, bolt).rows[0]["dtype"] == "float32"


@pytest.mark.parametrize("rows", [1, 20])
def test_every_token_is_as_likely_to_be_kept_as_any_other(rows: int) -> None:
    kinds = {"encoder": np.zeros((4, 10), np.int8), "decoder": np.zeros((5, 9), np.int8)}
    kinds["encoder"][1, 3:8] = TokenKind.PADDING  # 35 of 40 are left
    tokens = Tokens({}, kinds, {}, ["a"] * 4, np.zeros(4))
    seeds, tests = 1000, 4  # of every rows and stack
    for stack, values in kinds.items():
        counts = np.zeros(values.size)
        for seed in range(seeds):
            ids = kept_rows(tokens, ["observation"], rows, seed)[stack]
            assert len(ids) == rows
            assert (np.diff(ids) > 0).all()
            counts[ids] += 1
        open_to = values.reshape(-1) == TokenKind.OBSERVATION
        assert not counts[~open_to].any()
        n, share = int(open_to.sum()), rows / open_to.sum()
        # counts of draws without replacement: variance seeds p (1 - p), correlation -1 / (n - 1) of two tokens
        chi2 = ((counts[open_to] - seeds * share) ** 2).sum() / (seeds * share * (1 - share)) * (n - 1) / n
        assert 1e-3 / tests < stats.chi2.sf(chi2, n - 1) < 1 - 1e-3 / tests


def test_stacks_of_one_shape_are_sampled_apart_and_seeds_differ() -> None:
    kinds = {"encoder": np.zeros((4, 10), np.int8), "decoder": np.zeros((4, 10), np.int8)}
    tokens = Tokens({}, kinds, {}, ["a"] * 4, np.zeros(4))
    first, second = (kept_rows(tokens, ["observation"], 15, seed) for seed in (0, 1))
    assert not np.array_equal(first["encoder"], first["decoder"])
    assert not np.array_equal(first["encoder"], second["encoder"])


def test_a_model_made_from_another_keeps_the_same_tokens() -> None:
    plain = EMBED | {"model": "m", "ref": "a", "rows": 7}
    size = {"size_parameter": 0.5, "size_rule": "share"}
    made = plain | size | {"model": "m@half", "base_model": "m", "ref": "b", "options": {"x": 1}}
    same = {name: plain[name] for name in ("model", "base_model", "family", "ref")}
    base, sized, apart, alike = (
        sample_seed(Job(Task("t", 1, "m:f"), spec)) for spec in (plain, plain | size, made, made | {"sampled_as": same})
    )
    assert base == sized == alike != apart
