"""The entries of stages tokens and embeddings, one after the other, on small random checkpoints."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tasks.errors import DataError
from tasks.models.base import Family
from tasks.models.embed import embed, kept_rows, schema
from tasks.models.tokenize import IDENTITY, tokenize
from tasks.models.types import TokenKind, Tokens, tokens_from_table
from tasks.series.tables import series_table
from tasks.series.types import Series
from tasks.sweep.jobs import Job, Task

CELL = {
    "model": "m",
    "base_model": None,
    "rank": None,
    "dataset": "walks",
    "condition": "c",
    "context": 40,
    "noise": 0.0,
}
SPEC = {**CELL, "horizon": 12, "min_context": 16, "held_out": None, "seed": 0, "rows": 30}
EMBED = {**CELL, "rows": 50, "batch": 4, "store_dtype": "float32"}


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
    ]
    assert result.tokens == sum(kinds.size for kinds in tokens.kinds.values())


def test_missing_steps_are_made_up_for_by_more_windows(t5: Family) -> None:
    series = [Series("walks", "s", np.where(np.arange(400) % 2, np.nan, np.arange(400.0)).astype(np.float32), freq="D")]
    tokens = tokens_from_table(dumped(t5, series_table(series), rows=100))
    assert (tokens.kinds["decoder"] == TokenKind.FUTURE).sum() >= 100


def test_as_many_rows_as_there_are_is_enough(t5: Family) -> None:
    tokens = tokens_from_table(dumped(t5, walks(count=1, steps=60), rows=10_000))
    assert len(tokens) == 60 - 16 - 12 + 1


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
        np.testing.assert_array_equal(np.array(rows["state"], np.float32), layer.states[window, position])
    assert list(result.rows) == [
        CELL | {"kind": "embeddings", "width": family.width, "dtype": "float32", "n_windows": len(tokens), "batch": 4}
    ]


def test_every_layer_of_a_stack_keeps_the_same_tokens(t5: Family) -> None:
    tables = list(embed(job(EMBED), dumped(t5, walks()), t5).dump or [])
    for stack in t5.stacks:
        kept = [table["token"].to_pylist() for table in tables if table["stack"][0].as_py() == stack]
        assert len(kept[0]) == 50
        assert all(ids == kept[0] for ids in kept)


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
        assert a["token"].to_pylist() != []
        if a["token"].equals(b["token"]):
            np.testing.assert_allclose(*states, rtol=1e-3, atol=1e-6)
    monkeypatch.setattr("tasks.models.embed.LARGEST_FLOAT16", 1e-3)
    assert embed(job(EMBED, store_dtype="float16"), data, bolt).rows[0]["dtype"] == "float32"


def test_the_sample_is_without_bias_and_without_repeats() -> None:
    kinds = {"encoder": np.zeros((4, 10), np.int8)}
    tokens = Tokens({}, kinds, {}, ["a"] * 4, np.zeros(4))
    counts = np.zeros(40)
    for seed in range(2000):
        ids = kept_rows(tokens, ["observation"], 10, seed)["encoder"]
        assert len(set(ids.tolist())) == 10
        assert (np.diff(ids) > 0).all()
        counts[ids] += 1
    spread = np.sqrt(2000 * 0.25 * 0.75)
    assert np.abs(counts - 500).max() < 4.5 * spread
