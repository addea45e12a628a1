"""Another attempt at the failed jobs of the stages."""

from __future__ import annotations

import os

from tsfmscope.stages.pipeline.run_stage import run_stage
from tsfmscope.stages.pipeline.sweeping import RETRY_VARIABLE, stages_with_failures


def retry_failures() -> list[str]:
    """Run every stage that has failed jobs, including those jobs, and return the names of these stages."""
    os.environ[RETRY_VARIABLE] = "1"
    stages = stages_with_failures()
    if stages:
        print(f"retrying {', '.join(stages)}", flush=True)
    for name in stages:
        run_stage(name)
    return stages
