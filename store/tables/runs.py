"""Tables of studies and their jobs, and of failures, timings and runs."""

from __future__ import annotations

from store.tables.columns import F64, FLAG, I32, I64, MOMENT, TEXT, Table
from store.tables.columns import Column as C
from store.tables.shared import KEY, SEED, STAGE

TABLES = (
    Table(
        "study_jobs",
        "one job that one study requests",
        (
            C("study", TEXT, "study, by its name in params"),
            C("stage", TEXT, "stage of the job: compression, geometry, spectra or forecasts"),
            KEY,
        ),
        key=("study", "stage", "job_key"),
    ),
    Table(
        "studies",
        "one study with its question",
        (
            C("study", TEXT, "study, by its name in params"),
            C("title", TEXT, "question of the study in words"),
            C("figure", TEXT, "figure or table of a paper that the study repeats", null=True),
            C("plot", TEXT, "plot of the study in the report, as `plot` in params.yaml"),
            C("x_axis", TEXT, "x value of each model in a grid of models (JSON)", null=True),
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
            C("spec", TEXT, "specification of the job (canonical JSON)"),
            C("error", TEXT, "type of the exception"),
            C("message", TEXT, "message of the exception"),
            C("traceback", TEXT, "traceback of the exception"),
            C("attempts", I32, "number of attempts", "attempts"),
            C("transient", FLAG, "whether the next run tries the job again"),
        ),
    ),
    Table(
        "timings",
        "one job with its wall-clock times",
        (
            STAGE,
            C("key", TEXT, "key of the job"),
            C("task", TEXT, "kind of job", null=True),
            C(
                "subject",
                TEXT,
                "model of the job (of a compressed model, its original), else experiment or task",
                null=True,
            ),
            C("seconds", F64, "duration of the job", "s"),
            C("load_seconds", F64, "duration of loading the model; 0 if it was loaded already", "s"),
            C("actor", TEXT, "Ray actor that ran the job"),
            C("node", TEXT, "node of the actor"),
            C("device", TEXT, "device of the computation"),
            C("started", MOMENT, "start", "UTC"),
            C("tokens_per_s", F64, "tokens per second, if the job processes tokens", "tokens/s", null=True),
        ),
    ),
    Table(
        "runs",
        "one run of one stage",
        (
            STAGE,
            C("started", MOMENT, "start", "UTC"),
            C("seconds", F64, "duration", "s"),
            C("jobs", I64, "planned jobs", "jobs"),
            C("done", I64, "jobs completed in this run", "jobs"),
            C("reused", I64, "jobs completed by an earlier run", "jobs"),
            C("failed", I64, "jobs without rows at the end of the run", "jobs"),
            C("commit", TEXT, "git commit; + means that files differ from it"),
            C("versions", TEXT, "versions of Python and packages (JSON)"),
            C("hardware", TEXT, "processor and accelerators"),
            C("cpus", I32, "CPU cores in use", "cores"),
            C("gpus", I32, "GPUs in use", "GPUs"),
            SEED,
            C("host", TEXT, "name of the machine"),
        ),
    ),
)
