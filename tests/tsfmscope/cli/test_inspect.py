"""`tsfmscope inspect`: its numbers are those of the stages' own functions on windows cut here, by a path of its own."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from tsfmscope.cli.app import app
from tsfmscope.functions.inspect import LayerReport
from tsfmscope.models.cards import License
from tsfmscope.models.common.layers import run_in
from tsfmscope.models.registry import family_class
from tsfmscope.models.types import TokenKind
from tsfmscope.series.files.sources import load_bundled
from tsfmscope.series.types import Series, Windows
from tsfmscope.series.windows import Observed, spread_windows

CHECKPOINTS = Path(__file__).parents[3] / "tsfmscope" / "checkpoints"
MODEL = "chronos-bolt-mini"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    done = CliRunner().invoke(app, ["inspect", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    return done


def rows(*arguments: str) -> list[dict[str, Any]]:
    """What --json prints, which must be all of stdout."""
    found: list[dict[str, Any]] = json.loads(run(*arguments, "--json").stdout)
    return found


def wave(steps: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values: np.ndarray = np.sin(np.arange(steps) / 3) + 0.3 * rng.normal(size=steps)
    return values


def layers_by_hand(model: str, windows: Windows, precision: str) -> dict[tuple[str, int, bool], np.ndarray]:
    """States of the tokens that stand for values, of a model that is loaded without the command's help."""
    loaded = family_class("chronos-bolt").load(CHECKPOINTS / model)
    run_in(loaded.network, precision)
    tokens = loaded.tokenize(windows)
    valued = {k: np.isin(v, [TokenKind.OBSERVATION, TokenKind.FUTURE]) for k, v in tokens.kinds.items()}
    return {
        (one.stack, one.layer, one.normed): one.states[valued[one.stack]].astype(np.float64)
        for one in loaded.hidden_states(tokens)
    }


def naive_cosine(states: np.ndarray) -> float:
    units = states / np.linalg.norm(states, axis=1, keepdims=True)
    upper = np.triu_indices(len(units), 1)
    return float((units @ units.T)[upper].mean())


def naive_dimension(states: np.ndarray, share: float) -> int:
    variances = np.linalg.svd(states - states.mean(axis=0), compute_uv=False) ** 2
    return int(np.searchsorted(np.cumsum(variances) / variances.sum(), share - 1e-12)) + 1


def naive_rank(states: np.ndarray, epsilon: float) -> int:
    values = np.linalg.svd(states, compute_uv=False)
    return int((values > epsilon * values[0]).sum())


def check_against_hand(found: list[dict[str, Any]], windows: Windows, precision: str = "float32") -> None:
    by_hand = layers_by_hand(MODEL, windows, precision)
    assert [(row["stack"], row["layer"], row["normed"]) for row in found] == list(by_hand)
    for row in found:
        states = by_hand[row["stack"], row["layer"], row["normed"]]
        assert row["n_tokens"] == len(states) and row["width"] == states.shape[1]
        assert row["zeta"] == pytest.approx(naive_cosine(states), abs=1e-5)
        if row["effective_dimension"] is None:
            assert np.ptp(states, axis=0).max() < 1e-6
        else:
            assert row["effective_dimension"] == naive_dimension(states, row["share"])
        assert row["numerical_rank"] == naive_rank(states, row["epsilon"])


def test_every_layer_of_a_bundled_set_is_as_computed_by_hand() -> None:
    series = load_bundled("nile")
    how = {"context": 500, "horizon": 8, "count": 100, "held_out": 0.2}
    windows, _ = spread_windows(series, **how)
    found = rows(MODEL, "nile", "--horizon", "8", "--share", "0.8", "--epsilon", "0.05")
    check_against_hand(found, windows)
    assert {(row["model"], row["dataset"], row["condition"]) for row in found} == {(MODEL, "nile", "context-500")}
    assert {(row["share"], row["epsilon"]) for row in found} == {(0.8, 0.05)}


def test_a_model_can_be_looked_at_as_it_is_in_bfloat16() -> None:
    series = load_bundled("nile")
    windows, _ = spread_windows(series, context=500, horizon=8, count=100, held_out=0.2)
    how = ("nile", "--horizon", "8", "--share", "0.8", "--epsilon", "0.05")
    whole, rounded = rows(MODEL, *how), rows(MODEL, *how, "--precision", "bfloat16")
    check_against_hand(rounded, windows, "bfloat16")
    assert [one["zeta"] for one in whole] != [one["zeta"] for one in rounded]
    assert rows(MODEL, *how, "--precision", "float32") == whole


def test_ones_own_csv_is_windowed_as_asked() -> None:
    values = wave(90).astype(np.float32)
    pd.DataFrame({"date": pd.date_range("2020-01-01", periods=90), "sales": values}).to_csv("mine.csv", index=False)
    windows, _ = spread_windows([Series("mine", "sales", values, freq="D")], context=64, horizon=12, count=1000)
    found = rows(MODEL, "mine.csv", "--context", "64", "--horizon", "12")
    check_against_hand(found, windows)
    assert {(row["dataset"], row["condition"], row["context"]) for row in found} == {("mine", "context-64", 64)}


def test_a_model_is_the_same_by_name_by_folder_and_by_family_and_folder() -> None:
    how = ("nile", "--context", "64")
    folder = CHECKPOINTS / MODEL
    assert rows(MODEL, *how) == rows(str(folder), *how) == rows(f"chronos-bolt:{folder}", *how)


def test_times_that_are_missing_are_said_on_stderr_once_and_looked_at_as_empty_cells() -> None:
    days = pd.date_range("2024-01-01", periods=120, freq="D")
    frame = pd.DataFrame({"ds": days, "a": wave(120)})
    frame.drop(index=range(60, 81)).to_csv("mine.csv", index=False)
    how = (MODEL, "mine.csv", "--context", "32", "--horizon", "8", "--json")
    lacking = run(*how)
    assert lacking.stderr.splitlines()[2:] == ["a: 21 missing times read as NaN"]
    frame.loc[60:80, "a"] = np.nan
    frame.to_csv("mine.csv", index=False)
    empty = run(*how)
    assert empty.stdout == lacking.stdout
    read, series = empty.stderr.splitlines()
    assert series.startswith("mine.csv: 1 series of 120 steps, frequency D, season ")
    assert read.startswith("mine.csv: times from ")


def test_the_seed_alone_decides_what_is_sampled() -> None:
    pd.DataFrame({name: wave(60, seed) for seed, name in enumerate("abcdefgh")}).to_csv("many.csv", index=False)
    how = (MODEL, "many.csv", "--context", "32", "--horizon", "8", "--max-series", "3", "--rows", "20")
    first = rows(*how, "--seed", "1")
    assert first == rows(*how, "--seed", "1")
    assert first != rows(*how, "--seed", "2")
    assert {row["n_tokens"] for row in first if row["stack"] == "encoder"} == {20}
    assert {row["n_series"] for row in first if row["stack"] == "encoder"} <= {1, 2, 3}


def test_noise_changes_the_context_and_is_named_in_the_condition() -> None:
    clean, noisy = rows(MODEL, "nile"), rows(MODEL, "nile", "--noise", "0.5", "--context", "500")
    assert noisy[0]["condition"] == "context-500-noise-0.5" and noisy[0]["noise"] == 0.5
    assert clean[3]["zeta"] != noisy[3]["zeta"]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "data"), [
    ("t5-text-nano", "english"),
    ("tabular-nano", "tables"),
    ("lag-llama-mini-rope", "linear-1"),
    ("vit-nano", "photographs"),
])  # fmt: skip
def test_other_modalities_and_options_are_looked_at_under_their_own_condition(model: str, data: str) -> None:
    found = rows(model, data, "--rows", "64", "--max-series", "8")
    assert found and all(math.isfinite(row["zeta"]) for row in found)


def test_the_table_says_what_its_numbers_mean_and_how_the_rank_flows() -> None:
    said = run(MODEL, "nile").stdout
    found = rows(MODEL, "nile")
    assert f"{MODEL} on nile, context 500" in said and "15 windows of 1 series; observed steps" in said
    assert "ζ: mean cosine between tokens" in said
    lines = [line for line in said.splitlines() if re.match(r" *(encoder|decoder) ", line)]
    assert len(lines) == len(found)
    for line, row in zip(lines, found, strict=True):
        cells = re.split(r"  +", line.strip())
        assert cells[1] == f"{row['layer']}{'′' if row['normed'] else ''}"
        value, _, spread = cells[3].partition(" ± ")
        assert float(value) == pytest.approx(row["zeta"], abs=5e-3)
        assert (spread == "") == (row["zeta_sd"] is None)
        assert not spread or float(spread) == pytest.approx(row["zeta_sd"], rel=0.1)
        assert cells[7] == ("–" if row["isoscore"] is None else f"{row['isoscore']:.3f}")
        assert cells[6] == ("–" if row["k"] is None else str(row["k"]))
        assert cells[10] == str(row["numerical_rank"])
        if row["effective_dimension"] is not None:
            assert row["dimension_share"] == row["effective_dimension"] / row["width"]
            assert float(cells[9]) == pytest.approx(row["dimension_share"], abs=1e-3)
    assert "does not show how evenly the directions are used" in said and "0: isotropic" not in said
    first, *_, last = (row for row in found if row["stack"] == "encoder" and not row["normed"])
    change = f"rank grows from {first['numerical_rank']} to {last['numerical_rank']} of "
    assert f"encoder: {change}{first['width']} over {last['layer']} layers; ζ from {first['zeta']:.2f}" in said


def test_the_observed_steps_of_context_are_printed_stored_in_each_row_and_on_the_page() -> None:
    windows, _ = spread_windows(load_bundled("nile"), context=500, horizon=6, count=100, held_out=0.2)
    observed = np.isfinite(windows.context).sum(axis=1)
    found = rows(MODEL, "nile")
    assert {row["n_context_min"] for row in found} == {observed.min()}
    assert {row["n_context_median"] for row in found} == {np.median(observed)}
    line = (
        f"observed steps of context: minimum {observed.min()}, median {np.median(observed):g} of 500; "
        "no series fills context 500: the longest has 94 steps before its horizon, the rest is padding"
    )
    assert f"{line}." in run(MODEL, "nile", "--out", "look.html").stdout
    page = Path("look.html").read_text()
    assert line in page and re.search(r"mark-rule role-mark[^>]*><line", page)  # error bars
    filled = run(MODEL, "nile", "--context", "32").stdout
    assert "observed steps of context: minimum 32, median 32 of 32" in filled and "no series fills" not in filled


def test_missing_steps_are_not_observed_but_do_fill_a_context() -> None:
    values = wave(120)
    values[60:70] = np.nan
    pd.DataFrame({"a": values}).to_csv("gaps.csv", index=False)
    said = run(MODEL, "gaps.csv", "--context", "96", "--horizon", "8").stdout
    windows, _ = spread_windows([Series("gaps", "a", values, freq="")], context=96, horizon=8, count=1000)
    observed = np.isfinite(windows.context).sum(axis=1)
    assert observed.max() == 86  # of a window that the series fills
    assert f"minimum {observed.min()}, median {np.median(observed):g} of 96" in said and "no series fills" not in said


def test_the_effective_dimension_has_a_standard_deviation_at_the_share_that_halves_are_measured_at() -> None:
    default, other = rows(MODEL, "nile"), rows(MODEL, "nile", "--share", "0.95")
    assert {row["share"] for row in default} == {0.8}
    assert any(row["effective_dimension_sd"] is not None for row in default)
    assert all(row["effective_dimension_sd"] is None for row in other)


@pytest.mark.parametrize(("first", "last", "how"), [(3, 9, "grows from 3 to 9"), (9, 3, "falls"), (4, 4, "stays")])
def test_the_trend_compares_a_stacks_first_input_with_its_last_blocks_output(first: int, last: int, how: str) -> None:
    common = {"stack": "encoder", "width": 16, "n_tokens": 12, "zeta": 0.5, "repeats": 0}
    made = [
        common | {"layer": 0, "normed": False, "numerical_rank": first},
        common | {"layer": 2, "normed": False, "numerical_rank": last, "zeta": None},
        common | {"layer": 2, "normed": True, "numerical_rank": 1},
    ]
    observed = Observed(32, 32, 32.0, 40)
    report = LayerReport(pd.DataFrame(made), "title", 3, 2, {"constant": 1}, observed, License(None, ""), ["a note"])
    windows, note, trend = report.sentences()
    assert windows.startswith("3 windows of 2 series; 1 without a window: constant; observed steps of context: minimum")
    assert note == "a note."
    assert how in trend and "of 12 over 2 layers" in trend and trend.endswith("ζ from 0.50 to –.")


def test_series_without_a_window_are_counted_with_their_reason() -> None:
    # Too few observed steps before the last 8.
    gone = np.where(np.arange(60) < 50, np.nan, 1 + np.arange(60))
    pd.DataFrame({"good": wave(60), "flat": [1.0] * 60, "gone": gone}).to_csv("three.csv", index=False)
    how = (MODEL, "three.csv", "--context", "32", "--horizon", "8")
    printed, document = run(*how), run(*how, "--json")
    assert " windows of 1 series; 1 without a window: constant; 1 without a window: fewer than 16" in printed.stdout
    for done in (printed, document):
        lines = done.stderr.splitlines()[2:]
        assert lines[0] == "left out: 1 series: constant"
        assert len(lines) == 2 and "fewer than 16 observed steps" in lines[1]


@pytest.mark.parametrize("suffix", ["html", "png", "svg", "pdf"])
def test_a_picture_is_one_file_that_needs_no_other(suffix: str) -> None:
    said = run(MODEL, "nile", "--out", f"look.{suffix}").stdout
    assert f"file: look.{suffix}" in said
    data = Path(f"look.{suffix}").read_bytes()
    if suffix == "png":
        assert data.startswith(b"\x89PNG")
    elif suffix == "svg":
        assert b"<svg" in data and b"http://www.w3.org" in data
    elif suffix == "pdf":
        assert data.startswith(b"%PDF")
    else:
        text = data.decode()
        assert not re.search(r"<(script|link|img)[^>]*(src|href)=", text)
        assert text.count("<svg") == 2 and "chronos-bolt-mini on nile" in text
    assert {path.name for path in Path.cwd().iterdir()} == {f"look.{suffix}"}


def test_a_seed_decides_the_tokens_and_the_clusters_and_the_same_seed_gives_the_same_bytes() -> None:
    pd.DataFrame({"x": wave(900).astype(np.float32)}).to_csv("mine.csv", index=False)
    how = (MODEL, "mine.csv", "--context", "64", "--horizon", "12", "--rows", "120", "--json")
    printed = [run(*how, "--seed", str(seed)).stdout for seed in (0, 1, 2, 0)]
    assert printed[0] == printed[3]
    last = [json.loads(one)[-1] for one in printed[:3]]
    for name in ("zeta", "zeta_adjusted", "zeta_adjusted_corrected", "log_isotropy_scaled", "zeta_sd"):
        assert len({row[name] for row in last}) == 3, name
    zetas = [row["zeta"] for row in last]
    assert max(zetas) - min(zetas) < 8 * max(row["zeta_sd"] for row in last)  # the samples are of one population
    assert {row["repeats"] for row in last} == {5}


def test_several_columns_of_ids_and_times_are_named_by_repeated_options(folder: Path) -> None:
    hours = pd.date_range("2023-10-28", periods=72, freq="h", tz="Europe/Berlin")
    keys = [("n", 1), ("n", 2), ("s", 1)]
    parts = [
        pd.DataFrame(
            {"day": hours.date, "at": hours.strftime("%H:%M"), "shop": shop, "item": item, "y": wave(72, item)}
        )
        for shop, item in keys
    ]
    pd.concat(parts).to_csv(folder / "shops.csv", index=False)
    names = ("--time", "day", "--time", "at", "--id", "shop", "--id", "item", "--tz", "Europe/Berlin")
    done = run(MODEL, "shops.csv", "--context", "32", "--horizon", "8", "--rows", "50", *names)
    assert "times from 'day', 'at', ids from 'shop', 'item', values from 'y'" in done.stderr
    assert "shops.csv: 3 series, frequency h, season 24, from 2023-10-28 00:00" in done.stderr
