"""Record the answers of the public Python functions, or compare them with a record.

    python -m tests.public_answers record tests/public_answers.json
    python -m tests.public_answers compare tests/public_answers.json

`compare` prints one line per answer that differs, and ends with exit code 1 where there is one. Texts, counts, keys and
dtypes are compared exactly, numbers within TOLERANCE. The answers are those of an empty folder, without a params file.
Seconds are left out. The module uses public names only, so that it survives changes of everything below them.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import tsfmscope as ts

ROOT = Path(__file__).parents[1]
RECORD = Path(__file__).with_suffix(".json")
MODELS = (
    "chronos-bolt-mini",
    "chronos-2-mini",
    "chronos-t5-mini",
    "moirai-2-mini",
    "timesfm-2.5-mini",
    "toto-2-mini",
    "patchtst-fm-mini",
    "flowstate-mini",
    "ttm-mini",
    "patchtst-mini",
)
# Embedded data set -> arguments of `inspect` and `states`. co2 has the default context.
DATA: dict[str, dict[str, Any]] = {
    "co2": {},
    "sunspots": {"context": 96, "noise": 0.1, "seed": 1},
    "nile": {"context": 48, "horizon": 8},
}
# Submodules whose outputs are recorded, by model.
SUBMODULES = {
    "chronos-bolt-mini": ["input_patch_embedding", "encoder.block.0", "encoder.final_layer_norm"],
    "moirai-2-mini": ["in_proj", "encoder.layers.0.ffn.fc1"],
    "patchtst-mini": ["model.encoder.layers.0", "model.encoder.layers.1.self_attn.q_proj"],
}
# Largest difference of a number, relative to the largest absolute value of its column or array.
TOLERANCE = 1e-4
# The same of answers that depend on the CPU: rounding to few bits, and samples of ids, turn on the last digit of a
# product, and the coverage of a dozen values moves in steps of a twelfth. Verdicts of a certificate of a model in few
# bits are not compared. Standard deviations over halves of the rows turn on the number of clusters of each half, and
# a half may choose another number on another CPU (tests/golden_tolerances.csv).
ON_CPU = {
    "/compression_answers*": 0.3, "/forecast_answers/chronos-t5-mini*": 0.05,
    "*_sd": 0.5,
}  # fmt: skip
VERDICTS = ("outcome", "conditions")
# Columns that are small whole numbers per layer, recorded value by value.
WHOLE_COLUMNS = ("effective_dimension", "numerical_rank")
Answers = dict[str, Any]

load = functools.cache(ts.load)


def model_answers() -> Answers:
    """Answers of `load`, `weights`, `inspect`, `states` and `embed` for every model and data set."""
    return {name: _answers_of_model(name) for name in MODELS}


def argument_answers() -> Answers:
    """Answers of the same functions with arguments that differ from the defaults."""
    model, table = load("chronos-bolt-mini"), example_table()
    arguments: dict[str, Any] = {"context": 64, "rows": 100, "max_series": 5, "seed": 3}
    report = ts.inspect(model, table, horizon=6, share=0.5, epsilon=0.1, **arguments)
    for suffix in ("csv", "parquet", "html"):
        report.save(f"report/layers.{suffix}")
    states = ts.states(model, table, kinds=("observation", "reg", "padding"), **arguments)
    embed = functools.partial(ts.embed, model, table, context=64)
    return {
        "inspect": summarize_report(report),
        "saved as CSV": summarize_table(pd.read_csv("report/layers.csv")),
        "saved as Parquet": summarize_table(pd.read_parquet("report/layers.parquet")),
        "saved as a page": Path("report/layers.html").stat().st_size > 500,
        "states": summarize_states(states),
        "embed layer 2": summarize_vectors(embed(layer=2, pool="max")),
        "embed decoder": summarize_vectors(ts.embed("chronos-t5-mini", table, context=64, stack="encoder", layer=0)),
        "embed last": summarize_vectors(embed(pool="last", max_series=4, seed=2)),
        "precision": summarize_vectors(ts.embed(ts.load("chronos-2-mini", precision="bfloat16"), "nile")),
        "weights": summarize_table(ts.weights(model, epsilon=0.2)),
    }


def data_answers() -> Answers:
    """Vectors and states of the same series in every form that a user's data may have."""
    table = example_table().iloc[:, :3]
    long = table.reset_index(names="day").melt("day", var_name="shop", value_name="sold").assign(price=1.0)
    values = table.to_numpy().T
    folder = Path("series")
    folder.mkdir()
    table.to_csv(folder / "wide.csv", index_label="time")
    table.to_csv("semicolons.csv", index_label="time", sep=";", decimal=",")
    long.to_parquet("long.parquet", index=False)
    gaps = table.mask(np.arange(len(table))[:, None] % 7 == np.arange(3))
    gaps = gaps.assign(constant=1.0, empty=np.nan, infinite=np.inf)
    gaps["short"] = table["shop-0"].where(np.arange(len(table)) >= len(table) - 8)
    names = {"time": "day", "id": "shop", "value": "sold"}
    forms: dict[str, tuple[Any, dict[str, Any]]] = {
        "table": (table, {}),
        "table with columns": (long, names),
        "column": (table["shop-1"], {}),
        "list of columns": ([table["shop-0"], table["shop-1"]], {}),
        "array": (values, {}),
        "array of one series": (values[0].astype(np.float32), {}),
        "masked array": (np.ma.masked_array(values, np.arange(values.size).reshape(values.shape) % 5 == 0), {}),
        "list": ([values[0], values[1][:100]], {}),
        "dict": ({"one": values[0], "two": values[2].round().astype(int)}, {}),
        "CSV file": (folder / "wide.csv", {}),
        "CSV file with semicolons": ("semicolons.csv", {}),
        "Parquet file": ("long.parquet", names),
        "folder": (str(folder), {}),
        "gaps": (gaps, {}),
    }
    model = load("patchtst-mini")
    found: Answers = {}
    for form, (data, arguments) in forms.items():
        states = ts.states(model, data, context=64, **arguments)
        found[form] = {
            "embed": summarize_vectors(ts.embed(model, data, context=64, **arguments)),
            "skipped": dict(states.skipped),
            "states": summarize_states(states),
        }
    found["inspect gaps"] = summarize_report(ts.inspect("patchtst-mini", gaps, context=64))
    return found


def measure_answers() -> Answers:
    """Answers of the measures of an array."""
    rng = np.random.default_rng(0)
    states = rng.normal(size=(120, 3)) @ rng.normal(size=(3, 16)) + 0.1 * rng.normal(size=(120, 16)) + 0.5
    arrays = {
        "states": states,
        "float32": states.astype(np.float32),
        "whole": rng.integers(-4, 5, size=(30, 6)),
        "two rows": states[:2],
        "constant": np.ones((20, 4)),
    }
    found: Answers = {
        name: {
            "isotropy": summarize_dict(ts.isotropy(array)),
            "singular_values": summarize_values(ts.singular_values(array)),
            "numerical_rank": [ts.numerical_rank(array, epsilon) for epsilon in (0.001, 0.01, 0.3)],
        }
        for name, array in arrays.items()
    }
    types = np.arange(len(states)) // 4
    found["isotropy of types"] = summarize_dict(ts.isotropy(states, types, seed=5))
    found["effective_dimension"] = [ts.effective_dimension(states, share) for share in (0.5, 0.8, 0.99)]
    return found


def submodule_answers() -> Answers:
    """Outputs of submodules, by `states_of`."""
    found: Answers = {}
    for name, submodules in SUBMODULES.items():
        model = load(name)
        run = functools.partial(ts.embed, model, "nile", context=64)
        outputs = ts.states_of(model, run, submodules)
        found[name] = {submodule: summarize_values(values) for submodule, values in outputs.items()}
    return found


def compression_answers() -> Answers:
    """Answers of `compress` and `save`, and those of `load`, `embed` and `certify` for what was saved."""
    table = example_table()
    cases: dict[str, dict[str, Any]] = {
        "joint": {"model": "chronos-bolt-mini", "data": "sunspots", "method": "joint", "to": 0.5},
        "default": {
            **{"model": "chronos-bolt-mini", "data": ["sunspots", table], "windows": 8},
            **{"calibrate_on": "data", "max_series": 4, "seed": 1},
        },
        "refit": {
            **{"model": "chronos-bolt-mini", "data": table, "method": "activation-aware-refit", "to": 0.25},
            **{"windows": 8, "calibrate_on": "data", "bits": 8},
        },
        "healed": {"model": "chronos-t5-mini", "data": "sunspots", "to": 0.2, "windows": 8, "heal": 2},
        "svd": {"model": "patchtst-mini", "data": table, "method": "svd", "to": 0.5},
        "small": {"model": "moirai-2-mini", "data": "nile", "to": 0.15, "windows": 8},
    }
    return {name: _answers_of_compression(name, arguments, table) for name, arguments in cases.items()}


def export_answers() -> Answers:
    """Files that the command `export` writes, which is no public function, and what they contain."""
    ts.compress("chronos-bolt-mini", "nile", method="joint", to=0.5, context=64, horizon=8).save("small")
    run_command("export", "chronos-bolt-mini", "copy")
    run_command("export", "small", "dense", "--dense")
    run_command("export", "patchtst-mini", "onnx", "--onnx", "--context", "64", "--horizon", "12")
    return {**{name: summarize_folder(name) for name in ("copy", "dense")}, "onnx": {"files": list_files("onnx")}}


def forecast_answers() -> Answers:
    """Forecasts of `fev_model` for every model, and samples of `fast`."""
    import datasets
    import fev

    long = example_table().iloc[:, :4].reset_index(names="timestamp")
    long = long.melt("timestamp", var_name="id", value_name="target").sort_values(["id", "timestamp"])
    long.to_parquet("fev.parquet", index=False)
    cache, datasets.config.HF_DATASETS_CACHE = datasets.config.HF_DATASETS_CACHE, Path("cache").absolute()
    try:
        arguments: dict[str, Any] = {"horizon": 12, "num_windows": 2, "seasonality": 24, "eval_metric": "WQL"}
        task = fev.Task(dataset_path="fev.parquet", quantile_levels=[0.1, 0.5, 0.9], **arguments)
        found: Answers = {}
        for name in MODELS:
            model = ts.fev_model(load(name), context=96, samples=5, seed=1)
            windows = [window["target"].to_pandas() for window in model.fit_predict(task)]
            forecasts = {
                column: summarize_values(np.stack([np.stack(window[column]) for window in windows]))
                for column in windows[0]
            }
            found[name] = {"name": model.model_name, **forecasts}
    finally:
        datasets.config.HF_DATASETS_CACHE = cache
    return found


def error_answers() -> Answers:
    """Built-in exception, if any, that each wrong argument raises."""
    model, table = load("chronos-bolt-mini"), example_table()
    calls: dict[str, Callable[[], Any]] = {
        "load: unknown name": lambda: ts.load("no-such-model"),
        "inspect: context": lambda: ts.inspect(model, table, context=2),
        "inspect: share": lambda: ts.inspect(model, table, share=1.5),
        "inspect: unknown argument": lambda: ts.inspect(model, table, day="a"),
        "states: kind": lambda: ts.states(model, table, context=64, kinds=["no-such-kind"]),
        "embed: pool": lambda: ts.embed(model, table, pool="median"),
        "embed: layer": lambda: ts.embed(model, table, layer=99),
        "embed: stack": lambda: ts.embed(model, table, stack="no-such-stack"),
        "compress: method": lambda: ts.compress(model, table, method="no-such-method"),
        "compress: to": lambda: ts.compress(model, table, to=2),
        "certify: no list": lambda: ts.certify(model, "chronos-2-mini", "nile"),
        "certify: equal models": lambda: ts.certify(model, model, ["nile"]),
        "weights: no module": lambda: ts.weights("chronos-bolt-mini"),
        "states_of: unknown name": lambda: ts.states_of(model, lambda: None, ["no-such-module"]),
        "states_of: not called": lambda: ts.states_of(model, lambda: None, ["encoder"]),
        "isotropy: texts": lambda: ts.isotropy(np.array([["a"]])),
        "numerical_rank: NaN": lambda: ts.numerical_rank(np.array([[np.nan, 1.0]])),
        "effective_dimension: one row": lambda: ts.effective_dimension(np.ones((1, 3))),
        "fast: no pipeline": lambda: ts.fast("chronos-t5-mini"),
        "results: no file": lambda: ts.results("no-such-file.duckdb"),
    }
    return {name: _builtin_error(call) for name, call in calls.items()}


def command_answers() -> Answers:
    """Layers that `tsfmscope inspect --json` prints, and the Python API's for the same arguments."""
    printed = json.loads(run_command("inspect", "ttm-mini", "nile", "--context", "64", "--json"))
    layers = ts.inspect("ttm-mini", "nile", context=64).layers
    rows = printed["layers"] if isinstance(printed, dict) else printed
    shared = [column for column in layers.columns if column in rows[0]]
    equal = all(
        pd.isna(value) if row[column] is None else value == row[column]
        for row, (_, layer) in zip(rows, layers.iterrows(), strict=True)
        for column, value in layer[shared].items()
        if not isinstance(value, list | np.ndarray)
    )
    return {"inspect": {"rows": len(rows), "columns": shared, "equal": equal}}


SECTIONS: tuple[Callable[[], Answers], ...] = (
    *(model_answers, argument_answers, data_answers, measure_answers, submodule_answers),
    *(compression_answers, export_answers, forecast_answers, error_answers, command_answers),
)


def record(path: str | Path) -> None:
    """Write the answers as JSON: one line per answer, so that a diff names those that changed."""
    found = collect(stops=True)
    sections = [
        f"{json.dumps(section)}: {{\n"
        + ",\n".join(
            f"{json.dumps(name)}: {json.dumps(answer, separators=(',', ':'))}" for name, answer in part.items()
        )
        + "\n}"
        for section, part in found.items()
    ]
    Path(path).write_text("{" + ",\n".join(sections) + "}\n")


def compare(path: str | Path) -> list[str]:
    """Return one sentence per difference between a record and the answers of this code."""
    expected = json.loads(Path(path).read_text())
    return list(differences(expected, json.loads(json.dumps(collect(stops=False))), ""))


def collect(*, stops: bool) -> dict[str, Any]:
    """Return section -> answers, computed in an empty folder.

    stops: raise the exception of a section; otherwise it is the section's answer.
    """
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for section in SECTIONS:
            name, start = section.__name__, time.perf_counter()
            target = Path(folder) / name
            target.mkdir()
            try:
                with contextlib.chdir(target):
                    found[name] = section()
            except Exception as error:
                if stops:
                    raise
                found[name] = {"error": f"{type(error).__name__}: {error}"}
            print(f"{name}: {time.perf_counter() - start:.0f} s", file=sys.stderr)
    return found


def differences(expected: Any, found: Any, where: str) -> Iterator[str]:
    """Yield one sentence per difference of two answers. A list of files may have new ones."""
    if isinstance(expected, dict) and isinstance(found, dict):
        if "numbers" in expected and "numbers" in found:
            yield from _number_differences(expected, found, where)
            return
        for key in [*expected, *(key for key in found if key not in expected)]:
            if key not in found or key not in expected:
                side, answer = ("recorded", expected) if key in expected else ("found", found)
                yield f"{where}/{key}: only {side}: {_shorten(answer[key])}"
            elif key in VERDICTS and _tolerance(where) > TOLERANCE:
                continue
            elif key == "files":
                yield from (f"{where}/{key}: no {name}" for name in expected[key] if name not in found[key])
            else:
                yield from differences(expected[key], found[key], f"{where}/{key}")
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for number, pair in enumerate(zip(expected, found, strict=True)):
            yield from differences(*pair, f"{where}[{number}]")
    elif isinstance(expected, float) and isinstance(found, float):
        if not _is_close([expected], [found], max(abs(expected), abs(found)), _tolerance(where)):
            yield f"{where}: {expected} recorded, {found} found"
    elif _tolerance(where) > TOLERANCE and all(type(one) in (int, float) for one in (expected, found)):
        # A whole number is an int in the record.
        if not _is_close([expected], [found], max(abs(expected), abs(found)), _tolerance(where)):
            yield f"{where}: {expected} recorded, {found} found"
    elif type(expected) is not type(found) or expected != found:
        yield f"{where}: {_shorten(expected)} recorded, {_shorten(found)} found"


def summarize_values(values: Any) -> Answers:
    """Return shape, dtype, numbers of missing and infinite values, and four numbers, of an array.

    The numbers are the least, the most, the mean, and the sum with random signs over the root of the count, which
    shows values that are exchanged.
    """
    array = np.asarray(values)
    summary: Answers = {"shape": list(array.shape), "dtype": str(array.dtype)}
    if array.dtype.kind not in "biuf":
        return summary | {"digest": digest(array.ravel().tolist())}
    flat = array.astype(np.float64).ravel()
    finite = np.isfinite(flat)
    if not finite.all():
        summary |= {"nan": int(np.isnan(flat).sum()), "infinite": int(np.isinf(flat).sum())}
    signs = np.random.default_rng(0).choice([-1.0, 1.0], len(flat))[finite]
    kept = flat[finite]
    numbers = [kept.min(), kept.max(), kept.mean(), kept @ signs / np.sqrt(len(kept))] if len(kept) else []
    return summary | {"numbers": [_shorten_number(number) for number in numbers]}


def summarize_table(table: pd.DataFrame) -> Answers:
    """Return the number of rows and a summary per column. A column with one value is that value.

    A summary names the dtype unless it is float64, and the number of missing values unless it is 0.
    Columns without values are only counted, with a digest of their names.
    """
    columns: Answers = {}
    empty: list[str] = []
    for name in table.columns:
        column = table[name]
        missing = int(column.isna().sum()) if column.map(np.ndim).eq(0).all() else 0
        nulls = {"nulls": missing} if missing else {}
        if column.map(np.ndim).gt(0).any():
            columns[name] = summarize_values(np.concatenate([np.ravel(value) for value in column]))
        elif missing == len(column):
            empty.append(str(name))
        elif not missing and column.nunique() == 1:
            columns[name] = plain(column.iloc[0])
        elif pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
            summary = summarize_values(column.to_numpy(dtype=np.float64, na_value=np.nan))
            kind = {} if column.dtype == np.float64 else {"dtype": str(column.dtype)}
            columns[name] = kind | nulls | {"numbers": summary["numbers"]}
        else:
            columns[name] = nulls | {"digest": digest(map(str, column))}
    return {"rows": len(table), "columns": columns, "empty": f"{len(empty)} {digest(empty)}"}


def summarize_report(report: Any) -> Answers:
    """Return the facts of a report of `inspect`, its ranks and dimensions by layer, and its layers; not the license."""
    whole = {name: [plain(value) for value in report.layers[name]] for name in WHOLE_COLUMNS}
    return {
        **{name: getattr(report, name) for name in ("title", "n_windows", "n_series")},
        "skipped": dict(report.skipped),
        **whole,
        "layers": summarize_table(report.layers.drop(columns=list(WHOLE_COLUMNS))),
    }


def summarize_states(states: Mapping[tuple[str, int | str], np.ndarray]) -> Answers:
    """Return a summary per stack and layer; shape and dtype of a layer only where they differ from the first's."""
    stacks: Answers = {}
    for (stack, layer), values in states.items():
        summary = summarize_values(values)
        first = stacks.setdefault(stack, {key: summary[key] for key in ("shape", "dtype")} | {"layers": {}})
        first["layers"][str(layer)] = {key: value for key, value in summary.items() if first.get(key) != value}
    return stacks


def summarize_vectors(vectors: pd.DataFrame) -> Answers:
    """Return a summary of the vectors of `embed`."""
    names = [str(name) for name in vectors.index]
    return {"series": names, "skipped": dict(vectors.attrs["skipped"]), "values": summarize_values(vectors.to_numpy())}


def summarize_dict(values: Mapping[str, Any]) -> Answers:
    """Return the values as plain numbers and texts."""
    return {name: plain(value) for name, value in values.items()}


def summarize_folder(folder: str) -> Answers:
    """Return the files of a checkpoint, and facts of the model that `load` reads from it."""
    model = ts.load(folder)
    vectors = summarize_vectors(ts.embed(model, "nile", context=64))
    weights = summarize_table(ts.weights(model))
    return {"files": list_files(folder), "layers": dict(model.layers), "embed": vectors, "weights": weights}


def summarize_certificate(result: Any) -> Answers:
    """Return the tasks, units, and conditions of what `certify` returned."""
    tasks = pd.DataFrame(result.tasks)
    conditions = [
        [one.name, plain(one.value), plain(one.limit), bool(one.is_met)] for one in result.certificate.conditions
    ]
    return {
        "outcome": str(result.certificate.outcome),
        "conditions": conditions,
        "tasks": summarize_table(tasks.drop(columns="skipped")),
        "skipped": dict(result.skipped),
        "units": summarize_table(pd.DataFrame(result.units)),
        "left out": summarize_table(pd.DataFrame(result.left_out)),
    }


def plain(value: Any) -> Any:
    """Return a number, truth or text that JSON has; what is missing is None."""
    if isinstance(value, str | bool | np.bool_):
        return value if isinstance(value, str) else bool(value)
    if isinstance(value, np.ndarray | list | tuple):
        return summarize_values(value)
    if value is None or pd.isna(value):
        return None
    if isinstance(value, int | np.integer):
        return int(value)
    return float(f"{value:.6g}") if np.isfinite(value) else str(value)


def digest(values: Any) -> str:
    """Return a digest of texts in their order."""
    return hashlib.sha256("\n".join(map(str, values)).encode()).hexdigest()[:8]


def list_files(folder: str | Path) -> list[str]:
    """Return the names of the files below a folder, in alphabetical order."""
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file())


def run_command(*arguments: str) -> str:
    """Run `tsfmscope` with arguments; return what it prints."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tsfmscope", *arguments]
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout


@functools.cache
def example_table() -> pd.DataFrame:
    """Return 12 hourly series of 300 steps with a season of 24."""
    rng, steps = np.random.default_rng(0), np.arange(300)
    values = [
        10 + np.sin(2 * np.pi * steps / 24 + shop) + rng.normal(0, 0.3, 300) + 0.01 * (shop - 6) * steps
        for shop in range(12)
    ]
    index = pd.date_range("2024-01-01", periods=300, freq="h")
    return pd.DataFrame({f"shop-{shop}": column for shop, column in enumerate(values)}, index)


def _answers_of_model(name: str) -> Answers:
    model = load(name)
    weights = ts.weights(model)
    answers: Answers = {
        "name": model.name,
        "width": model.width,
        "layers": dict(model.layers),
        "device": model.device,
        "text": repr(model),
        "weights": summarize_table(weights),
        "left out": digest(weights.attrs["left_out"]),
    }
    for data, arguments in DATA.items():
        plain_arguments = {key: value for key, value in arguments.items() if key != "noise"}
        report = ts.inspect(model, data, **arguments)
        answers["license"] = str(report.license)
        answers[data] = {
            "inspect": summarize_report(report),
            "states": summarize_states(ts.states(model, data, **plain_arguments)),
            "embed": summarize_vectors(ts.embed(model, data)),
        }
    return answers


def _answers_of_compression(name: str, arguments: Mapping[str, Any], table: pd.DataFrame) -> Answers:
    base = load(arguments["model"])
    small = ts.compress(**{**arguments, "model": base, "context": 64, "horizon": 12})
    small.save(name)
    costs = small.costs[~small.costs["quantity"].str.contains("second")]
    certify = functools.partial(ts.certify, base, context=64, horizon=12)
    return {
        "name": small.name,
        "costs": {row["quantity"]: [plain(row["before"]), plain(row["after"])] for _, row in costs.iterrows()},
        "parts": summarize_table(small.parts),
        "judged": summarize_certificate(small.judged),
        "calibration_series": sorted(small.calibration.series),
        "saved": summarize_folder(name),
        "certify in memory": summarize_certificate(certify(small, ["co2", "nile", "sunspots"])),
        "certify saved": summarize_certificate(certify(name, ["co2", "nile", "sunspots"], max_series=3)),
        "certify table": summarize_certificate(certify(small, [table], margin=1.05, worst=1.2, seed=2)),
    }


def _builtin_error(call: Callable[[], Any]) -> str:
    try:
        call()
    except Exception as error:
        return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins")
    return "none"


def _number_differences(expected: Answers, found: Answers, where: str) -> Iterator[str]:
    rest = [{key: value for key, value in one.items() if key != "numbers"} for one in (expected, found)]
    if rest[0] != rest[1]:
        yield f"{where}: {rest[0]} recorded, {rest[1]} found"
        return
    old, new = expected["numbers"], found["numbers"]
    scale = max((abs(number) for number in (*old[:2], *new[:2])), default=0.0)
    if len(old) != len(new) or not _is_close(old, new, scale, _tolerance(where)):
        yield f"{where}: {old} recorded, {new} found"


def _shorten_number(number: float) -> float:
    """Return the number with six digits; a whole one as int, which is shorter in JSON."""
    shortened = float(f"{number:.6g}")
    return int(shortened) if shortened.is_integer() else shortened


def _tolerance(where: str) -> float:
    return next((tolerance for place, tolerance in ON_CPU.items() if fnmatchcase(where, place)), TOLERANCE)


def _is_close(old: Sequence[float], new: Sequence[float], scale: float, tolerance: float) -> bool:
    return all(abs(one - other) <= tolerance * scale for one, other in zip(old, new, strict=True))


def _shorten(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 200 else f"{text[:200]} …"


def main() -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["record", "compare"])
    parser.add_argument("file", type=Path)
    options = parser.parse_args()
    if options.action == "record":
        record(options.file)
        return 0
    found = compare(options.file)
    print("\n".join(found) or "equal: every answer")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
