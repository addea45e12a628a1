from __future__ import annotations

from datetime import datetime

import numpy as np
import pytest

from tsfmscope.series.catalog import CATALOG
from tsfmscope.series.files.bundled import BUNDLED, load_bundled
from tsfmscope.series.files.parquet import unusable
from tsfmscope.series.seasons import season_of


@pytest.mark.parametrize(
    ("name", "count", "steps", "missing", "first", "last", "season"),
    [
        ("sunspots", 1, 309, 0, 5.0, 2.9, 1),
        ("co2", 1, 2284, 59, 316.1, 371.5, 52),
        ("elnino", 1, 732, 0, 23.11, 22.07, 12),
        ("nile", 1, 100, 0, 1120.0, 740.0, 1),
        ("macrodata", 12, 203, 0, 2710.349, 12990.341, 4),
    ],
)
def test_a_bundled_set_has_its_known_shape(
    name: str, count: int, steps: int, missing: int, first: float, last: float, season: int
) -> None:
    series = load_bundled(name)
    assert len(series) == count
    one = series[0]
    assert (len(one.values), int(np.isnan(one.values).sum())) == (steps, missing)
    assert one.values.dtype == np.float32
    assert (one.values[0], one.values[-1]) == (np.float32(first), np.float32(last))
    assert season_of(series) == season
    assert (one.freq, one.domain) == (CATALOG[name].freq, CATALOG[name].domain)
    assert all(unusable(s.values) is None for s in series)
    assert len({s.series for s in series}) == count


def test_elnino_runs_through_the_months_of_a_year_first() -> None:
    one = load_bundled("elnino")[0]
    assert one.start == datetime(1950, 1, 1)
    np.testing.assert_allclose(one.values[[1, 11, 12]], [24.2, 21.8, 24.19], rtol=1e-6)


def test_another_name_is_refused_with_the_list() -> None:
    with pytest.raises(ValueError, match=r"expected one of \['co2', .*'sunspots'\], got 'sunspot'"):
        load_bundled("sunspot")
    assert set(BUNDLED) == {name for name, entry in CATALOG.items() if entry.source == "bundled"}
