from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from tsfmscope.series.calendar import gluonts_seasonality
from tsfmscope.series.catalog import CATALOG, MODALITIES, _read
from tsfmscope.series.synthetic.kernels import kernel_expression, parse_kernel

# isotropy.md, Table 4; transport has a stand-in with its own horizon
HORIZONS = {
    "energy-1": 48, "energy-2": 48, "nature-1": 30, "nature-2": 30, "finance-1": 30, "finance-2": 8,
    "healthcare-1": 12, "healthcare-2": 30, "retail-1": 12, "retail-2": 8,
}  # fmt: skip
KERNELS = {
    "linear-1": "DotProduct(sigma_0=0.0)",
    "linear-2": "DotProduct(sigma_0=1.0)",
    "seasonality-1": "ExpSineSquared(length_scale=1.0, periodicity=0.025390625)",
    "seasonality-2": "ExpSineSquared(length_scale=1.0, periodicity=0.09375)",
    "trend-1": "RationalQuadratic(alpha=1.0, length_scale=1.0)",
    "trend-2": "RationalQuadratic(alpha=10.0, length_scale=1.0)",
    "non-linear-1": "RBF(length_scale=0.1)",
    "non-linear-2": "RBF(length_scale=1.0)",
    "stochastic-1": "WhiteKernel(noise_level=0.1)",
    "stochastic-2": "WhiteKernel(noise_level=1.0)",
}
PAPER = [entry for entry in CATALOG.values() if entry.paper is not None]


def test_the_paper_s_22_data_sets_are_there_with_its_horizons() -> None:
    paper = {entry.paper: entry for entry in PAPER}
    assert set(paper) == {*KERNELS, *HORIZONS, "transport-1", "transport-2"}
    assert len(paper) == len(PAPER) == 22  # no two data sets claim one name
    assert {name: paper[name].horizon for name in HORIZONS} == HORIZONS
    assert {paper[name].horizon for name in KERNELS} == {64}


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


def test_the_ten_kernels_are_those_of_the_paper() -> None:
    assert {name: entry.kernel for name, entry in CATALOG.items() if entry.kernel} == KERNELS
    for name, kernel in KERNELS.items():
        assert kernel_expression(parse_kernel(kernel)) == kernel
        assert CATALOG[name].domain == name.rpartition("-")[0]


def test_entries_cannot_be_changed_and_unknown_fields_are_refused(tmp_path) -> None:
    with pytest.raises(FrozenInstanceError):
        CATALOG["nile"].horizon = 3
    with pytest.raises(TypeError):
        CATALOG["mine"] = CATALOG["nile"]
    path = tmp_path / "catalog.yaml"
    path.write_text("x: {source: folder, domain: a, horizon: 3, fiel: b}")
    with pytest.raises(ValueError, match=r"catalog.yaml: x: unknown \['fiel'\], expected some of"):
        _read(path)
