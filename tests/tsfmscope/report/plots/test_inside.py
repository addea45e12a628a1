"""Figures of studies of the inside of models: every model and pair has its own, and trainings theirs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.tsfmscope.report import recorded
from tests.tsfmscope.report.drawn import read_titles
from tests.tsfmscope.report.recorded import copy_rows
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.page.studies import draw_figures
from tsfmscope.report.plots import inside
from tsfmscope.report.tables import StudyTables

BOLT, T5 = "chronos-bolt-nano", "chronos-t5-nano"


def answer_study(*changes: str) -> StudyTables:
    with recorded.build(*changes) as connection:
        return recorded.answer_study(connection, "inside", "inside")


@pytest.fixture(scope="module")
def study() -> Iterator[StudyTables]:
    return answer_study()


def test_each_model_and_each_pair_has_its_own_figures(study: StudyTables) -> None:
    figures = draw_figures(study, [BOLT, T5])
    assert [figure.title for figure in figures] == [
        f"{BOLT}: probes by layer", f"{BOLT}: probes by number of directions",
        f"{T5}: probes by layer", f"{T5}: probes by number of directions",
        f"{BOLT}: forecasts without parts", f"{T5}: forecasts without parts",
        f"{BOLT} and {T5}",
    ]  # fmt: skip
    assert all(figure.svg.startswith("<svg") for figure in figures)


def test_captions_name_model_units_and_counts(study: StudyTables) -> None:
    by_title = {figure.title: figure for figure in draw_figures(study, [BOLT, T5])}
    rows = study.answers["ablation"].frame
    units, n = rows[rows["model"] == BOLT][["units", "n_windows"]].iloc[0]
    caption = by_title[f"{BOLT}: forecasts without parts"].caption
    assert f"{BOLT}, noisy" in caption
    assert f"geometric mean over {units}, {n} windows" in caption
    assert "mean over 2 data sets" in by_title[f"{BOLT} and {T5}"].caption


def test_a_panel_stands_for_each_factor(study: StudyTables) -> None:
    figure = draw_figures(study, [BOLT, T5])[0]
    assert set(read_titles(figure.chart)) >= {"period", "trend", "kernel"}


def test_snapshots_have_a_figure_of_learning_in_place_of_figures_of_their_own() -> None:
    step, run = "run-step-10", "run"
    names = ("model", "run", "family", "size", "run_seed", "step", "is_final", "validation_loss", "n_windows", "seed")
    members = [
        f"insert into population ({', '.join(names)}, job_key) values ('{model}', '{run}', 'chronos-bolt', 'small', 0, "
        f"{steps}, {is_final}, 1.0, 4, 0, 'k')"
        for model, steps, is_final in ((step, 10, False), (run, 40, True))
    ]
    copies = [copy_rows("probes", f"model = '{BOLT}'", model=f"'{model}'") for model in (step, run)]
    figures: list[Figure] = list(inside.draw(answer_study(*members, *copies), []))
    titles = [figure.title for figure in figures]
    assert titles[0] == "What a training learns, and when"
    assert f"{BOLT}: probes by layer" in titles
    assert not any(title.startswith((step, f"{run}:")) for title in titles)
    points = figures[0].chart.to_dict()["concat"][0]["layer"][0]
    assert points["encoding"]["x"]["title"] == "training step (log)"
