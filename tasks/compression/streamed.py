"""Training batches from the Parquet shards that `python -m stages corpus` writes, a row group at a time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tasks.compression.windows import cut
from tasks.errors import DataError
from tasks.series.catalog import Modality
from tasks.series.shards import LAW_FILE
from tasks.series.tables import list_values

GROUP_STEPS = 16  # steps that take their series from one row group, 1,000 series: read once, and held alone


class StreamedCorpus:
    """A folder of shards from which any training batch can be drawn again by its step alone.

    Row groups come in an order drawn anew each time round; each serves GROUP_STEPS steps, whose windows are of series
    drawn from it. DataError where the folder holds no series.
    """

    modality: Modality = "series"  # what the values of a batch stand for

    def __init__(self, folder: Path, seed: int) -> None:
        import pyarrow.parquet as pq

        self.seed = seed
        paths = _shards(Path(folder))
        self._groups = [(path, group) for path in paths for group in range(pq.read_metadata(path).num_row_groups)]
        self._held: tuple[int, list[np.ndarray]] = (-1, [])

    def batch(
        self, step: int, *, steps: int, contexts: Sequence[int], futures: Sequence[int], horizon: int, min_past: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """As `Corpus.batch`."""
        rng = np.random.default_rng([self.seed, step])
        series = self._series(step)
        return cut(
            lambda: series[rng.integers(len(series))],
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
    """DataError, naming them, where shards that the law of a corpus promises are missing or hold fewer series."""
    import pyarrow.parquet as pq

    law = json.loads((folder / LAW_FILE).read_text())
    held = {int(path.stem): pq.read_metadata(path).num_rows for path in _shards(folder)}
    firsts = enumerate(range(0, law["series"], law["shard"]))
    asked = {number: min(law["shard"], law["series"] - first) for number, first in firsts}
    if short := [f"{number:06d}.parquet" for number, count in asked.items() if held.get(number, 0) < count]:
        raise DataError(
            f"corpus {folder}: {sum(held.values())} of the {law['series']} series of its {LAW_FILE}; missing or short: "
            f"{len(short)} of {len(asked)} shards, {', '.join(short[:3])}{' ...' if len(short) > 3 else ''}; run "
            "`python -m stages corpus` again as before, which goes on"
        )


def _shards(folder: Path) -> list[Path]:
    """Its files, in their order. DataError where there is none."""
    found = sorted(folder.glob("dumps/*/[!.]*.parquet"))  # in dumps itself lies the table that lists them
    if not found:
        raise DataError(f"corpus {folder}: no Parquet shard in it; make one with `python -m stages corpus {folder}`")
    return found


def _read(path: Path, group: int) -> list[np.ndarray]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        return list_values(file.read_row_group(group, columns=["values"], use_threads=False)["values"])
