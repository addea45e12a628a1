"""Job entries of the stage `heads`: alignment of heads, log Z of a softmax head, and Lemma 1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from pydantic import Field

from tasks.job import Job, Result, current_context
from tasks.parts import CellIdentity, ModelSource
from tsfmscope import layer_states
from tsfmscope.geometry.heads import LARGEST, head_alignments, jacobian_bounds, partition_spread
from tsfmscope.models.common.capture import KINDS, VALUED, in_batches, kept_rows, pass_windows, sample_windows
from tsfmscope.models.types import Tokens, projections, tokens_from_table
from tsfmscope.strict import Strict

if TYPE_CHECKING:
    import pyarrow as pa

    from tsfmscope.models.base import Family

SINGLE = "one token a window: attention over it weighs nothing, so W_Q and W_K are not trained"


class HeadsOptions(Strict):
    """Options of the alignment of heads and of log Z."""

    rows: int = Field(512, ge=2, description="tokens of a layer's input, from as few seeded windows as possible")
    batch: int | None = Field(None, ge=1, description="windows per forward pass; null: chosen by the device")


class LemmaOptions(Strict):
    """Instances on which Lemma 1 of Shelim et al. 2025 is checked; each needs a dense Jacobian."""

    tokens: tuple[Annotated[int, Field(ge=2, le=1024)], ...] = Field(
        (2, 8), min_length=1, description="tokens per instance; reduced if tokens x width exceeds 2048"
    )
    windows: int = Field(1, ge=0, description="instances per head, activation file and size, each from its own window")
    layers: Literal["all", "ends"] = Field("ends", description="all blocks, or the first and last of each stack")


class HeadsSpec(CellIdentity, ModelSource, HeadsOptions):
    """Spec of `align` and `partition`. seed: the pipeline's seed, on which the sample depends."""

    seed: int


class LemmaSpec(CellIdentity, ModelSource, LemmaOptions):
    """Spec of `lemma`. seed: the pipeline's seed, on which the sample depends."""

    seed: int


class Instance(NamedTuple):
    """Tokens of one window on which Lemma 1 is checked."""

    window: int
    positions: np.ndarray


def align(job: Job, data: pa.Table, model: Family) -> Result:
    """Return one `alignment` row per self-attention head: overlap with the leading directions of its input.

    data: a token dump. At most `rows` tokens per stack are used, a seeded sample of those that stand for
    values in the sampled windows. The input is that of the head's projections. If it has too few directions
    for a measure, the measure is None and `reason` explains it.
    Source: Shelim et al. 2025, Theorem 2.
    """
    spec = HeadsSpec.from_job(job)
    tokens = sample_windows(tokens_from_table(data), spec.rows, job.spec_seed)
    token_ids = kept_rows(tokens, KINDS, spec.rows, job.spec_seed)
    weights, rows = projections(model), []
    with in_batches(model, _batch(spec, tokens)):
        for layer in model.attention_inputs(tokens):
            single = tokens.kinds[layer.stack].shape[1] == 1
            states = layer.states.reshape(-1, model.width)[token_ids[layer.stack][: 0 if single else None]]
            query, key, heads = weights[layer.stack, layer.layer]
            location = {"stack": layer.stack, "layer": layer.layer, "heads": heads, "n_tokens": len(states)}
            for overlap in head_alignments(query, key, heads, states):
                sides = {"query": "centred", "query_uncentred": "uncentred"}
                short = " and ".join(name for side, name in sides.items() if overlap[side] is None)
                reason = f"{short}: fewer than m = {overlap['m']} directions above rounding" if short else None
                reason = SINGLE if single else "W_Q^T W_K is 0" if overlap["m"] == 0 else reason
                rows.append({**spec.part(CellIdentity), **location, **overlap, "reason": reason})
    return Result(rows, tokens=_count_tokens(tokens))


def partition(job: Job, data: pa.Table, model: Family) -> Result:
    """Return the `partition` row of a softmax head: log Z over teacher-forced positions of kind FORECASTING.

    data: a token dump. A position whose own input is missing (PADDING) is left out. A position whose target
    is missing is kept, because Z does not depend on the target.
    Source: Shelim et al. 2025, section 2.
    """
    spec = HeadsSpec.from_job(job)
    tokens = sample_windows(tokens_from_table(data), spec.rows, job.spec_seed)
    log_z, n_ids = layer_states.log_partition_values(model, tokens, batch=_batch(spec, tokens))
    spread = vars(partition_spread(log_z))
    row = spec.part(CellIdentity) | {"n_positions": spread.pop("n"), "n_ids": n_ids}
    row |= {f"log_z_{name}": value for name, value in spread.items()}
    reason = f"{len(log_z)} forecast positions; a spread needs 2" if row["log_z_sd"] is None else None
    return Result([{**row, "reason": reason}], tokens=_count_tokens(tokens))


def lemma(job: Job, data: pa.Table, model: Family) -> Result:
    """Return one `jacobian` row per self-attention head and instance: ‖J‖₂ and the right sides of Lemma 1.

    Λ = W_Qᵀ W_K is not scaled. data: a token dump.
    Source: Shelim et al. 2025, Lemma 1.
    """
    tokens = tokens_from_table(data)
    spec, rng = LemmaSpec.from_job(job), np.random.default_rng([job.spec_seed, 3])
    sizes = sorted({min(size, LARGEST // model.width) for size in spec.tokens})
    instances = {stack: _instances(kinds, sizes, spec.windows, rng) for stack, kinds in tokens.kinds.items()}
    window_ids = sorted({instance.window for sample in instances.values() for instance in sample})
    sample, weights, rows = tokens.take(window_ids), projections(model), []
    for layer in model.attention_inputs(sample):
        if spec.layers == "ends" and layer.layer not in (1, model.layers[layer.stack]):
            continue
        query, key, heads = weights[layer.stack, layer.layer]
        for head, (head_query, head_key) in enumerate(zip(np.split(query, heads), np.split(key, heads), strict=True)):
            location = {"stack": layer.stack, "layer": layer.layer, "head": head, "heads": heads}
            for number, instance in enumerate(instances[layer.stack]):
                states = layer.states[window_ids.index(instance.window), instance.positions]
                row = {"instance": number, "n_tokens": len(states), **_bounds(states, head_query, head_key)}
                rows.append(spec.part(CellIdentity) | location | row)
    return Result(rows, tokens=_count_tokens(sample))


def _instances(kinds: np.ndarray, sizes: list[int], windows: int, rng: np.random.Generator) -> list[Instance]:
    """Return seeded samples of tokens that stand for values, each from one window.

    There are at most `windows` samples of each size. A size is cut to the number of such tokens in the window
    that has the most. Positions are ascending.
    """
    valued = np.isin(kinds, VALUED)
    counts, instances = valued.sum(axis=1), []
    for size in sorted({min(size, int(counts.max(initial=0))) for size in sizes}):
        enough = np.flatnonzero(counts >= size)
        for window in np.sort(rng.choice(enough, min(windows, len(enough)), replace=False)).tolist():
            positions = rng.choice(np.flatnonzero(valued[window]), size, replace=False)
            instances.append(Instance(window, np.sort(positions)))
    return instances


def _bounds(states: Float[np.ndarray, "token width"], query: np.ndarray, key: np.ndarray) -> dict[str, Any]:
    if len(states) < 2:
        unmeasured = dict.fromkeys(("norm", "printed", "appendix", "safe"))
        return unmeasured | {"reason": f"{len(states)} tokens an instance; attention weighs 2 or more"}
    return vars(jacobian_bounds(states, query.T @ key)) | {"reason": None}


def _batch(spec: HeadsSpec, tokens: Tokens) -> int:
    return current_context().batch(spec.batch or pass_windows(tokens, current_context().device))


def _count_tokens(tokens: Tokens) -> int:
    return sum(kinds.size for kinds in tokens.kinds.values())
