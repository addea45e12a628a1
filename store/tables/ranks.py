"""Tables of rank measurements: spectra of inputs and weights, embedded tokens in two dimensions, angles."""

from __future__ import annotations

import math

import pyarrow as pa

from tsfmscope.store.tables.columns import F32, F64, FLAG, I16, I32, I64, KEY, MODEL, REASON, STACK, TEXT, Table
from tsfmscope.store.tables.columns import Column as C

EQ_1, EQ_2 = "rank_structure.md eq. 1", "rank_structure.md eq. 2"

_WHERE = (
    MODEL,
    C("base_model", TEXT, "model that a compressed one was made from", null=True),
    C("rank", F64, "rank ratio of a compressed model", null=True),
    C("dataset", TEXT, "data set, by its name in params; null of a weight", null=True),
    C("condition", TEXT, "condition, by its name in params; null of a weight", null=True),
    C("context", I32, "steps of context asked for; null of a weight", "steps", null=True),
    C(
        "noise",
        F64,
        "standard deviation of the noise on the context; null of a weight",
        "s.d. of the series",
        null=True,
    ),
)
_MATRIX = (
    C(
        "what",
        TEXT,
        "input: tokens that a layer is given; constant: those of one window of constants; weight: a matrix",
    ),
    C("matrix", TEXT, "of a weight: q, k, v, o, mlp_in, mlp_gate or mlp_out", null=True),
    C("attention", TEXT, "of an attention weight: self, cross, group or time", null=True),
    STACK,
    C(
        "layer",
        I16,
        "of tokens: the layer that the states stand at, 0 the embedding's; of a weight: its block, from 1",
    ),
    C("normed", FLAG, "of an input: whether the stack's final norm was applied", null=True),
    C("head", I16, "of a weight: the head, from 0; null of a whole matrix", null=True),
    C("heads", I16, "of an attention weight: heads of the block", "heads", null=True),
    C("expert", TEXT, "of an MLP weight of a mixture: the expert, 0 and on, or shared", null=True),
    C("tokens", TEXT, "of an input: valued (tokens that stand for values), or with_special (EOS too)", null=True),
    C("step", I64, "of a weight: training step of the snapshot; null of the finished model", "steps", null=True),
)

_CELL_KEY = ("model", "dataset", "condition")

TABLES = (
    Table(
        "spectra",
        "one matrix and all its singular values: ranks of any tolerance are SQL",
        (
            *_WHERE,
            *_MATRIX,
            C("n_rows", I64, "rows: tokens of an input, outputs of a weight", "rows"),
            C("n_columns", I32, "columns: the width of an input, inputs of a weight", "columns"),
            C("dtype", TEXT, "type that the matrix was stored or computed in"),
            C("floor", F64, "smallest tolerance that rounding to this type leaves meaning", "sigma_1", "science.md 1"),
            C("singular_values", pa.list_(F64), "all, descending", "", EQ_1),
            C(
                "singular_values_centred",
                pa.list_(F64),
                "of an input less its mean, descending",
                "",
                "science.md 3",
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
        "one embedded token on the leading singular directions of all of them",
        (
            *_WHERE,
            STACK,
            C("token", I32, "number of the token, from 0"),
            C("type", I32, "its id in the vocabulary; null where there is none", null=True),
            C("value", F64, "what it stands for, where a single number says it", "data units or scale", null=True),
            C("x", F64, "coordinate on the first direction", "state units", "rank_structure.md Fig. 2"),
            C("y", F64, "coordinate on the second direction", "state units", "rank_structure.md Fig. 2"),
            KEY,
        ),
        stages=("spectra",),
        key=(*_CELL_KEY, "stack", "token"),
        by_study=True,
    ),
    Table(
        "angles",
        "the angles of one vector with all vectors of its set",
        (
            *_WHERE,
            C("what", TEXT, "tokens: embedded tokens of one window; rows: of a weight; gaussian: i.i.d. vectors"),
            C("matrix", TEXT, "of rows: the matrix, such as q", null=True),
            C("stack", TEXT, "run of Transformer layers; null of gaussian", null=True),
            C("layer", I16, "layer of the states, or block of the weight; null of gaussian", null=True),
            C("row", I32, "number of the vector, from 0"),
            C("head", I16, "of rows: the head that it belongs to", null=True),
            C("dimension", I32, "of the vectors", "dimensions"),
            C(
                "angles",
                pa.list_(F32),
                "with every vector of the set, in order: arccos |cos|",
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
