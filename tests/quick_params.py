"""The params of the profile full with fewer repetitions of what takes most of the time of `inspect`."""

from __future__ import annotations

import re
from pathlib import Path

DEFAULT = (Path(__file__).parents[1] / "params" / "full.yaml").read_text()
# Numbers of clusters, starts of K-means, draws of the null, and random halves of the tokens.
FEWER = {"k_max": 4, "restarts": 2, "permutations": 9, "repeats": 2}
QUICK_PARAMS = re.sub(
    rf"(?m)^  ({'|'.join(FEWER)}): \S+(?=.*\n(?s:.*)^forecasts:)",
    lambda found: f"  {found[1]}: {FEWER[found[1]]}",
    DEFAULT,
)
