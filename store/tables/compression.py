"""Tables of compressed models: their sizes, errors of their matrices, and changes of their forecasts."""

from __future__ import annotations

from dataclasses import replace

from store.tables.columns import F64, I16, I32, I64, TEXT, Table
from store.tables.columns import Column as C
from store.tables.shared import IDENTITY, KEY, REASON, SIZE, STACK

TABLE_2, DATA_AWARE = "Yu et al. 2026, Table 2", "docs/science.md, Compression"
_WHICH = (C("model", TEXT, "compressed model, BASE@METHOD"), C("base_model", TEXT, "original model"))

TABLES = (
    Table(
        "compression",
        "one compressed model",
        (
            *(replace(column, references=("checkpoints.model",)) for column in _WHICH),
            *(replace(column, null=False) for column in SIZE),
            C("method", TEXT, "method of compression, as in docs/compression.md"),
            C("ranks", TEXT, "rule that chose the ranks (JSON): epsilon, budget, time, share, flat, flow or bytes"),
            C("parameters", I64, "parameters of the model; shared ones count once", "parameters"),
            C("base_parameters", I64, "parameters of the original", "parameters"),
            C("attention_parameters", I64, "parameters of the attention layers", "parameters"),
            C("base_attention_parameters", I64, "parameters of the attention layers of the original", "parameters"),
            C("size_ratio", F64, "parameters divided by base_parameters", "ratio"),
            C("attention_ratio", F64, "attention_parameters divided by base_attention_parameters", "ratio"),
            C("rank_ratio", F64, "mean over parts of heads of rank divided by full width", "ratio", TABLE_2),
            C("error", F64, "root mean square of the relative errors of the parts with an effect", "", DATA_AWARE),
            KEY,
        ),
        stages=("compression",),
        key=("model",),
    ),
    Table(
        "compressed_heads",
        "one truncated part of an attention layer, or one MLP, of a compressed model",
        (
            *_WHICH,
            STACK,
            C("layer", I16, "block, from 1"),
            C("attention", TEXT, "kind of attention: self, cross, group or time; null for an MLP", null=True),
            C("part", TEXT, "product qk or vo of heads, matrix q, k, v or o, or mlp, with the name of its expert"),
            C("full_width", I32, "largest possible rank, or neurons of the original MLP", "dimensions"),
            C("rank", I32, "rank of every head after truncation, or number of neurons", "dimensions", range=(0, None)),
            C("relative_error", F64, "relative error of the truncation, in the norm of the method", "", DATA_AWARE),
        ),
        stages=("compression",),
        key=("model", "stack", "layer", "attention", "part"),
    ),
    Table(
        "fidelity",
        "one compressed model compared with its original on one (data set, condition)",
        (
            *IDENTITY,
            C("n_windows", I32, "last windows of the series with a full context", "windows"),
            C("n_positions", I64, "compared next tokens", "positions"),
            C("top", I32, "most probable next tokens per model in the overlap", "tokens"),
            C(
                "overlap",
                F64,
                "mean Jaccard overlap of the most probable next tokens",
                "share",
                TABLE_2,
                True,
                needs_reason=True,
                range=(0, 1),
            ),
            C(
                "log_ppl",
                F64,
                "log perplexity of the compressed model, whose decoder reads the context",
                "nats",
                null=True,
                range=(0, None),
            ),
            C("base_log_ppl", F64, "log perplexity of the original", "nats", null=True, range=(0, None)),
            C("lppl", F64, "log_ppl divided by base_log_ppl", "ratio", TABLE_2, True, needs_reason=True),
            C(
                "state_error",
                F64,
                "relative L2 error of the last hidden states, against the original",
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
