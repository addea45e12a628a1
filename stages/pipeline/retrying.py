"""Another attempt at the failed jobs of the stages."""

from __future__ import annotations

from tsfmscope.stages.pipeline.run_stage import run_stage
from tsfmscope.stages.pipeline.sweeping import RETRY_VARIABLE, stages_with_failures
from tsfmscope.tasks.sweep.cluster import environment


def retry_failures() -> list[str]:
    """Run every stage that has failed jobs, including those jobs, and return the names of these stages."""
    stages = stages_with_failures()
    if stages:
        print(f"retrying {', '.join(stages)}", flush=True)
    with environment({RETRY_VARIABLE: "1"}):
        for name in stages:
            run_stage(name)
    return stages
