"""The params of the profile full with fewer repetitions of what takes most of the time of `inspect` and `recommend`."""

from __future__ import annotations

import re
from pathlib import Path

DEFAULT = (Path(__file__).parents[1] / "params" / "full.yaml").read_text()
# Starts of K-means, and random halves of the tokens.
QUICK_PARAMS = re.sub(r"(?m)^  (restarts|repeats): .*", r"  \1: 2", DEFAULT)
