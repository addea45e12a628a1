"""Single layers that bundled models can forecast without, on the guided data sets.

    python -m bench.ablation [--quick] [--models NAME ...]

Bao et al. (ICML 2026) report that every time-series foundation model survives the ablation of whole layers. Here each
layer of each model is skipped alone. The sets are those of `bench.skill` that guided the recipes, one window per
series, at most 16 series per set (8 for models that draw sample paths), context 512.

A ratio is the geometric mean over data sets of the WQL without the layer over that of the intact model. `point`: layers
whose ratio is at most 1.02 or 1.1; `upper`: layers whose one-sided upper 95 % limit over data sets is below it.
`least`: the layer with the smallest ratio.

`--quick`: two models, the bundled sets.

Last line JSON: the counts by model.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch

from bench.skill import guided_parts
from tsfmscope.functions.ablate import ablate
from tsfmscope.functions.load import load

ROOT = Path(__file__).resolve().parents[1]
LIMITS = (1.02, 1.1)
SERIES, FEW_SERIES = 16, 8


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two models, the bundled sets")
    parser.add_argument("--models", nargs="+", help="bundled models")
    options = parser.parse_args()
    torch.set_num_threads(1)
    minis = sorted(folder.name for folder in (ROOT / "tsfmscope" / "checkpoints").glob("*-mini"))
    names = options.models or (["patchtst-mini", "ttm-mini"] if options.quick else minis)
    data = None if options.quick else list(dict.fromkeys(part.dataset for part in guided_parts()))
    heads = [f"{kind} {limit:g}" for limit in LIMITS for kind in ("point", "upper")]
    print(f"{'model':18s} layers {' '.join(f'{head:>10s}' for head in heads)}  least ratio [95 %]  seconds")
    results = {}
    for name in names:
        start, model = time.process_time(), load(name)
        few = not model.family.direct_quantiles  # type: ignore[attr-defined]
        rows = ablate(model, data, parts=["layer"], windows=1, max_series=FEW_SERIES if few else SERIES).parts
        counts = {
            head: int((rows[column] <= limit).sum())
            for head, (limit, column) in zip(
                heads, [(limit, column) for limit in LIMITS for column in ("ratio", "upper")], strict=True
            )
        }
        least = min(rows.to_dict("records"), key=lambda row: float(row["ratio"]))
        results[name] = {"layers": len(rows), **counts, "least": round(float(least["ratio"]), 4)}
        print(
            f"{name:18s} {len(rows):6d} {' '.join(f'{count:10d}' for count in counts.values())}  {least['stack']} "
            f"{least['layer']}: {least['ratio']:.3f} [{least['low']:.3f}, {least['high']:.3f}]  "
            f"{time.process_time() - start:.0f}",
            flush=True,
        )
    print(json.dumps(results))


if __name__ == "__main__":
    main()
