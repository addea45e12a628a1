"""What is measured: series, models, and the dumps of what models make of series."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from store.tables.columns import (
    CONDITION,
    DATASET,
    DOMAIN,
    F32,
    F64,
    I8,
    I32,
    I64,
    IDENTITY,
    KEY,
    LAYER,
    MODEL,
    NORMED,
    SEED,
    SERIES,
    STACK,
    STAGE,
    TEXT,
    Table,
)
from store.tables.columns import Column as C

_TOKEN = (
    STACK,
    LAYER,
    NORMED,
    C("token", I64, "row id inside the stack: window * T + position"),
    SERIES,
    C("origin", I64, "first forecast step of the window", "steps from the series' start"),
    C("position", I32, "position of the token in its window", "tokens"),
    C(
        "kind",
        I8,
        "0 observation, 1 padding, 2 EOS, 3 REG, 4 mask, 5 future, 6 start",
    ),
    C("type", I32, "vocabulary index; null in families without a vocabulary", null=True),
)
# A dump of series belongs to no model and no condition.
_DUMP_IDENTITY = tuple(column if column.name == "dataset" else replace(column, null=True) for column in IDENTITY)

TABLES = (
    Table(
        "series",
        "one series",
        (
            DATASET,
            SERIES,
            DOMAIN,
            C("freq", TEXT, "sampling frequency, as pandas names it"),
            C("start", pa.timestamp("ms"), "time of the first value", null=True),
            C("values", pa.list_(F32), "the values, NaN where missing", "the series' own"),
            C("kernel", TEXT, "kernel expression of a KernelSynth series", null=True),
            C("seed", I64, "seed of a synthetic series", null=True),
            C("provenance", TEXT, "where the values come from"),
        ),
        in_catalogue=False,
    ),
    Table(
        "datasets",
        "one data set",
        (
            DATASET,
            C("source", TEXT, "kernelsynth, bundled, folder or hub"),
            DOMAIN,
            C("freq", TEXT, "sampling frequency, as pandas names it"),
            C("horizon", I32, "steps forecast", "steps", "isotropy.md, Table 4"),
            C("season", I32, "season of the seasonal naive forecast", "steps"),
            C("n_series", I32, "series used", "series"),
            C("n_available", I32, "series there are", "series"),
            C("n_steps", I64, "observations over the series used", "steps"),
            C("provenance", TEXT, "where the values come from"),
            C("paper", TEXT, "the isotropy paper's name for it", "", "isotropy.md, Table 3", True),
            C("stands_in_for", TEXT, "not the paper's own: what it stands in for, how it differs", null=True),
        ),
    ),
    Table(
        "skipped",
        "one thing, or one kind of thing, left out, and why",
        (
            STAGE,
            C("model", TEXT, "model, where it matters", null=True),
            DATASET,
            C("condition", TEXT, "condition, where it matters", null=True),
            C("series", TEXT, "series id, where the row is about one", null=True),
            C("reason", TEXT, "why it was left out"),
            C("n", I64, "how many things the row counts"),
        ),
    ),
    Table(
        "dumps",
        "one dump file",
        (
            *_DUMP_IDENTITY,
            C("kind", TEXT, "tokens, embeddings or series"),
            C("path", TEXT, "file, relative to the stage's out"),
            C("rows", I64, "rows of the file", "rows"),
            C("width", I32, "width d of the states", "dimensions", null=True),
            C("dtype", TEXT, "type that the states are stored in", null=True),
            C("bytes", I64, "size of the file", "bytes"),
            C("fingerprint", TEXT, "BLAKE3 of the file"),
            C("n_windows", I64, "windows in the file", "windows"),
            C("batch", I32, "windows in one forward pass", "windows", null=True),
            KEY,
        ),
    ),
    Table(
        "embeddings",
        "one token at one layer (dump files; a record batch a stack, layer and norm)",
        (
            *_TOKEN,
            C("state", pa.list_(F32), "hidden state (a fixed-size list of float16 or float32 in the dumps)"),
        ),
        in_catalogue=False,
    ),
    Table(
        "embeddings_sample",
        "one token of a seeded sample of 1,000 a model, last states of each stack",
        (
            MODEL,
            DATASET,
            CONDITION,
            *_TOKEN,
            C("state", pa.list_(F32), "hidden state"),
        ),
    ),
    Table(
        "training",
        "one logged step of one pretraining run",
        (
            MODEL,
            C("step", I64, "optimiser steps done", "steps"),
            C("loss", F64, "mean training loss since the last logged step", "the family's own"),
            C("learning_rate", F64, "learning rate of the step after it, 0 after the last"),
            KEY,
        ),
    ),
    Table(
        "trials",
        "one trial of a training search",
        (
            C("model", TEXT, "trial: its recipe, schedule and seed"),
            C("family", TEXT, "model family"),
            C("heads", TEXT, "schedule of ranks of its heads (JSON)"),
            SEED,
            C("steps", I64, "optimiser steps of the recipe", "steps"),
            C("steps_done", I64, "optimiser steps done", "steps"),
            C("loss", F64, "mean training loss at the last logged of them", "the family's own"),
            C("ended", TEXT, "finished, or stopped for being behind others"),
            C("ref", TEXT, "folder of its checkpoint, where it finished", null=True),
            C("recipe", TEXT, "SHA-256 of the training recipe, as in `checkpoints`"),
        ),
    ),
    Table(
        "skill",
        "the skill of one checkpoint on unseen windows",
        (
            MODEL,
            C("n_windows", I32, "windows scored", "windows"),
            C("n_datasets", I32, "data sets they come from", "data sets"),
            C("wql_vs_median", F64, "geometric mean of WQL over the context median's", "ratio"),
            C("low", F64, "lower end of its 95 % bootstrap interval", "ratio"),
            C("high", F64, "upper end of its 95 % bootstrap interval", "ratio"),
            C("wql_vs_seasonal", F64, "geometric mean of WQL over seasonal naive's", "ratio"),
            C("seasonal_low", F64, "lower end of its 95 % bootstrap interval", "ratio"),
            C("seasonal_high", F64, "upper end of its 95 % bootstrap interval", "ratio"),
            C("bootstrap", I32, "bootstrap resamples", "resamples"),
            SEED,
            C("recipe", TEXT, "SHA-256 of the training recipe"),
            KEY,
        ),
    ),
    Table(
        "checkpoints",
        "one model that the run uses",
        (
            MODEL,
            C("family", TEXT, "model family"),
            C("modality", TEXT, "of the data sets that it reads: series, text, image or table"),
            C("source", TEXT, "committed, trained, hub, folder or compressed"),
            C("ref", TEXT, "hub id, folder or name that it was loaded by"),
            C("fingerprint", TEXT, "SHA-256 of its files"),
            C("parameters", I64, "numbers in its weights: parameters, and saved buffers", "parameters"),
            C("bytes", I64, "size of its weights", "bytes"),
            C("recipe", TEXT, "key of the job that trained or compressed it, where we did", null=True),
            C("license", TEXT, "licence of the weights", null=True),
            C("environment", TEXT, "name and packages of an environment of its own, where it ran in one", null=True),
            C("options", TEXT, "how it is read, where not as its files say (JSON)", null=True),
            C("heads", TEXT, "schedule of ranks that its heads were pretrained with, if any (JSON)", null=True),
        ),
    ),
)
