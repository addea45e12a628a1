"""Training batches from the Parquet shards that `tsfmscope corpus` writes, one row group at a time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tsfmscope.errors import DataError
from tsfmscope.series.calendar import random_clock
from tsfmscope.series.catalog import Modality
from tsfmscope.series.synthetic.shards import CORPUS_FILE
from tsfmscope.series.tables import list_values
from tsfmscope.training.priors_corpus import hide_far_steps
from tsfmscope.training.windows import Batch, cut_windows, streams

# Training steps that draw from one row group of 1,000 series, which is read once and is the only
# row group in memory.
GROUP_STEPS = 16


class StreamedCorpus:
    """Folder of shards from which the batch of any step can be drawn again by its number alone.

    Each row group serves GROUP_STEPS consecutive steps, whose windows are of series drawn from it. Every pass
    over the row groups has a new random order. In a corpus of priors, future steps far from their context are
    hidden, as in `PriorsCorpus`. DataError if the folder contains no shard.
    """

    # Kind of data of the values of a batch.
    modality: Modality = "series"

    def __init__(self, folder: Path, seed: int) -> None:
        import pyarrow.parquet as pq

        self.seed = seed
        paths = _shards(Path(folder))
        self._groups = [(path, group) for path in paths for group in range(pq.read_metadata(path).num_row_groups)]
        # Other corpora keep such steps, so that their trainings stay as they are.
        file = Path(folder) / CORPUS_FILE
        self._hides_far_steps = file.exists() and json.loads(file.read_text()).get("source") == "priors"
        self._loaded: tuple[int, list[np.ndarray]] = (-1, [])

    def batch(
        self, step: int, *, steps: int, contexts: Sequence[int], futures: Sequence[int], horizon: int, min_past: int
    ) -> Batch:
        """Draw the windows of a step (`windows.cut_windows`). Dates are random, as the series are synthetic."""
        rng, clocks = streams(self.seed, step)
        series = self._series(step)
        batch = cut_windows(
            lambda: (series[rng.integers(len(series))], random_clock(clocks)),
            rng,
            steps=steps,
            contexts=contexts,
            futures=futures,
            horizon=horizon,
            min_past=min_past,
        )
        if self._hides_far_steps:
            hide_far_steps(batch.context, batch.future)
        return batch

    def _series(self, step: int) -> list[np.ndarray]:
        import pyarrow.parquet as pq

        turn, index = divmod(step // GROUP_STEPS, len(self._groups))
        if self._loaded[0] != step // GROUP_STEPS:
            order = np.random.default_rng([self.seed, turn]).permutation(len(self._groups))
            path, group = self._groups[order[index]]
            with pq.ParquetFile(path) as file:
                rows = file.read_row_group(group, columns=["values"], use_threads=False)
            self._loaded = (step // GROUP_STEPS, list_values(rows["values"]))
        return self._loaded[1]


def check_complete(folder: Path) -> None:
    """Raise DataError, with names, if shards are missing or have fewer series than CORPUS_FILE states."""
    import pyarrow.parquet as pq

    spec = json.loads((folder / CORPUS_FILE).read_text())
    counts = {int(path.stem): pq.read_metadata(path).num_rows for path in _shards(folder)}
    firsts = enumerate(range(0, spec["series"], spec["shard"]))
    expected = {number: min(spec["shard"], spec["series"] - first) for number, first in firsts}
    if short := [f"{number:06d}.parquet" for number, count in expected.items() if counts.get(number, 0) < count]:
        raise DataError(
            f"corpus {folder}: got {sum(counts.values())} series, expected {spec['series']} ({CORPUS_FILE}); "
            f"{len(short)} of {len(expected)} shards are missing or short: {', '.join(short[:3])}"
            f"{' ...' if len(short) > 3 else ''}; run the same `tsfmscope corpus` command again to "
            "complete them"
        )


def _shards(folder: Path) -> list[Path]:
    """Return the shards of a corpus, sorted. DataError if there is none."""
    # Files directly in dumps/ belong to the table that lists the shards.
    paths = sorted(folder.glob("dumps/*/[!.]*.parquet"))
    if not paths:
        raise DataError(f"corpus {folder}: got no Parquet shard; make one with `tsfmscope corpus {folder}`")
    return paths
