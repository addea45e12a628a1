"""Commands that are made from public functions: the same numbers, the same files, and options declared once."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

import tsfmscope as ts
from tsfmscope.cli import app as program
from tsfmscope.cli.from_function import Command
from tsfmscope.functions.arguments import Bounds, checked
from tsfmscope.functions.export import export
from tsfmscope.functions.load import Model
from tsfmscope.functions.verify import verify
from tsfmscope.series.data_sets import Data

MODEL = "patchtst-mini"
STEPS: dict[str, Any] = {"context": 64, "horizon": 12}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng, steps = np.random.default_rng(0), np.arange(160)
    waves = np.sin(steps[:, None] / [3, 5, 7]) + 3 + 0.2 * rng.normal(size=(160, 3))
    pd.DataFrame(waves, columns=["a", "b", "c"]).to_csv("mine.csv", index=False)
    return tmp_path


def run(*arguments: str, **options: Any) -> Result:
    words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    environment = {"COLUMNS": "200", "NO_COLOR": "1"}
    return CliRunner().invoke(program.app, [*arguments, *words], env=environment, catch_exceptions=False)


def document(*arguments: str, code: int = 0, **options: Any) -> Any:
    """Return what the command prints with --json."""
    done = run(*arguments, "--json", **options)
    assert done.exit_code == code, done.stderr
    return json.loads(done.stdout)


def plain(value: Any) -> Any:
    """Return a value as JSON has it, with None for missing numbers of a table."""
    if isinstance(value, pd.DataFrame):
        value = [{key: None if pd.isna(x) else x for key, x in row.items()} for row in value.to_dict("records")]
    return json.loads(json.dumps(value, default=lambda number: number.item()))


def files(name: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(name).iterdir()}


@pytest.mark.parametrize(("data", "options"), [
    ("nile", {"context": 64}),
    ("mine.csv", {"rows": 100, "max_series": 2, "share": 0.9, "epsilon": 0.1, "seed": 4} | STEPS),
    ("co2", {"horizon": 9, "rows": 100, "noise": 0.5, "context": 64, "seed": 3}),
])  # fmt: skip
def test_inspect_has_the_layers_of_the_function(data: str, options: dict[str, Any]) -> None:
    report = ts.inspect(MODEL, data, **options)
    expected = [row | report.license.columns for row in plain(report.layers)]
    assert document("inspect", MODEL, data, **options) == expected
    report.save("function.csv")
    run("inspect", MODEL, data, "--out", "command.csv", **options)
    assert Path("command.csv").read_bytes() == Path("function.csv").read_bytes()


@pytest.mark.parametrize("options", [{}, {"layer": 1, "pool": "max", "context": 40, "max_series": 2, "seed": 3}])
def test_embed_has_the_vectors_of_the_function(options: dict[str, Any]) -> None:
    vectors = ts.embed(MODEL, "mine.csv", **options)
    found = document("embed", MODEL, "mine.csv", "--out", "vectors.parquet", **options)
    assert [row["vector"] for row in found] == vectors.to_numpy().tolist()
    written = pd.read_parquet("vectors.parquet")
    assert list(written["series"]) == list(vectors.index) == [row["series"] for row in found]
    np.testing.assert_array_equal(written.drop(columns="series").to_numpy(), vectors.to_numpy())


@pytest.mark.parametrize("options", [
    {"to": 0.5, "method": "joint"} | STEPS,
    {"method": "activation-aware", "windows": 8, "calibrate_on": "data", "bits": 8, "seed": 2, "to": 0.25} | STEPS,
])  # fmt: skip
def test_compress_has_the_costs_and_writes_the_files_of_the_function(options: dict[str, Any]) -> None:
    small = ts.compress(MODEL, ["nile", "mine.csv"], **options)
    small.save("function")
    found = document("compress", MODEL, "command", "--data", "nile", "--data", "mine.csv", **options)
    costs, expected = ({row["quantity"]: row for row in rows} for rows in (found["costs"], plain(small.costs)))
    # Seconds are measured.
    assert costs.keys() == expected.keys() and costs.pop("seconds").keys() == expected.pop("seconds").keys()
    assert costs == expected and found["calibration"] == small.windows
    assert small.judged is not None
    assert {key: found[key] for key in small.judged.facts()} == plain(small.judged.facts())
    assert files("command") == files("function")
    assert {"config.json", "recipe.json", "compressed.safetensors", "checksums.sha256"} <= set(files("command"))


def test_forecast_has_the_rows_and_writes_the_files_of_the_function() -> None:
    result = ts.forecast(MODEL, "mine.csv", horizon=5, context=64)
    for name in ("f.csv", "f.svg"):
        result.save(f"function/{name}")
    outs = ("--out", "command/f.csv", "--out", "command/f.svg")
    found = document("forecast", MODEL, "mine.csv", *outs, horizon=5, context=64)
    frame = result.frame.assign(timestamp=result.frame["timestamp"].astype(str))
    assert found["forecasts"] == plain(frame.to_dict("records")) and found["skipped"] == []
    assert files("command") == files("function")


@pytest.mark.parametrize("options", [{}, {"dense": True}])
def test_export_has_the_facts_and_writes_the_files_of_the_function(options: dict[str, Any]) -> None:
    ts.compress(MODEL, "nile", to=0.5, method="joint", **STEPS).save("small")
    exported = export("small", "function", **options)
    found = document("export", "small", "command", *(f"--{name}" for name in options))
    assert files("command") == files("function")
    assert found.pop("folder") == "command"
    assert {key: getattr(exported, key) for key in found if key != "loader"} == {
        key: value for key, value in found.items() if key != "loader"
    }
    assert exported.loader.replace("'function'", "'command'") == found["loader"]


@pytest.mark.parametrize("data", [("nile", "co2", "mine.csv"), ("mine.csv",)])
def test_certify_has_the_facts_of_the_function(data: tuple[str, ...]) -> None:
    options: dict[str, Any] = {"margin": 1.05, "worst": 1.3, "max_series": 2, "seed": 1} | STEPS
    result = ts.certify(MODEL, "ttm-mini", list(data), **options)
    names = [word for name in data for word in ("--data", name)]
    code = {"certified": 0, "too few tasks": 3, "not certified": 4}[result.certificate.outcome]
    assert document("certify", MODEL, "ttm-mini", *names, code=code, **options) == plain(result.facts())


def test_score_has_the_facts_of_the_function() -> None:
    scored = ts.score("mine.csv", models=["ttm-mini", MODEL], contexts=[32, 64], windows=2, seed=1, horizon=6)
    contexts = ("--contexts", "32", "--contexts", "64")
    found = document("score", "mine.csv", "--models", f"ttm-mini,{MODEL}", *contexts, windows=2, seed=1, horizon=6)
    expected = plain(scored.facts())
    for facts in (expected, found):
        for row in facts["candidates"]:
            # Seconds are measured.
            assert row.pop("seconds") > 0
    assert found == expected


def test_compare_has_the_pairs_of_the_function() -> None:
    found = document("compare", MODEL, "chronos-bolt-mini", "mine.csv", context=64, rows=50, seed=2)
    compared = ts.compare(MODEL, "chronos-bolt-mini", "mine.csv", context=64, rows=50, seed=2)
    assert found == plain(compared.layers) and compared.moved is None


def test_ablate_has_the_parts_of_the_function() -> None:
    options: dict[str, Any] = {"windows": 1, "max_series": 2} | STEPS
    found = document("ablate", MODEL, "--data", "mine.csv", "--parts", "layer,exit", **options)
    ablated = ts.ablate(MODEL, "mine.csv", parts=["layer", "exit"], **options)
    assert found["parts"] == plain(ablated.parts) and found["depths"] == ablated.depths


def test_probe_has_the_scores_of_the_function() -> None:
    rng = np.random.default_rng(0)
    shops = pd.DataFrame(rng.normal(size=(160, 24)), columns=[f"shop {n}" for n in range(24)])
    shops.to_csv("shops.csv", index=False)
    shops.std().rename("spread").rename_axis("shop").to_csv("labels.csv")
    options: dict[str, Any] = {"labels": "labels.csv", "context": 64, "seed": 1}
    probed = ts.probe(MODEL, "shops.csv", **options)
    found = document("probe", MODEL, "shops.csv", **options)
    assert found["scores"] == plain(probed.scores) and found["directions"] == plain(probed.directions)


@pytest.mark.slow
def test_verify_has_the_checks_of_the_function() -> None:
    expected, found = plain(verify(MODEL, **STEPS).json()), document("verify", MODEL, **STEPS)
    for result in (expected, found):
        # Seconds and memory are measured.
        assert set(result.pop("cost")) and result.pop("line").count(",") == 14
        result["row"] = {key: value for key, value in result["row"].items() if not key.endswith(("seconds", "gb"))}
    assert found == expected


@checked
def measure(
    model: Model | str | Path,
    data: Data,
    *,
    scale: Annotated[float, Bounds(0, 5, excludes_least=True)] = 1.5,
    count: Annotated[int | None, Bounds(1, 9)] = None,
    mode: Literal["mean", "sum"] = "mean",
    is_whole: bool = False,
) -> dict[str, Any]:
    """Measure something of a model.

    Args:
        model: model, as in `inspect`.
        data: series, as in `inspect`.
        scale: factor of the values.
        count: number of values; None: all.
        mode: mean or sum.
        is_whole: read all of the series.
    """
    assert isinstance(model, Model)
    return {"model": model.name, "data": data, "scale": scale, "count": count, "mode": mode, "is_whole": is_whole}


COMMAND = Command(measure, print, lambda result: result, "tsfmscope measure patchtst-mini nile")


@pytest.fixture
def command_of_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(program.COMMANDS, "measure", (f"{__name__}:COMMAND", "Measure something of a model."))


@pytest.mark.usefixtures("command_of_measure")
@pytest.mark.parametrize(("words", "values"), [
    ((), {"scale": 1.5, "count": None, "mode": "mean", "is_whole": False}),
    (("--scale", "2", "--count", "3"), {"scale": 2.0, "count": 3}),
    (("--mode", "sum", "--is-whole"), {"mode": "sum", "is_whole": True}),
])  # fmt: skip
def test_an_option_of_a_function_is_one_of_its_command(words: tuple[str, ...], values: dict[str, Any]) -> None:
    defaults = measure(ts.load(MODEL), "nile")
    assert document("measure", MODEL, "nile", *words) == defaults | values


@pytest.mark.usefixtures("command_of_measure")
def test_an_option_has_the_default_bounds_and_help_of_the_function() -> None:
    lines = [" ".join(line.split()) for line in run("measure", "--help").stdout.splitlines()]
    text = " ".join(lines)
    assert "Measure something of a model." in text and "tsfmscope measure patchtst-mini nile" in text
    assert "Factor of the values. [default: 1.5]" in text
    assert "Number of values; default: all. [1<=x<=9]" in text
    assert "--mode <mean|sum> Mean or sum. [default: mean]" in text
    assert "Read all of the series." in text


@pytest.mark.usefixtures("command_of_measure")
@pytest.mark.parametrize(("words", "message"), [
    (("--scale", "9"), "--scale: got 9.0, expected above 0 and at most 5"),
    (("--scale", "inf"), "--scale: got inf, expected above 0 and at most 5"),
    (("--scale", "0"), "--scale: got 0.0, expected above 0 and at most 5"),
    (("--count", "0"), "'--count': Input should be greater than or equal to 1"),
    (("--count", "1.5"), "'--count': Input should be a valid integer"),
    (("--mode", "median"), "'--mode'"),
])  # fmt: skip
def test_a_value_out_of_bounds_is_refused(words: tuple[str, ...], message: str) -> None:
    done = run("measure", MODEL, "nile", *words)
    assert done.exit_code == 2 and done.stdout == ""
    assert message in " ".join(done.stderr.split())


@checked
def fail(model: Model | str | Path, message: str, *, to: int = 0, max_series: int = 1, **reading: Any) -> None:
    """Raise an error.

    Args:
        model: model, as in `inspect`.
        message: message of the error.
        to: a number.
        max_series: another number.
        reading: as in `inspect`.
    """
    raise ValueError(message)


@pytest.mark.parametrize(("message", "printed"), [
    ("max_series: got 0, expected at least 1", "--max-series: got 0, expected at least 1"),
    ("to 0.1, method joint: too small", "--to 0.1, method joint: too small"),
    ("season: got 0, expected at least 1", "--season: got 0, expected at least 1"),
    ("time_format: got x", "--time-format: got x"),
    ("device: got cuda, expected cpu", "--device: got cuda, expected cpu"),
    # An argument, a file, words and a longer word are no options.
    ("message: got nothing", "message: got nothing"),
    ("to.csv: no such file", "to.csv: no such file"),
    ("to and season: got both", "to and season: got both"),
    ("to2: got 1", "to2: got 1"),
    ("no colon", "no colon"),
])  # fmt: skip
def test_an_error_names_the_option_as_it_is_typed(message: str, printed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    command = Command(fail, print, print, "tsfmscope fail patchtst-mini")
    monkeypatch.setattr(f"{__name__}.FAIL", command, raising=False)
    monkeypatch.setitem(program.COMMANDS, "fail", (f"{__name__}:FAIL", "Raise an error."))
    done = run("fail", MODEL, message)
    assert done.exit_code == 2 and done.stdout == ""
    assert done.stderr.endswith(f" {printed}\n"), done.stderr


def test_an_error_for_a_model_with_the_name_of_an_option_keeps_it() -> None:
    assert run("inspect", "horizon", "nile").stderr.startswith("tsfmscope: horizon: expected a bundled model")
    Path("bits").mkdir()
    Path("bits", "file").touch()
    assert "tsfmscope: bits: is there already" in run("export", MODEL, "bits").stderr


def test_every_command_of_a_function_is_compared_here() -> None:
    made = {name for name, (location, _) in program.COMMANDS.items() if location.rpartition(":")[2].isupper()}
    compared = {found[1] for name in globals() if (found := re.fullmatch("test_([a-z]+)_has_the_.*", name))}
    # `push` needs a hub; tests/tsfmscope/cli/test_pushing.py has one.
    assert made - {"push"} == compared
