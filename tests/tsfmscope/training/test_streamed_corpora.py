"""Shards as a corpus: every batch follows from its step, holds windows of one row group, and all groups have a turn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stages.commands.corpora import make
from stages.planning.training import training_job
from store.dumps import write_dump
from tasks.pretraining import pretrain
from tasks.sweep.cluster import Resources
from tsfmscope.errors import DataError, ModelError
from tsfmscope.series.synthetic import shards
from tsfmscope.series.tables import list_values, series_table
from tsfmscope.series.types import Series
from tsfmscope.training.corpora import GROUP_STEPS, BatchShape, StreamedCorpus, recipe_corpus
from tsfmscope.training.options import Recipe

SHAPE = BatchShape(steps=400, contexts=[32], futures=[8], horizon=8, min_past=8)
RECIPE: dict[str, Any] = {
    "family": "chronos-t5",
    "config": {
        "d_model": 16, "d_ff": 16, "d_kv": 8, "num_heads": 2, "num_layers": 1, "num_decoder_layers": 1,
        "context_length": 32, "prediction_length": 8, "dropout_rate": 0.0, "n_tokens": 64,
    },
    "steps": 4, "batch_steps": 160, "learning_rate": 0.01, "contexts": [32], "horizon": 8, "min_past": 8,
    "mixture": {"shards": 1.0}, "pool": 1, "log_every": 2, "save_every": 2,
}  # fmt: skip


@pytest.fixture(scope="module", params=["kernelsynth", "priors"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two shards of 12 and 8 series, TSMixup and others, in row groups of 4; beside them a table of the store."""
    path: Path = tmp_path_factory.mktemp("corpus")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "BLOCK", 4)
        for number, (first, count) in enumerate([(0, 12), (12, 8)]):
            options = shards.CorpusOptions(seed=0, length=256, max_kernels=3, tsmixup=0.5, pool=8, source=request.param)
            tables = shards.shard_tables(options, range(first, first + count), [], for_gluonts=False)
            write_dump(path, f"dumps/corpus/{number:06d}.parquet", tables)
    (path / shards.CORPUS_FILE).write_text(json.dumps({"series": 20, "shard": 12, "source": request.param}))
    pq.write_table(pa.table({"path": ["dumps/corpus/000000.parquet"]}), path / "dumps" / "00000.parquet")
    return path


def groups(folder: Path) -> list[list[np.ndarray]]:
    files = [pq.ParquetFile(path) for path in sorted((folder / "dumps" / "corpus").iterdir())]
    return [list_values(file.read_row_group(n)["values"]) for file in files for n in range(file.num_row_groups)]


def home(window: np.ndarray, held: list[list[np.ndarray]]) -> set[int]:
    """Groups with a series that holds the window."""
    observed = np.flatnonzero(~np.isnan(window))
    steps, seen = observed - observed[0], window[observed]
    views = [
        (n, np.lib.stride_tricks.sliding_window_view(one, int(steps[-1]) + 1)[:, steps])
        for n, group in enumerate(held)
        for one in group
    ]
    return {n for n, view in views if (view == seen).all(axis=1).any()}


def test_a_batch_holds_windows_of_one_row_group_and_each_group_serves_once_a_round(folder: Path) -> None:
    held = groups(folder)
    assert [len(group) for group in held] == [4] * 5
    corpus, served = StreamedCorpus(folder, seed=1), []
    for block in range(2 * len(held)):
        past, future, *_ = corpus.batch(block * GROUP_STEPS, SHAPE)
        assert past.shape == (10, 32) and future.shape == (10, 8)
        whole = np.concatenate([past, future], axis=1)
        served.append(set.intersection(*(home(window, held) for window in whole)))
    assert all(len(one) == 1 for one in served)
    rounds = [[next(iter(one)) for one in served[start : start + 5]] for start in (0, 5)]
    assert [sorted(one) for one in rounds] == [list(range(5))] * 2
    assert rounds[0] != rounds[1]


@pytest.mark.parametrize(("source", "is_shown"), [("kernelsynth", True), ("priors", False)])
def test_far_future_steps_are_hidden_only_in_a_corpus_of_priors(tmp_path: Path, source: str, is_shown: bool) -> None:
    """A level that rises by 1000 inside the series is far from what the windows before it show."""
    values = np.sin(np.arange(64, dtype=np.float32))
    values[40:] += 1000
    table = series_table([Series("priors", "priors-000000", values)])
    write_dump(tmp_path, "dumps/corpus/000000.parquet", [table])
    (tmp_path / shards.CORPUS_FILE).write_text(json.dumps({"series": 1, "shard": 1, "source": source}))
    past, future, *_ = StreamedCorpus(tmp_path, seed=0).batch(0, SHAPE._replace(min_past=32))
    is_before = ~(past > 2).any(axis=1)
    assert 0 < is_before.sum() < len(past)
    assert bool((future[is_before] > 2).any()) == is_shown
    assert (future[~is_before] > 2).any()


def test_a_batch_follows_from_its_step_and_seed_alone(folder: Path) -> None:
    there, back = StreamedCorpus(folder, seed=1), StreamedCorpus(folder, seed=1)
    steps = [0, 3, GROUP_STEPS, 5 * GROUP_STEPS + 1]
    forward = {step: there.batch(step, SHAPE) for step in steps}
    for step in reversed(steps):
        again, first = back.batch(step, SHAPE), forward[step]
        assert all(map(np.array_equal, again[:2], first[:2], [True, True]))
        assert np.array_equal(again.dates(), first.dates())
    other = StreamedCorpus(folder, seed=2).batch(0, SHAPE)
    assert not np.array_equal(other[0], forward[0][0], equal_nan=True)


def test_a_recipe_trains_on_shards_and_its_key_follows_the_law_of_their_series(folder: Path, tmp_path: Path) -> None:
    recipe = Recipe.model_validate(RECIPE | {"corpus": str(folder)})
    job = training_job("m", recipe)
    assert isinstance(recipe_corpus(recipe), StreamedCorpus)
    assert [row["step"] for row in pretrain(job, tmp_path / "trained", None).rows] == [2, 4]
    spec_file = folder / shards.CORPUS_FILE
    before = spec_file.read_text()
    spec_file.write_text('{"seed": 1, "series": 20, "shard": 12}')
    try:
        assert training_job("m", recipe).key != job.key
    finally:
        spec_file.write_text(before)
    assert training_job("m", recipe).key == job.key


@pytest.fixture(params=["parquet", "arrow"])
def corpus_folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder as the command `corpus` leaves it, its tables among the rest, for the format that is its name."""
    path: Path = tmp_path / request.param
    spec = {"seed": 0, "length": 64, "max_kernels": 3, "tsmixup": 0.0, "pool": 0, "real": [], "shard": 8}
    assert make(path, spec | {"format": request.param}, 20, Resources(local_cpus=1)).failed == 0
    return path


@pytest.mark.slow
def test_of_a_corpus_made_by_the_command_the_shards_are_read_and_no_table(corpus_folder: Path) -> None:
    assert (corpus_folder / "dumps" / "00000.parquet").exists()
    if corpus_folder.name == "arrow":
        with pytest.raises(DataError, match="no Parquet shard"):
            StreamedCorpus(corpus_folder, seed=0)
        return
    corpus = StreamedCorpus(corpus_folder, seed=0)
    assert [path.name for path, _ in corpus._groups] == ["000000.parquet", "000001.parquet", "000002.parquet"]
    for block in range(3):
        assert corpus.batch(block * GROUP_STEPS, SHAPE)[0].shape == (10, 32)


def test_a_folder_without_shards_or_law_says_how_to_make_them(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no Parquet shard; make one with"):
        StreamedCorpus(tmp_path, seed=0)
    with pytest.raises(ModelError, match=r"has no corpus\.json; make it with"):
        training_job("m", Recipe.model_validate(RECIPE | {"corpus": str(tmp_path)}))


@pytest.mark.parametrize(
    "changes",
    [{"corpus": None}, {"mixture": {"bundled": 1.0}, "corpus": "c"}, {"mixture": {"bundled": 0.5, "shards": 0.5}}],
)
def test_shards_stand_alone_in_a_mixture_and_with_a_corpus(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="shards alone, and with a corpus"):
        Recipe.model_validate(RECIPE | {"corpus": "c"} | changes)


@pytest.mark.parametrize(("series", "shard", "said"), [
    (20, 12, None),
    (24, 12, r"got 20 series, expected 24 \(corpus\.json\); 1 of 2 shards are missing or short: 000001\.parquet; run"),
    (60, 12, r"4 of 5 shards are missing or short: 000001\.parquet, 000002\.parquet, 000003\.parquet \.\.\.; run "
        r"the same `tsfmscope corpus` command"),
])  # fmt: skip
def test_a_corpus_that_was_stopped_half_way_is_not_trained_on(
    folder: Path, series: int, shard: int, said: str | None
) -> None:
    recipe, spec_file = Recipe.model_validate(RECIPE | {"corpus": str(folder)}), folder / shards.CORPUS_FILE
    before = spec_file.read_text()
    spec_file.write_text(json.dumps({"series": series, "shard": shard}))
    try:
        if said is None:
            training_job("m", recipe)
            return
        with pytest.raises(DataError, match=said):
            training_job("m", recipe)
    finally:
        spec_file.write_text(before)


@pytest.mark.parametrize("futures", [[9], [4, 64], [0, 8]])
def test_futures_lie_within_the_horizon(futures: list[int]) -> None:
    with pytest.raises(ValueError, match=r"futures \[\d+\]: expected steps from 1 to horizon 8; shorten them"):
        Recipe.model_validate(RECIPE | {"corpus": "c", "futures": futures})
    assert Recipe.model_validate(RECIPE | {"corpus": "c", "futures": [1, 8]}).futures == [1, 8]
