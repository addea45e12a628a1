from __future__ import annotations

import numpy as np
import pytest

from tsfmscope.training.corpora import FARTHEST, BatchShape, PriorsCorpus, hide_far_steps
from tsfmscope.training.options import Phase

SHAPE = BatchShape(steps=40_000, contexts=[64, 256], futures=[8, 32], horizon=32, min_past=16)
PHASES = [Phase(until=10, batch_steps=4_000, mixture={"periodic": 1.0})]


def test_a_batch_depends_on_seed_and_step_alone() -> None:
    corpus = PriorsCorpus({"priors": 0.7, "periodic": 0.3}, [], seed=1)
    one, other = corpus.batch(5, SHAPE), PriorsCorpus({"priors": 0.7, "periodic": 0.3}, [], seed=1).batch(5, SHAPE)
    for a, b in zip(one[:2], other[:2], strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(one.dates(), other.dates())
    assert not np.array_equal(np.nan_to_num(one.future[:, :4]), np.nan_to_num(corpus.batch(6, SHAPE).future[:, :4]))


def test_shapes_and_hidden_steps_follow_the_recipe() -> None:
    corpus, shown = PriorsCorpus({"priors": 1.0}, [], seed=2), set()
    for step in range(1, 30):
        batch = corpus.batch(step, SHAPE)
        count, context = batch.context.shape
        assert context in SHAPE.contexts
        assert batch.future.shape == (count, 32)
        assert count == 40_000 // (context + 32)
        assert batch.dates().shape == (count, context + 32)
        shown.add(int((~np.isnan(batch.future)).any(axis=0).sum()))
    assert shown == {8, 32}


def test_the_first_phase_has_its_own_mixture_and_size() -> None:
    corpus = PriorsCorpus({"priors": 1.0}, PHASES, seed=3)
    first, later = ([corpus.batch(step, SHAPE) for step in steps] for steps in (range(1, 11), range(11, 21)))
    for batches, points in ((first, 4_000), (later, 40_000)):
        for batch in batches:
            assert len(batch.context) == points // (batch.context.shape[1] + 32)
    # Plain periodic series have no gaps, so that missing steps come before the first observed one only.
    for batch, is_plain in [(batch, True) for batch in first] + [(batch, False) for batch in later]:
        gaps = (np.diff(np.isnan(batch.context).astype(int), axis=1) > 0).any()
        assert gaps != is_plain


def test_a_phase_may_have_contexts_of_its_own() -> None:
    corpus = PriorsCorpus({"priors": 1.0}, [PHASES[0].model_copy(update={"contexts": [48]})], seed=3)
    assert {corpus.batch(step, SHAPE).context.shape[1] for step in range(1, 11)} == {48}
    assert {corpus.batch(step, SHAPE).context.shape[1] for step in range(11, 31)} == {64, 256}


def test_a_source_without_a_share_changes_no_batch() -> None:
    batches = [
        PriorsCorpus({"priors": 0.7, "periodic": 0.3} | more, [], seed=1).batch(5, SHAPE).context
        for more in ({}, {"weekdays": 0.0})
    ]
    np.testing.assert_array_equal(*batches)


def test_far_steps_are_hidden_by_their_distance_from_the_context() -> None:
    rng = np.random.default_rng(4)
    context, future = rng.normal(5, 2, (50, 40)), rng.normal(5, 40, (50, 8))
    context[:10, :20] = np.nan
    expected = future.copy()
    for row in range(50):
        mean, spread = np.nanmean(context[row]), np.nanstd(context[row])
        expected[row, np.abs(future[row] - mean) > FARTHEST * spread] = np.nan
    hide_far_steps(context, future)
    np.testing.assert_array_equal(future, expected)
    assert 0 < np.isnan(future).mean() < 0.9


@pytest.mark.parametrize("value", [0.0, 1e-30, 7.0, 1e30, np.nan])
def test_nothing_is_shown_after_a_context_without_scale(value: float) -> None:
    context, future = np.full((1, 30), value, dtype=np.float32), np.ones((1, 4), dtype=np.float32)
    hide_far_steps(context, future)
    assert np.isnan(future).all()
