"""Another attempt at the failed jobs of the stages."""

from __future__ import annotations

from stages.planning.run_stage import run_stage
from stages.planning.sweeping import RETRY_VARIABLE, stages_with_failures
from tasks.sweep.cluster import environment


def retry_failures() -> list[str]:
    """Run every stage that has failed jobs, including those jobs, and return the names of these stages."""
    stages = stages_with_failures()
    if stages:
        print(f"retrying {', '.join(stages)}", flush=True)
    with environment({RETRY_VARIABLE: "1"}):
        for name in stages:
            run_stage(name)
    return stages
