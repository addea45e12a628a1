"""Change of NMSE and isotropy from one condition to another, one panel per domain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tsfmscope.tasks.report.charts import panels
from tsfmscope.tasks.report.page.sections import Figure
from tsfmscope.tasks.report.plot import Plot
from tsfmscope.tasks.report.plots.domains import COLUMNS, describe_panels
from tsfmscope.tasks.report.tables import StudyTables


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw the panels; nothing if no point has a value on both logarithmic axes."""
    frame = study.rows("points", COLUMNS)
    shown = panels.place_points(frame, of_paper=study.figure is not None)
    if len(shown):
        figure = panels.draw_by_condition(frame, models, study.conditions, of_paper=study.figure is not None)
        first, *others = [name for name in study.conditions if name in set(shown["condition"])]
        fills = f"Filled: {first}{''.join(f'; then {name}' for name in others)}. Numbers: data sets of the domain."
        yield describe_panels(study, figure, frame, shown, fills)


PLOT = Plot(
    "One panel per domain, one point per model and data set. Arrows lead from the first condition to the second. "
    "Further left is more isotropic, lower is less error.",
    {"points": COLUMNS},
    draw,
)
