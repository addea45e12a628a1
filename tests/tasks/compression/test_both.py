"""Heads absorbed, then thin factors: the two cuts by hand, the budget, what is saved, and the published sizes."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.compression import both, export
from tasks.compression.budget import BudgetError
from tasks.compression.calibration import gather
from tasks.compression.choices import stored
from tasks.compression.compressing import calibration_tokens
from tasks.compression.fidelity import last_states, state_error
from tasks.compression.truncation import compress
from tasks.models.low_rank import factors
from tasks.models.registry import family_class
from tasks.series import contrast
from tasks.series.bundled import load_bundled
from tasks.series.tables import series_table, table_series
from tasks.series.types import Windows
from tasks.series.windows import last_windows
from tests.tasks.compression import stock
from tests.tasks.compression.test_export import CONFIGS, OWN

CHECKPOINTS = Path(__file__).resolve().parents[3] / "checkpoints"
PUBLISHED = (0.889, 0.755, 0.569, 0.393, 0.237, 0.151, 0.073)  # rank_structure.md, Table 2


def test_at_one_split_it_is_the_two_methods_one_after_the_other(
    toy: Any, windows: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens, twin = toy.tokenize(windows), copy.deepcopy(toy)
    monkeypatch.setattr(both, "splits", lambda *_: [0.6])
    rows = both.compress(toy, 0.3, [tokens])

    size = stored(list(twin.attentions()))
    first = compress(twin, {"method": "aware", "ranks": {"budget": 0.6}}, gather(twin, tokens))
    left = 0.3 * size / stored(list(twin.attentions()))
    second = compress(twin, {"method": "aware-svd", "ranks": {"budget": left}}, gather(twin, tokens))
    assert rows == first + second
    for ours, theirs in zip(toy.hidden_states(tokens), twin.hidden_states(tokens), strict=True):
        assert np.array_equal(ours.states, theirs.states)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.6, 1.0])
def test_a_budget_is_kept_and_no_split_that_was_tried_errs_less(
    toy: Any, windows: Windows, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens, base, found = toy.tokenize(windows), copy.deepcopy(toy), {}
    tried = both.splits(toy, share)
    for name, heads in {"chosen": tried, **{str(one): [one] for one in tried}}.items():
        monkeypatch.setattr(both, "splits", lambda *_, heads=heads: heads)
        made = copy.deepcopy(toy)
        try:
            both.compress(made, share, [tokens])
        except BudgetError:
            continue
        assert stored(list(made.attentions())) <= share * stored(list(base.attentions()))
        found[name] = state_error(made, last_states(base, tokens), tokens)
    assert len(found) > min(2, len(tried))
    assert found["chosen"] == min(found.values())
    assert share < 1 or found["chosen"] < 1e-6


def test_splits_reach_from_absorbing_alone_to_thin_factors_alone() -> None:
    plain = family_class("chronos-bolt").load(CHECKPOINTS / "chronos-bolt-nano")
    assert both.splits(plain, 0.4) == pytest.approx([0.4, 0.6, 0.8, 1])
    rotary = family_class("moirai").load(CHECKPOINTS / "moirai-nano")  # queries and keys, a half, are not absorbed
    assert both.splits(rotary, 0.2) == pytest.approx([0.2, 0.6, 0.65, 0.7, 0.8, 1])
    assert both.splits(rotary, 1) == [1]


def test_rank_1_beyond_the_budget_is_said(toy: Any, windows: Windows) -> None:
    with pytest.raises(BudgetError, match=r"ranks budget: got 0\.\d+, expected at least 0\.\d+, which rank 1 costs"):
        both.compress(toy, 0.01, [toy.tokenize(windows)])


def test_it_is_saved_and_loaded_and_multiplied_out(toy: Any, windows: Windows, tmp_path: Path) -> None:
    tokens = toy.tokenize(windows)
    both.compress(toy, 0.2, [tokens])
    assert factors(toy.attentions()), "no matrix is of two factors"
    assert any(layer.widths.key < 8 for layer in toy.attentions()), "no head is narrower"
    export.save(toy, tmp_path / "plain")
    loaded = type(toy).load(tmp_path / "plain")
    assert loaded.compression == toy.compression
    export.save(export.densify(loaded), tmp_path / "dense")
    for made in (type(toy).load(tmp_path / "plain"), type(toy).load(tmp_path / "dense")):
        for ours, theirs in zip(made.hidden_states(tokens), toy.hidden_states(tokens), strict=True):
            np.testing.assert_allclose(ours.states, theirs.states, atol=1e-5 * np.abs(theirs.states).max())


@pytest.mark.parametrize("family", [*CONFIGS, *OWN])
def test_every_family_keeps_its_function_through_a_folder(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(both, "HEADS", (1.5,))  # heads and factors both
    model = family_class(family).new((CONFIGS | OWN)[family], seed=1)
    values = stock.context().numpy()
    if family == "vit":
        crops = contrast.crops(3, 16, np.random.default_rng(0), seen=True)
        values = np.stack([contrast.item(crop) for crop in crops]).astype(np.float32)
    steps = 1 if family == "vit" else stock.HORIZON
    origin = np.full(3, values.shape[1] - steps)
    windows = Windows(values[:, :-steps], values[:, -steps:], ["a", "b", "c"], origin, "x", "D", 1)
    tokens = model.tokenize(windows)
    before = stored(list(model.attentions()))
    both.compress(model, 0.45, [tokens])
    assert stored(list(model.attentions())) <= 0.45 * before
    export.save(model, tmp_path / "made")
    loaded = family_class(family).load(tmp_path / "made")
    for ours, theirs in zip(loaded.hidden_states(tokens), model.hidden_states(tokens), strict=True):
        assert np.isfinite(ours.states).all()
        np.testing.assert_allclose(ours.states, theirs.states, atol=1e-5 * np.abs(theirs.states).max())


def series(name: str) -> Any:
    return series_table(load_bundled(name))


@pytest.mark.slow
@pytest.mark.parametrize(("family", "count"), [("chronos-t5", 2), ("chronos-bolt", 8), ("moirai", 8)])
def test_at_published_sizes_a_trained_model_keeps_more_than_plain_svd_leaves(family: str, count: int) -> None:
    """Of the last states, on windows whose futures lie after calibration's; of Moirai, V-O alone is absorbed."""
    base = family_class(family).load(CHECKPOINTS / f"{family}-nano")
    names = ["co2", "elnino", "sunspots"]
    spec = {"datasets": names, "windows": count, "context": 200, "horizon": 24, "held_out": 0.2, "seed": 0}
    parts = calibration_tokens(base, {name: series(name) for name in names}, spec)
    (sunspots,) = table_series(series("sunspots"))
    ends = [len(sunspots.values) - back for back in (0, 18, 36)]  # of 309, of which calibration sees 247
    last = [replace(sunspots, values=sunspots.values[:end]) for end in ends]
    tokens = base.tokenize(last_windows(last, context=200, horizon=24, min_context=64, held_out=None)[0])
    wanted = last_states(base, tokens)
    sizes = PUBLISHED[-3:] if family == "chronos-t5" else PUBLISHED  # its take twenty seconds each: the bench has all
    for size in sizes:
        plain, ours = copy.deepcopy(base), copy.deepcopy(base)
        compress(plain, {"method": "svd", "ranks": {"budget": size}})
        both.compress(ours, size, parts)
        assert state_error(ours, wanted, tokens) < 0.6 * state_error(plain, wanted, tokens), size
