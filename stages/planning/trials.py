"""Trials of the search over rank schedules: one job per schedule and seed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from stages.config import Pretraining
from stages.config.params import Params
from stages.planning.training_jobs import training_job
from tasks.job import Job
from tsfmscope.compression.options import FlowRanks, HeadRanks


def trials(params: Params) -> dict[str, Job]:
    """Return the job of every trial by name: the recipe with each schedule and seed, one group per seed."""
    block = params.pretraining
    if block.recipe is None:
        return {}
    recipe = params.checkpoints.recipes[block.recipe]
    jobs = {}
    for schedule, heads in _schedules(block):
        for seed in block.seeds:
            name = f"{block.recipe}+{schedule}+{seed}"
            job = training_job(name, recipe.model_copy(update={"heads": heads, "seed": seed}))
            # Trials are compared within a seed: losses of two seeds differ for other reasons than
            # the schedule.
            jobs[name] = replace(job, group=f"seed {seed}")
    return jobs


def _schedules(block: Pretraining) -> Iterator[tuple[str, HeadRanks]]:
    common: Any = {"factors": block.factors, "attention": block.attention}
    for first, growth in itertools.product(block.first, block.growth):
        flow = FlowRanks(
            first=first,
            growth=growth,
            rounding=block.rounding,
            origin=block.origin,
            cross_offset=block.cross_offset,
        )
        yield f"flow-{first:g}-{growth:g}", HeadRanks(flow=flow, **common)
    for guideline in block.guideline:
        name = f"guideline-{guideline.smallest:g}-{guideline.largest or 0:g}-{guideline.bend:g}"
        yield name, HeadRanks(guideline=guideline, **common)
    for rank in block.flat:
        yield f"flat-{rank}", HeadRanks(flat=rank, **common)
