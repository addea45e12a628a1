"""The table of skill has the measured rows, of the weights that are committed and of all data sets of both groups."""

from __future__ import annotations

import pytest

from docs.building import skill
from tsfmscope.forecasting.skill import COLUMNS, dataset_ratios, group_skill, read_rows
from tsfmscope.models import registry

ROWS = read_rows(skill.ROWS)
MODELS = sorted({(row["model"], row["weights"]) for row in ROWS})


def test_the_table_is_the_generated_one() -> None:
    page = skill.PAGE.read_text("utf-8")
    assert skill.with_table(page) == page, "run: python -m docs.building.skill"


def test_every_mini_that_forecasts_was_measured_on_every_set_of_both_groups() -> None:
    minis = {folder.name for folder in (skill.ROOT / "tsfmscope" / "checkpoints").glob("*-mini")}
    assert minis <= {model for model, _ in MODELS}
    counts = {(row["model"], row["group"]): row["n_datasets"] for row in group_skill(ROWS)}
    assert {counts[name, "guided"] for name in minis} == {23}
    assert {counts[name, "report"] for name in minis} == {17}


@pytest.mark.parametrize(("model", "weights"), MODELS)
def test_the_rows_are_of_the_committed_weights(model: str, weights: str) -> None:
    folder = skill.ROOT / "tsfmscope" / "checkpoints" / model
    if folder.is_dir():
        assert registry.resolve(str(folder)).fingerprint[:12] == weights
    else:
        assert model in skill.NAMES


def test_days_and_weeks_have_their_seasons_and_gluonts_s_naive_is_the_same_elsewhere() -> None:
    assert {row["season"] for row in ROWS if row["freq"] == "D"} == {7}
    assert {row["season"] for row in ROWS if row["freq"] == "W"} == {1, 52}
    for row in ROWS:
        assert set(row) == set(COLUMNS)
        if row["model"] == "gluonts-naive" and row["freq"] in ("h", "MS", "QS", "B"):
            assert row["error"] == row["naive_error"]


def test_a_page_without_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match="restore it"):
        skill.with_table("# Skill\n")


def test_the_table_names_the_worst_set_and_sorts_by_the_report_sets() -> None:
    rows = [
        dict.fromkeys(COLUMNS, "") | {"model": model, "group": group, "dataset": f"{group}-{loss}"}
        | {"loss": loss * scale, "season": 1, "horizon": 1, "n_windows": series, "error": 1.0, "naive_error": 4.0}
        for model, scale, series in (("worse", 2, 3), ("better", 1, 64))
        for group in skill.GROUPS
        for loss in (1, 4)
    ]  # fmt: skip
    assert [row["mae"] for row in dataset_ratios(rows)] == [0.25] * 8
    lines = skill.table(group_skill(rows)).splitlines()[2:]
    assert lines[0] == "| `better` | 0.500 | 0.500 | 0.250 | 0.250 | `report-4` 1.00 |"
    assert lines[1].startswith("| `worse` (at most 3 series per set) | 1.000 | 1.000 |")
