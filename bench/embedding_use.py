"""Quality of embeddings by layer: neighbours, clusters and anomalies on series of the corpus.

    python -m bench.embedding_use [--quick] [--models NAME ...] [--corpus FOLDER] [--groups tune report]

At most 24 series of every set of a group, their last 256 steps, standardised by the model. Per layer:
- neighbours: share of series whose nearest other series (cosine of the vectors, standardised over all series) is of
  the same set, and of the same frequency;
- clusters: adjusted Rand index of k-means against the sets, k their number (scikit-learn, 10 starts);
- anomalies: 8 steps of each window are shuffled and shifted by two standard deviations, at a random place in its second
  half. Each token is scored by its distance to the nearest other token of its window. Figure: AUC of tokens that read
  a changed step against the others, mean over windows.

The layer is chosen on the group tune, for each use; the table has its quality on the other groups, next to the last
layer's, with 95 % bootstrap intervals over sets. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, roc_auc_score
from sklearn.preprocessing import StandardScaler

from bench.skill import Part, corpus_parts
from tsfmscope.functions.load import load
from tsfmscope.layer_states import PooledLayer, pool_states
from tsfmscope.models.base import Family
from tsfmscope.models.types import LayerStates, TokenKind
from tsfmscope.series.types import Windows
from tsfmscope.series.windows import last_contexts

ROOT = Path(__file__).resolve().parents[1]
MODELS = (
    *("chronos-bolt-mini", "chronos-2-mini", "patchtst-mini", "timesfm-2.5-mini", "moirai-2-mini", "toto-2-mini"),
    *("patchtst-fm-mini", "ttm-mini", "moment-mini"),
)
SERIES, CONTEXT, CHANGED, USES = 24, 256, 8, ("neighbours, set", "neighbours, frequency", "clusters", "anomalies")


def read_parts(corpus: Path, group: str, quick: bool) -> list[Part]:
    """Return some long series of every frequency of every set of a group."""
    parts = []
    for part in corpus_parts(corpus, group):
        series = [item for item in part.series if np.isfinite(item.values[-CONTEXT:]).sum() >= CONTEXT // 4]
        if series:
            parts.append(part._replace(series=series[: 8 if quick else SERIES]))
    return parts[: 6 if quick else None]


def measure(family: Family, parts: list[Part]) -> dict[tuple[str, str], dict[str, float]]:
    """Return for each layer and use the figure of every set."""
    stack, sets = family.stacks[0], np.concatenate([[part.dataset] * len(part.series) for part in parts])
    frequencies = np.concatenate([[item.freq for item in part.series] for part in parts])
    vectors, anomalies = defaultdict(list), defaultdict(lambda: defaultdict(list))
    for part in parts:
        windows = last_contexts(part.series, CONTEXT)
        for layer in pool_states(family, family.tokenize(windows), stack, "mean"):
            vectors[name_of(layer)].append(layer.vectors)
        for name, figures in find_anomalies(family, windows, stack).items():
            anomalies[name][part.dataset] += figures
    found = {}
    for name, blocks in vectors.items():
        values = StandardScaler().fit_transform(np.concatenate(blocks))
        similar = (units := values / np.linalg.norm(values, axis=1, keepdims=True)) @ units.T
        np.fill_diagonal(similar, -np.inf)
        nearest, names = similar.argmax(axis=1), np.unique(sets)
        clusters = KMeans(len(names), n_init=10, random_state=0).fit_predict(values)
        hits = {USES[0]: sets[nearest] == sets, USES[1]: frequencies[nearest] == frequencies}
        for use, hit in hits.items():
            found[name, use] = {key: float(hit[sets == key].mean()) for key in names}
        found[name, USES[2]] = {"all": float(adjusted_rand_score(sets, clusters))}
        found[name, USES[3]] = {key: float(np.mean(figures)) for key, figures in anomalies[name].items() if figures}
    return found


def find_anomalies(family: Family, windows: Windows, stack: str) -> dict[str, list[float]]:
    """Return for each layer the AUC of changed tokens in every window whose tokens cover its steps evenly."""
    rng, context = np.random.default_rng(0), windows.context.astype(np.float64).copy()
    at = rng.integers(CONTEXT // 2, CONTEXT - CHANGED, len(context))
    for row, start in zip(context, at, strict=True):
        part = slice(start, start + CHANGED)
        row[part] = rng.permutation(row[part]) + 2 * np.nanstd(row) * rng.choice([-1, 1])
    tokens = family.tokenize(replace(windows, context=context))
    observed = tokens.kinds[stack] == TokenKind.OBSERVATION
    full, found = np.isfinite(windows.context).all(axis=1), defaultdict(list)
    for layer in family.hidden_states(tokens):
        if layer.stack != stack:
            continue
        for states, kept, start, is_full in zip(layer.states, observed, at, full, strict=True):
            count = kept.sum()
            edges = np.linspace(0, CONTEXT, count + 1)
            changed = (edges[:-1] < start + CHANGED) & (edges[1:] > start)
            if not is_full or count < 8 or changed.all():
                continue
            away = np.linalg.norm(states[kept][:, None] - states[kept], axis=2) + np.diag(np.full(count, np.inf))
            found[name_of(layer)].append(roc_auc_score(changed, away.min(axis=1)))
    return found


def name_of(layer: LayerStates | PooledLayer) -> str:
    """Return the layer's number, with a prime after the final norm."""
    return f"{layer.layer}{'′' if layer.normed else ''}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one model, six sets")
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--corpus", type=Path, default=ROOT.parent / "shared" / "corpus", help="folder of the corpus")
    parser.add_argument("--groups", nargs="+", default=["tune"], help="groups whose quality is printed")
    options = parser.parse_args()
    torch.set_num_threads(1)
    parts = {name: read_parts(options.corpus, name, options.quick) for name in dict.fromkeys(("tune", *options.groups))}
    rows: list[dict[str, Any]] = []
    for model in options.models[: 1 if options.quick else None]:
        family = load(model).family
        found = {group: measure(family, some) for group, some in parts.items()}
        names = list(dict.fromkeys(name for name, _ in found["tune"]))
        for use in USES:
            best = max(names, key=lambda name: np.mean([*found["tune"][name, use].values()]))
            for group in options.groups:
                of_best, of_last = (found[group][name, use] for name in (best, names[-1]))
                values, last = np.array([*of_best.values()]), np.array([*of_last.values()])
                draws = np.random.default_rng(0).integers(len(values), size=(1000, len(values)))
                low, high = np.quantile(values[draws].mean(axis=1), [0.025, 0.975])
                less, more = np.quantile((values - last)[draws].mean(axis=1), [0.025, 0.975])
                rows.append(
                    {"model": model, "use": use, "group": group, "layer": best, "of": names[-1],
                     "value": float(values.mean()), "low": float(low), "high": float(high),
                     "over_last": float((values - last).mean()), "less": float(less), "more": float(more)}
                )  # fmt: skip
                print(
                    "| {model} | {use} | {group} | {layer} of {of} | {value:.3f} [{low:.3f}, {high:.3f}] | "
                    "{over_last:+.3f} [{less:+.3f}, {more:+.3f}] |".format(**rows[-1]), flush=True
                )  # fmt: skip
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
