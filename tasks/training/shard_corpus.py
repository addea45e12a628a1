"""Training batches from the Parquet shards that `tsfmscope corpus` writes, one row group at a time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tsfmscope.tasks.errors import DataError
from tsfmscope.tasks.series.calendar import random_clock
from tsfmscope.tasks.series.catalog import Modality
from tsfmscope.tasks.series.synthetic.shards import LAW_FILE
from tsfmscope.tasks.series.tables import list_values
from tsfmscope.tasks.training.windows import Batch, cut, streams

# training steps that draw from one row group of 1,000 series, which is read once and is the only
# one in memory
GROUP_STEPS = 16


class StreamedCorpus:
    """Folder of shards from which the batch of any step can be drawn again by its number alone.

    Each row group serves GROUP_STEPS consecutive steps, whose windows are of series drawn from it. Every pass
    over the row groups has a new random order. DataError if the folder contains no shard.
    """

    # kind of data that the values of a batch are
    modality: Modality = "series"

    def __init__(self, folder: Path, seed: int) -> None:
        import pyarrow.parquet as pq

        self.seed = seed
        paths = _shards(Path(folder))
        self._groups = [(path, group) for path in paths for group in range(pq.read_metadata(path).num_row_groups)]
        self._held: tuple[int, list[np.ndarray]] = (-1, [])

    def batch(
        self, step: int, *, steps: int, contexts: Sequence[int], futures: Sequence[int], horizon: int, min_past: int
    ) -> Batch:
        """Draw the windows of a step (`windows.cut`). Dates are random, as the series are synthetic."""
        rng, clocks = streams(self.seed, step)
        series = self._series(step)
        return cut(
            lambda: (series[rng.integers(len(series))], random_clock(clocks)),
            rng,
            steps=steps,
            contexts=contexts,
            futures=futures,
            horizon=horizon,
            min_past=min_past,
        )

    def _series(self, step: int) -> list[np.ndarray]:
        turn, place = divmod(step // GROUP_STEPS, len(self._groups))
        if self._held[0] != step // GROUP_STEPS:
            order = np.random.default_rng([self.seed, turn]).permutation(len(self._groups))
            self._held = (step // GROUP_STEPS, _read(*self._groups[order[place]]))
        return self._held[1]


def check_whole(folder: Path) -> None:
    """Raise DataError, with names, if shards are missing or have fewer series than LAW_FILE states."""
    import pyarrow.parquet as pq

    law = json.loads((folder / LAW_FILE).read_text())
    held = {int(path.stem): pq.read_metadata(path).num_rows for path in _shards(folder)}
    firsts = enumerate(range(0, law["series"], law["shard"]))
    asked = {number: min(law["shard"], law["series"] - first) for number, first in firsts}
    if short := [f"{number:06d}.parquet" for number, count in asked.items() if held.get(number, 0) < count]:
        raise DataError(
            f"corpus {folder}: {sum(held.values())} of the {law['series']} series of its {LAW_FILE}; missing or short: "
            f"{len(short)} of {len(asked)} shards, {', '.join(short[:3])}{' ...' if len(short) > 3 else ''}; run "
            "`tsfmscope corpus` again as before, which goes on"
        )


def _shards(folder: Path) -> list[Path]:
    """Return the shards of a corpus, sorted. DataError if there is none."""
    # The folder dumps itself contains the table that lists the shards.
    found = sorted(folder.glob("dumps/*/[!.]*.parquet"))
    if not found:
        raise DataError(f"corpus {folder}: no Parquet shard in it; make one with `tsfmscope corpus {folder}`")
    return found


def _read(path: Path, group: int) -> list[np.ndarray]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        return list_values(file.read_row_group(group, columns=["values"], use_threads=False)["values"])
