"""Selection of MLP neurons: forecast error by the order in which neurons are removed, at equal numbers of neurons.

    python -m bench.neurons [--quick] [--models NAME ...]

Every MLP of a model keeps the same share of its neurons. The error is the pooled WQL on the last windows of data sets
that did not calibrate, over that of the dense model; calibration, windows, models and data are those of
bench/compression_race.py. Nothing is rounded or healed, and attention stays as it is.

| order | neurons that go first |
| --- | --- |
| ours | least error of the output with the best weights of the rest (`neurons.eliminate`) |
| a3 | least root mean square of the neuron times norm of its output column, as in the paper on A³ (arXiv 2505.12942) |
| magnitude | least norm of the output column |

In the rows `+ fit`, the output weights of the rest are the best ones (`neurons.best_weights`); a3 and magnitude leave
them as they are otherwise. Seconds: of the elimination of one MLP of 1,024 and of 4,096 neurons, width 64 and 1,024.
Last line JSON: errors by order and share, and the seconds.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from bench.compression_race import MODELS, Race
from bench.truncation_trained import load_series, log_wql, ratio
from tsfmscope.compression.neurons import OutputLoss, best_weights, eliminate, gather_losses, mlps
from tsfmscope.models.common.mlp import keep_neurons

SHARES = (0.75, 0.5, 0.25)
Order = Callable[[OutputLoss], np.ndarray]


def by_output_error(loss: OutputLoss) -> np.ndarray:
    """Return the neurons in the order of `eliminate`."""
    return eliminate(loss).order


def by_a3(loss: OutputLoss) -> np.ndarray:
    """Return the neurons by ascending root mean square times norm of the output column."""
    neurons = slice(loss.n_free, None)
    squares = np.diagonal(loss.matrix)[neurons]
    return np.argsort(np.sqrt(squares) * np.linalg.norm(loss.weights[neurons], axis=1))


def by_magnitude(loss: OutputLoss) -> np.ndarray:
    """Return the neurons by ascending norm of the output column."""
    return np.argsort(np.linalg.norm(loss.weights[loss.n_free :], axis=1))


# Name -> order, and whether the weights of the rest are fitted.
ORDERS: dict[str, tuple[Order, bool]] = {
    "ours + fit": (by_output_error, True),
    "a3 + fit": (by_a3, True),
    "magnitude + fit": (by_magnitude, True),
    "a3": (by_a3, False),
    "magnitude": (by_magnitude, False),
}


def with_fewer_neurons(base: Any, losses: dict[str, OutputLoss], order: Order, share: float, *, is_fitted: bool) -> Any:
    """Return a copy of a model whose MLPs keep a share of their neurons."""
    model = copy.deepcopy(base)
    for mlp in mlps(base):
        loss = losses[mlp.name]
        removed = order(loss)
        kept = np.sort(removed[len(removed) - max(1, int(share * len(removed))) :])
        rows = np.concatenate((np.arange(loss.n_free), kept + loss.n_free))
        weights = best_weights(loss, kept) if is_fitted else loss.weights[rows]
        bias = weights[0] if loss.n_free else None
        keep_neurons(model.network, mlp, kept, weights[loss.n_free :].T, bias)
    return model


def measure_errors(names: Sequence[str], shares: Sequence[float]) -> dict[str, dict[str, list[float]]]:
    """Return, by order and share, the logarithms of the errors over models and data sets; print a line per model."""
    series, found = load_series(), {name: {str(share): list[float]() for share in shares} for name in ORDERS}
    for name in names:
        race = Race(name, series)
        losses = gather_losses(race.base, mlps(race.base), race.calibration(0).tokens)
        for order, (function, is_fitted) in ORDERS.items():
            for share in shares:
                model = with_fewer_neurons(race.base, losses, function, share, is_fitted=is_fitted)
                logs = [log_wql(model, windows) - race.dense[key] for key, windows in race.windows.items()]
                found[order][str(share)] += logs
                print(f"{name:18s} {order:16s} {share:5.2f} {np.exp(np.mean(logs)):7.3f}", flush=True)
    return found


def time_elimination(neurons: int, width: int) -> float:
    """Return the seconds of the elimination of an MLP with random inputs."""
    rng = np.random.default_rng(0)
    inputs, weights = rng.normal(size=(2 * neurons, neurons)), rng.normal(size=(neurons, width))
    loss = OutputLoss(inputs.T @ inputs, weights, 0, float(np.square(inputs @ weights).sum()))
    began = time.perf_counter()
    eliminate(loss)
    return time.perf_counter() - began


def main() -> None:
    """Print the errors and the seconds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="patchtst-mini at a half, and one small MLP")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    models, shares = (["patchtst-mini"], SHARES[1:2]) if options.quick else (options.models, SHARES)
    found = measure_errors(models, shares)
    means = {name: {share: ratio(np.array(logs)) for share, logs in by.items()} for name, by in found.items()}
    print(f"\n{'order':18s}" + "".join(f"{share:>24}" for share in shares))
    for name, by_share in means.items():
        print(f"{name:18s}" + "".join("{:9.3f} [{:.3f}, {:.3f}]".format(*by_share[str(share)]) for share in shares))
    sizes = [(1024, 64)] if options.quick else [(1024, 64), (4096, 1024)]
    timed = {f"{neurons} neurons, width {width}": time_elimination(neurons, width) for neurons, width in sizes}
    for text, value in timed.items():
        print(f"{text}: {value:.2f} s")
    print(json.dumps({"means": means, "seconds": timed}))


if __name__ == "__main__":
    main()
