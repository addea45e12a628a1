"""Tables of compressed models: their sizes, errors of their matrices, and changes of their forecasts."""

from __future__ import annotations

from dataclasses import replace

from tsfmscope.store.tables.columns import F64, I16, I32, I64, IDENTITY, KEY, REASON, STACK, TEXT, Table
from tsfmscope.store.tables.columns import Column as C

TABLE_2, DATA_AWARE = "rank_structure.md Table 2", "science.md 6"
_WHICH = (
    C("model", TEXT, "compressed model, BASE@METHOD"),
    C("base_model", TEXT, "model that it was made from"),
)

TABLES = (
    Table(
        "compression",
        "one compressed model",
        (
            *(replace(column, references=("checkpoints.model",)) for column in _WHICH),
            C("rank", F64, "share, budget, time, flat rank or first dimension; null of a tolerance", null=True),
            C(
                "method",
                TEXT,
                "svd, joint, activation-aware, activation-aware-svd, activation-aware-2step or project",
            ),
            C("ranks", TEXT, "how ranks were chosen (JSON): epsilon, budget, time, share, flat or flow"),
            C("parameters", I64, "parameters of the network, shared ones once", "parameters"),
            C("base_parameters", I64, "those of the base", "parameters"),
            C("attention_parameters", I64, "parameters of its attention layers", "parameters"),
            C("base_attention_parameters", I64, "those of the base", "parameters"),
            C("size_ratio", F64, "parameters over base_parameters", "ratio"),
            C("attention_ratio", F64, "attention_parameters over base_attention_parameters", "ratio"),
            C("rank_ratio", F64, "mean of rank over full width of its heads' parts", "ratio", TABLE_2),
            C("error", F64, "root mean square of the relative errors of its parts that have an effect", "", DATA_AWARE),
            KEY,
        ),
        stages=("compression",),
        key=("model",),
    ),
    Table(
        "compressed_heads",
        "one attention layer of a compressed model, and the part of it that was cut to a rank",
        (
            *_WHICH,
            STACK,
            C("layer", I16, "block, from 1"),
            C("attention", TEXT, "self, cross, group or time"),
            C("part", TEXT, "product qk or vo of heads, or matrix q, k, v, o"),
            C("full_width", I32, "largest rank that it could have", "dimensions"),
            C("rank", I32, "rank that it has, of every head", "dimensions", range=(0, None)),
            C("relative_error", F64, "of the cut, in the norm of the method", "", DATA_AWARE),
        ),
        stages=("compression",),
        key=("model", "stack", "layer", "attention", "part"),
    ),
    Table(
        "fidelity",
        "one compressed model beside its base on one (data set, condition)",
        (
            *IDENTITY,
            C("n_windows", I32, "last windows of series with a whole context", "windows"),
            C("n_positions", I64, "next tokens compared", "positions"),
            C("top", I32, "next tokens that each model names", "tokens"),
            C(
                "overlap",
                F64,
                "mean Jaccard overlap of the top next tokens",
                "share",
                TABLE_2,
                True,
                needs_reason=True,
                range=(0, 1),
            ),
            C(
                "log_ppl",
                F64,
                "log perplexity of the compressed model, decoder fed the context",
                "nats",
                null=True,
                range=(0, None),
            ),
            C("base_log_ppl", F64, "log perplexity of the base", "nats", null=True, range=(0, None)),
            C("lppl", F64, "log_ppl over base_log_ppl", "ratio", TABLE_2, True, needs_reason=True),
            C(
                "state_error",
                F64,
                "relative L2 error of the last hidden states, to the base's",
                null=True,
                needs_reason=True,
                range=(0, None),
            ),
            REASON,
            KEY,
        ),
        stages=("compression",),
        key=("model", "dataset", "condition"),
        by_study=True,
    ),
)
