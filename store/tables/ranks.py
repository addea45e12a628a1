"""Tables of rank measurements: spectra of inputs and weights, embedded tokens in two dimensions, angles."""

from __future__ import annotations

import math

import pyarrow as pa

from store.tables.columns import F32, F64, FLAG, I16, I32, I64, TEXT, Table
from store.tables.columns import Column as C
from store.tables.shared import KEY, MODEL, REASON, SIZE, STACK

EQ_1, EQ_2 = "Yu et al. 2026, eq. 1", "Yu et al. 2026, eq. 2"
RANK = "docs/science.md, Numerical rank"

_WHERE = (
    MODEL,
    C("base_model", TEXT, "original of a compressed model", null=True),
    *SIZE,
    C("dataset", TEXT, "data set, by its name in params; null for a weight", null=True),
    C("condition", TEXT, "condition, by its name in params; null for a weight", null=True),
    C("context", I32, "requested context length; null for a weight", "steps", null=True),
    C(
        "noise",
        F64,
        "standard deviation of the noise on the context; null for a weight",
        "s.d. of the series",
        null=True,
    ),
)
_MATRIX = (
    C("what", TEXT, "input: layer input; constant: layer input of one window of constants; weight: weight matrix"),
    C("matrix", TEXT, "weights only: q, k, v, o, mlp_in, mlp_gate, mlp_out, ssm_in or ssm_out", null=True),
    C("attention", TEXT, "attention weights only: self, cross, group or time", null=True),
    STACK,
    C("layer", I16, "states: layer, 0 is the embedding; weight: block, from 1"),
    C("normed", FLAG, "inputs only: whether the stack's final norm was applied", null=True),
    C("head", I16, "weights only: head, from 0; null for a whole matrix", null=True),
    C("heads", I16, "attention weights only: heads of the block", "heads", null=True),
    C("expert", TEXT, "MLP weights of mixtures only: expert, from 0, or shared", null=True),
    C("tokens", TEXT, "inputs only: valued (tokens of observations) or with_special (EOS too)", null=True),
    C("step", I64, "weights only: training step of the snapshot; null for the finished model", "steps", null=True),
)

_CELL_KEY = ("model", "dataset", "condition")

TABLES = (
    Table(
        "spectra",
        "one matrix with all its singular values, from which SQL computes the rank at any tolerance",
        (
            *_WHERE,
            *_MATRIX,
            C("n_rows", I64, "rows: tokens of an input or outputs of a weight", "rows"),
            C("n_columns", I32, "columns: width of an input or inputs of a weight", "columns"),
            C("dtype", TEXT, "data type of the stored or computed matrix"),
            C("floor", F64, "smallest tolerance above the rounding error of this data type", "sigma_1", RANK),
            C("singular_values", pa.list_(F64), "all singular values, descending", "", EQ_1),
            C(
                "singular_values_centred",
                pa.list_(F64),
                "singular values of an input minus its mean, descending",
                "",
                RANK,
                True,
            ),
            REASON,
            KEY,
        ),
        stages=("spectra",),
        key=(*_CELL_KEY, *(column.name for column in _MATRIX if column.name != "heads")),
        by_study=True,
    ),
    Table(
        "planes",
        "one embedded token, projected on the two leading singular directions of all embedded tokens",
        (
            *_WHERE,
            STACK,
            C("token", I32, "index of the token, from 0"),
            C("type", I32, "vocabulary id; null in families without a vocabulary", null=True),
            C(
                "value",
                F64,
                "value that the token represents, if that is a single number",
                "data units or scale",
                null=True,
            ),
            C("x", F64, "coordinate on the first direction", "state units", "Yu et al. 2026, Fig. 2"),
            C("y", F64, "coordinate on the second direction", "state units", "Yu et al. 2026, Fig. 2"),
            KEY,
        ),
        stages=("spectra",),
        key=(*_CELL_KEY, "stack", "token"),
        by_study=True,
    ),
    Table(
        "angles",
        "one vector, with its angles to all vectors of its set",
        (
            *_WHERE,
            C("what", TEXT, "tokens: embedded tokens of one window; rows: rows of a weight; gaussian: i.i.d. vectors"),
            C("matrix", TEXT, "rows only: weight matrix, such as q", null=True),
            C("stack", TEXT, "stack of Transformer layers; null for gaussian", null=True),
            C("layer", I16, "layer of the states, or block of the weight; null for gaussian", null=True),
            C("row", I32, "index of the vector, from 0"),
            C("head", I16, "rows only: head of the row", null=True),
            C("dimension", I32, "dimension of the vectors", "dimensions"),
            C(
                "angles",
                pa.list_(F32),
                "angles with every vector of the set, in order: arccos of the absolute cosine",
                "radians",
                EQ_2,
                range=(0, math.pi / 2),
                slack=1e-6,
            ),
            KEY,
        ),
        stages=("spectra",),
        by_study=True,
    ),
)
