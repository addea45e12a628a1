"""Predicted cost of a params file by stage and model: rows, seconds, memory and bytes.

The stages are those that run models on every cell, and `geometry`. tasks/cost.py predicts the work of one model.
"""

from __future__ import annotations

import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tsfmscope.stages.config.params import Params
from tsfmscope.stages.pipeline.planned_cells import PlannedCell
from tsfmscope.tasks import cost
from tsfmscope.tasks.cost import ModelSize
from tsfmscope.tasks.speed import GeometryDraws, Speed, Work, geometry_bytes, geometry_seconds

# Stages whose cost is predicted, in their order.
PREDICTED = ("tokens", "embeddings", "forecasts", "geometry")
# Memory of a Ray actor in addition to that of a plain process with the same packages; 50 MB for geometry (2026-11-28).
ACTOR_BYTES = 60e6
# Seconds of a stage to import the packages of a family: 7.5 and 8.1 in a rehearsal of 2026-11-28
# (docs/results/rehearsal.md). Bytes of weights that are loaded per second: assumed; there, 90 to 450 MB/s.
START_SECONDS, READ_BYTES = 8.0, 300e6
# Seconds to tokenise a window, and bytes of an activation file that are written and checksummed per second.
SECONDS_OF_WINDOW, WRITE_BYTES = 1e-3, 500e6


@dataclass(frozen=True)
class Cost:
    """Predicted cost of a stage for one model.

    rows: rows of activation files, of token dumps, or of the stage's table. seconds: of one worker. peak_bytes: largest
    memory of a worker. device_bytes: of the GPU; None on a CPU. bytes: of the files on the disk.
    """

    stage: str
    model: str
    cells: int
    rows: int
    seconds: float
    peak_bytes: float
    device_bytes: float | None
    bytes: float


@dataclass(frozen=True)
class Settings:
    """Sizes of params.yaml on which costs depend, and which a budget may ask to change.

    rows: embeddings.rows. max_series: datasets.max_series. The others are as in the blocks `embeddings`, `geometry` and
    `forecasts`.
    """

    rows: int
    max_series: int
    value_bytes: int
    geometry_rows: int
    draws: GeometryDraws
    cai: str
    samples: int
    batch: int

    @classmethod
    def of(cls, params: Params) -> Settings:
        """Return the settings of a params file."""
        geometry = params.geometry
        return cls(
            rows=params.embeddings.rows,
            max_series=params.datasets.max_series or sys.maxsize,
            value_bytes=2 if params.embeddings.store_dtype == "float16" else 4,
            geometry_rows=geometry.rows,
            draws=GeometryDraws(
                restarts=geometry.restarts, permutations=geometry.permutations, repeats=geometry.repeats
            ),
            cai=geometry.cai,
            samples=params.forecasts.samples,
            batch=params.forecasts.batch,
        )


def predict_costs(cells: Iterable[PlannedCell], settings: Settings, device: Speed, core: Speed) -> list[Cost]:
    """Return one row per stage and model.

    device: speed of the device that runs the models. core: speed of one core of this machine.
    """
    by_model: dict[str, list[PlannedCell]] = defaultdict(list)
    for planned in cells:
        by_model[planned.cell.model].append(planned)
    rows = []
    families = Counter(planned_cells[0].size.family for planned_cells in by_model.values())
    for stage in PREDICTED:
        speed = core if stage == "geometry" else device
        for model, planned_cells in by_model.items():
            parts = [_STAGES[stage](planned, settings, speed) for planned in planned_cells]
            if used := [part for part in parts if part is not None]:
                size = planned_cells[0].size
                # The models of a family share the start.
                rows.append(_add(stage, model, size, used, speed, START_SECONDS / families[size.family]))
    return rows


class _Part(NamedTuple):
    """Cost of one cell in a stage. memory: bytes of the process besides loading."""

    rows: int
    seconds: float
    memory: float
    bytes: float


def _add(stage: str, model: str, size: ModelSize, parts: Sequence[_Part], speed: Speed, start: float) -> Cost:
    """Return the cost of a model's cells in a stage. start: seconds before the weights are loaded."""
    loads = stage != "geometry"
    start += loads * size.weight_bytes / READ_BYTES
    return Cost(
        stage=stage,
        model=model,
        cells=len(parts),
        rows=sum(part.rows for part in parts),
        seconds=start + sum(part.seconds for part in parts),
        peak_bytes=ACTOR_BYTES + max(loads * cost.load_bytes(size), *(part.memory for part in parts)),
        device_bytes=cost.device_bytes(size) if speed.is_gpu and stage in ("embeddings", "forecasts") else None,
        bytes=sum(part.bytes for part in parts),
    )


def _tokens_part(planned: PlannedCell, settings: Settings, speed: Speed) -> _Part | None:
    if not planned.windows:
        return None
    windows = planned.windows_of(settings.max_series)
    size = planned.token_bytes * windows
    return _Part(windows, windows * SECONDS_OF_WINDOW, planned.size.process_bytes + 2 * size, size)


def _embeddings_part(planned: PlannedCell, settings: Settings, speed: Speed) -> _Part | None:
    if not planned.windows:
        return None
    size, windows = planned.size, planned.windows_of(settings.max_series)
    share = windows / planned.windows
    valued = {stack: int(count * share) for stack, count in planned.valued.items()}
    kept = {stack: min(settings.rows, count) for stack, count in valued.items()}
    # Windows without a kept token are not run.
    missed = math.prod((1 - kept[stack] / count) ** (count / windows) for stack, count in valued.items() if count)
    work = cost.states_work(size, planned.tokens, windows * (1 - missed), "cuda" if speed.is_gpu else "cpu")
    rows = sum(size.stacks[stack].states * count for stack, count in kept.items())
    stored = cost.activation_bytes(size, kept, settings.value_bytes)
    write = stored / WRITE_BYTES
    memory = cost.states_bytes(size, kept, windows * sum(planned.tokens.values()))
    return _Part(rows, speed.seconds(work) + write, memory, stored)


def _forecasts_part(planned: PlannedCell, settings: Settings, speed: Speed) -> _Part | None:
    counts = planned.forecasts_of(settings.max_series)
    if not counts:
        return None
    options = {"horizon": planned.horizon, "samples": settings.samples, "batch": settings.batch}
    work = sum((cost.forecast_work(planned.size, planned.tokens, n, **options) for n in counts), Work())
    memory = cost.forecast_bytes(planned.size, planned.tokens, max(counts), **options)
    return _Part(sum(counts), speed.seconds(work), memory, 0.0)


def _geometry_part(planned: PlannedCell, settings: Settings, speed: Speed) -> _Part | None:
    if not any(planned.layers.values()):
        return None
    width, seconds, memory = planned.size.width, 0.0, 0.0
    for stack, layers in planned.layers.items():
        count = min(settings.geometry_rows, settings.rows, planned.valued.get(stack, 0))
        with_cai = {"none": 0, "last": min(layers, 1), "all": layers}[settings.cai]
        seconds += (layers - with_cai) * geometry_seconds(count, width, speed, settings.draws, with_cai=False)
        seconds += with_cai * geometry_seconds(count, width, speed, settings.draws, with_cai=True)
        memory = max(memory, geometry_bytes(count, width))
    return _Part(sum(planned.layers.values()), seconds, memory, 0.0)


_STAGES = dict(zip(PREDICTED, (_tokens_part, _embeddings_part, _forecasts_part, _geometry_part), strict=True))
