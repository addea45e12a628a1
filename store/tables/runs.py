"""Tables of studies and their jobs, and of failures, timings and runs."""

from __future__ import annotations

from tsfmscope.store.tables.columns import F64, FLAG, I32, I64, KEY, MOMENT, SEED, STAGE, TEXT, Table
from tsfmscope.store.tables.columns import Column as C

TABLES = (
    Table(
        "study_jobs",
        "one job that one study asks for",
        (
            C("study", TEXT, "study, by its name in params"),
            C("stage", TEXT, "stage that ran it: compression, geometry, spectra or forecasts"),
            KEY,
        ),
        key=("study", "stage", "job_key"),
    ),
    Table(
        "studies",
        "one study, and what it asks",
        (
            C("study", TEXT, "study, by its name in params"),
            C("title", TEXT, "the question in words"),
            C("figure", TEXT, "the figure or table of a paper that it answers", null=True),
            C("plot", TEXT, "how the report draws it, as `plot` in params.yaml"),
            C("x_axis", TEXT, "what a grid of models varies: model -> x (JSON)", null=True),
        ),
        stages=("statistics",),
        key=("study",),
    ),
    Table(
        "failures",
        "one failed job",
        (
            STAGE,
            C("key", TEXT, "key of the job"),
            C("task", TEXT, "kind of job"),
            C("spec", TEXT, "what was asked, canonical JSON"),
            C("error", TEXT, "type of the exception"),
            C("message", TEXT, "its message"),
            C("traceback", TEXT, "its traceback"),
            C("attempts", I32, "times tried", "attempts"),
            C("transient", FLAG, "whether the next run tries again by itself"),
        ),
    ),
    Table(
        "timings",
        "one job's wall clock",
        (
            STAGE,
            C("key", TEXT, "key of the job"),
            C("task", TEXT, "kind of job", null=True),
            C("subject", TEXT, "its model, of a compressed one the base; else its experiment, or the task", null=True),
            C("seconds", F64, "time in the job", "s"),
            C("load_seconds", F64, "time spent loading its model, 0 where it was loaded", "s"),
            C("actor", TEXT, "Ray actor that did it"),
            C("node", TEXT, "node that the actor ran on"),
            C("device", TEXT, "device that it computed on"),
            C("started", MOMENT, "when it started", "UTC"),
            C("tokens_per_s", F64, "tokens a second, where it makes sense", "tokens/s", null=True),
        ),
    ),
    Table(
        "runs",
        "one run of one stage",
        (
            STAGE,
            C("started", MOMENT, "when it started", "UTC"),
            C("seconds", F64, "how long it took", "s"),
            C("jobs", I64, "jobs planned", "jobs"),
            C("done", I64, "jobs done in this run", "jobs"),
            C("reused", I64, "jobs found done", "jobs"),
            C("failed", I64, "jobs without rows at its end", "jobs"),
            C("commit", TEXT, "git commit, with + where files differ from it"),
            C("versions", TEXT, "versions of what was used, JSON"),
            C("hardware", TEXT, "processor and accelerators"),
            C("cpus", I32, "cores used", "cores"),
            C("gpus", I32, "GPUs used", "GPUs"),
            SEED,
            C("host", TEXT, "machine"),
        ),
    ),
)
