"""No figure, only the paper's claims and numbers next to the measured ones."""

from __future__ import annotations

from tsfmscope.report.plots import Plot
from tsfmscope.report.plots.domains import COLUMNS

PLOT = Plot("", {"points": COLUMNS}, lambda study, models: iter(()))
