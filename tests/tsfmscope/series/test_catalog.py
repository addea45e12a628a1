from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from tsfmscope.series.calendar import gluonts_seasonality
from tsfmscope.series.catalog import CATALOG, MODALITIES, _read
from tsfmscope.series.synthetic.kernels import kernel_expression, parse_kernel
from tsfmscope.series.synthetic.kernelsynth import SYNTHETIC

# isotropy.md, Table 4; transport has a stand-in with its own horizon
HORIZONS = {
    "energy-1": 48, "energy-2": 48, "nature-1": 30, "nature-2": 30, "finance-1": 30, "finance-2": 8,
    "healthcare-1": 12, "healthcare-2": 30, "retail-1": 12, "retail-2": 8,
}  # fmt: skip
PAPER = [entry for entry in CATALOG.values() if entry.paper is not None]


def test_the_paper_s_22_data_sets_are_there_with_its_horizons() -> None:
    paper = {entry.paper: entry for entry in PAPER}
    assert set(paper) == {*SYNTHETIC, *HORIZONS, "transport-1", "transport-2"}
    assert len(paper) == len(PAPER) == 22  # no two data sets claim one name
    assert {name: paper[name].horizon for name in HORIZONS} == HORIZONS
    assert {paper[name].horizon for name in SYNTHETIC} == {64}


def test_whatever_is_not_the_paper_s_own_says_so() -> None:
    assert {entry.paper for entry in PAPER if entry.stands_in_for} == {
        "energy-1", "energy-2", "nature-1", "nature-2", "transport-1", "transport-2", "retail-2",
    }  # fmt: skip


@pytest.mark.parametrize("name", list(CATALOG))
def test_an_entry_is_whole(name: str) -> None:
    entry = CATALOG[name]
    assert entry.name == name
    assert entry.source in ("kernelsynth", "signals", "bundled", "folder", *MODALITIES)
    assert (entry.signal is not None) == (entry.source == "signals")
    assert (entry.kernel is not None) == (entry.source == "kernelsynth")
    assert entry.source in ("text", "images") or (entry.file is not None) == (entry.source == "folder")
    assert entry.domain
    assert entry.horizon > 0
    assert gluonts_seasonality(entry.freq) >= 1


@pytest.mark.parametrize("name", list(SYNTHETIC))
def test_the_catalog_and_the_generator_name_the_same_kernels(name: str) -> None:
    entry = CATALOG[name]
    assert entry.kernel == SYNTHETIC[name].expression() == kernel_expression(parse_kernel(entry.kernel))
    assert entry.domain == SYNTHETIC[name].domain


def test_entries_cannot_be_changed_and_unknown_fields_are_refused(tmp_path) -> None:
    with pytest.raises(FrozenInstanceError):
        CATALOG["nile"].horizon = 3
    with pytest.raises(TypeError):
        CATALOG["mine"] = CATALOG["nile"]
    path = tmp_path / "catalog.yaml"
    path.write_text("x: {source: folder, domain: a, horizon: 3, fiel: b}")
    with pytest.raises(ValueError, match=r"catalog.yaml: x: unknown \['fiel'\], expected some of"):
        _read(path)
