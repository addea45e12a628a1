"""Tables of the inputs of measurements: series, models, and dumps of hidden states."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from store.tables.columns import F32, F64, I8, I32, I64, TEXT, Table
from store.tables.columns import Column as C
from store.tables.shared import (
    CONDITION,
    DATASET,
    DOMAIN,
    IDENTITY,
    KEY,
    LAYER,
    MODEL,
    NORMED,
    SEED,
    SERIES,
    STACK,
    STAGE,
)

_TOKEN = (
    STACK,
    LAYER,
    NORMED,
    C("token", I64, "row number in the stack: window times T, plus position"),
    SERIES,
    C("origin", I64, "first forecast step of the window", "steps from the series' start"),
    C("position", I32, "position of the token in its window", "tokens"),
    C("kind", I8, "token kind: 0 observation, 1 padding, 2 EOS, 3 REG, 4 mask, 5 future, 6 start"),
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
            C("values", pa.list_(F32), "values; NaN where one is missing", "data units"),
            C("kernel", TEXT, "kernel expression of a KernelSynth series", null=True),
            C("seed", I64, "seed of a synthetic series", null=True),
            C("provenance", TEXT, "origin of the values"),
            C("season", I32, "season of the data set (docs/science.md, Error)", "steps", null=True),
        ),
        stages=("kernelsynth", "datasets"),
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
            C("horizon", I32, "steps that are forecast", "steps", "Shelim et al. 2025, Table 4"),
            C(
                "season",
                I32,
                "lag of seasonal naive and of MASE's denominator, such as 7 for days; 1: no season",
                "steps",
                "docs/science.md, Error",
            ),
            C("n_series", I32, "series that are used", "series"),
            C("n_available", I32, "series that exist", "series"),
            C("n_steps", I64, "observations in the series that are used", "steps"),
            C("provenance", TEXT, "origin of the values"),
            C("paper", TEXT, "name in Shelim et al. 2025", "", "Shelim et al. 2025, Table 3", True),
            C(
                "stands_in_for",
                TEXT,
                "data set of the paper that it replaces, and the difference; null: the paper's own data",
                null=True,
            ),
        ),
        stages=("kernelsynth", "datasets"),
        key=("dataset",),
    ),
    Table(
        "skipped",
        "one item, or one kind of item, that was left out, with the reason",
        (
            STAGE,
            C("model", TEXT, "model, if the row concerns one", null=True),
            DATASET,
            C("condition", TEXT, "condition, if the row concerns one", null=True),
            C("series", TEXT, "series id, if the row concerns one", null=True),
            C("reason", TEXT, "reason for leaving it out"),
            C("n", I64, "number of items that the row counts"),
        ),
        stages=("kernelsynth", "datasets", "tokens"),
    ),
    Table(
        "dumps",
        "one activation file, or one file of tokens or series",
        (
            *_DUMP_IDENTITY,
            C("kind", TEXT, "contents: tokens, embeddings or series"),
            C("path", TEXT, "path of the file, relative to the stage's output"),
            C("rows", I64, "rows in the file", "rows"),
            C("width", I32, "width d of the states", "dimensions", null=True),
            C("dtype", TEXT, "data type of the stored states", null=True),
            C("bytes", I64, "size of the file", "bytes"),
            C("fingerprint", TEXT, "BLAKE3 of the file"),
            C("n_windows", I64, "windows in the file", "windows"),
            C("n_context_min", I32, "tokens only: fewest observed context steps of a window", "steps", null=True),
            C("n_context_median", F64, "tokens only: median observed context steps of the windows", "steps", null=True),
            C("batch", I32, "windows in one forward pass", "windows", null=True),
            KEY,
        ),
        stages=("tokens", "embeddings"),
        key=("kind", "model", "dataset", "condition"),
    ),
    Table(
        "embeddings",
        "one token at one layer; files have one record batch per stack, layer and norm",
        (*_TOKEN, C("state", pa.list_(F32), "hidden state; in files a fixed-size list of float16 or float32")),
        stages=("embeddings",),
        in_catalogue=False,
    ),
    Table(
        "embeddings_sample",
        "one token of a random sample of 1,000 tokens per model, at the last state of each stack",
        (MODEL, DATASET, CONDITION, *_TOKEN, C("state", pa.list_(F32), "hidden state")),
    ),
    Table(
        "training",
        "one logged step of one pretraining run",
        (
            MODEL,
            C("step", I64, "optimiser steps completed", "steps"),
            C("loss", F64, "mean training loss since the previous logged step", "loss units of the family"),
            C("learning_rate", F64, "learning rate of the next step; 0 after the last step"),
            KEY,
        ),
        stages=("checkpoints", "pretraining"),
        key=("model", "step"),
    ),
    Table(
        "trials",
        "one trial of a training search",
        (
            C("model", TEXT, "trial, named by its recipe, schedule and seed"),
            C("family", TEXT, "model family"),
            C("heads", TEXT, "schedule of head ranks (JSON)"),
            SEED,
            C("steps", I64, "optimiser steps of the recipe", "steps"),
            C("steps_done", I64, "optimiser steps completed", "steps"),
            C("loss", F64, "mean training loss at the last logged step", "loss units of the family"),
            C("ended", TEXT, "end of the trial: finished, or stopped because others were better"),
            C("ref", TEXT, "folder of its checkpoint, if it finished", null=True),
            C("recipe", TEXT, "SHA-256 of the training recipe, as in `checkpoints`"),
        ),
        stages=("pretraining",),
        key=("model",),
    ),
    Table(
        "checkpoints",
        "one model that the run uses",
        (
            MODEL,
            C("family", TEXT, "model family"),
            C("modality", TEXT, "modality of the input: series, text, image or table"),
            C("input_stack", TEXT, "stack that reads the tokens of the series"),
            C("output_stack", TEXT, "stack that forecasts; its last layer represents the model"),
            C("source", TEXT, "source of the weights: committed, trained, hub, folder or compressed"),
            C("ref", TEXT, "hub id, folder or name of the loaded weights"),
            C("fingerprint", TEXT, "SHA-256 of its files"),
            C("parameters", I64, "parameters and saved buffers", "parameters"),
            C("bytes", I64, "size of the weights", "bytes"),
            C("recipe", TEXT, "key of the job that trained or compressed it, if a job did", null=True),
            C("license", TEXT, "licence of the weights", null=True),
            C("options", TEXT, "options of loading that differ from the checkpoint's files (JSON)", null=True),
            C("heads", TEXT, "schedule of head ranks in pretraining, if any (JSON)", null=True),
        ),
        stages=("checkpoints", "compression"),
        key=("model",),
    ),
)
