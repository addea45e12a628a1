"""Every number of ../shared/reference under a name of its own, and the same of the project's views."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import duckdb

FOLDER = Path(__file__).parents[3] / "shared" / "reference"
ABSENT = "../shared/reference is not here: it holds the numbers as others copied them from the papers"
Numbers = dict[tuple[str, ...], float]  # file, row, column -> number
KEYS = {  # file -> columns that name a row
    "table1_effective_dimension": ("model", "layer"),
    "isotropy_text_values": ("figure", "model", "dataset", "condition"),
    "table2_svd_compression": ("size_ratio",),
    "fig7_pretrained_compressed_chronos": ("d0",),
    "table3_pretrained_compressed_moirai": ("size_ratio",),
    "table4_pretrained_compressed_bolt_small": ("d0",),
}
FIGURES = {  # file -> figure that its numbers are of; of the text values the number stands in the row
    "table1_effective_dimension": "isotropy Table 1",
    "isotropy_text_values": "isotropy Fig. {}",
    "table2_svd_compression": "ranks Table 2",
    "fig7_pretrained_compressed_chronos": "ranks Fig. 7",
    "table3_pretrained_compressed_moirai": "ranks Table 3",
    "table4_pretrained_compressed_bolt_small": "ranks Table 4",
}
SETTINGS = ("size_ratio", "d0", "alpha", "flow_d0", "flow_alpha", "flat_d0", "flat_alpha")  # chosen, not found


def of_files(folder: Path = FOLDER) -> Numbers:
    """Every number of the files of KEYS, those that name a row too; other files hold what no paper here printed."""
    found: Numbers = {}
    for name_of_file, keys in KEYS.items():
        path = folder / f"{name_of_file}.csv"
        for row in csv.DictReader(path.read_text().splitlines()):
            name = (path.stem, *(_plain(row[key]) for key in keys))
            values = [(column, text) for column, text in row.items() if text and _is_number(text)]
            for column, text in values:
                assert (*name, column) not in found, f"{path.name} has {name} twice"
                if column not in ("figure", "layer"):
                    found[*name, column] = float(text)
    return found


def of_project(connection: duckdb.DuckDBPyConnection) -> Numbers:
    """The same numbers as the views hold them."""
    return dict([*_isotropy(connection), *_cut(connection), *_pretrained(connection)])


def is_base(name: tuple[str, ...]) -> bool:
    """Whether a number is of the row of the uncompressed model, which is 1 by definition."""
    file, *rest = name
    if file == "table2_svd_compression" or file.startswith("table3"):
        return rest[0] == "1"
    return file in ("fig7_pretrained_compressed_chronos", "table4_pretrained_compressed_bolt_small") and rest[0] == "64"


def _isotropy(connection: duckdb.DuckDBPyConnection) -> Iterator[tuple[tuple[str, ...], float]]:
    asked = "select figure, source, family, dataset, context, noise, layer, quantity, published from published_numbers"
    for figure, source, family, dataset, context, noise, layer, quantity, value in connection.sql(asked).fetchall():
        if figure == "isotropy Table 1":
            yield ("table1_effective_dimension", family, str(layer), "d_0_8"), value
        elif figure != "isotropy Fig. 2":  # the text's two shares of variance, which no file holds
            number = source.rpartition("Fig. ")[2] if "Fig. " in source else figure[-1]
            told = f"noise={noise:g}" if number == "6" else f"context={context}" if context else ""
            column = {"nmse": "nmse", "zeta_adjusted": "cosine"}[quantity]
            yield ("isotropy_text_values", number, family, dataset, told, column), value


def _cut(connection: duckdb.DuckDBPyConnection) -> Iterator[tuple[tuple[str, ...], float]]:
    asked = "select family, benchmark, ratio, wql_ratio, mase_ratio, overlap, lppl from published_compression"
    for family, benchmark, ratio, wql, mase, overlap, lppl in connection.sql(asked).fetchall():
        row = ("table2_svd_compression", f"{ratio:g}")
        yield (*row, "size_ratio"), ratio
        if family == "t5-text":
            yield from (((*row, "t5_lppl"), lppl), ((*row, "t5_overlap"), overlap))
        else:
            prefix = f"chronos_{benchmark.replace('-', '_')}"
            yield from (((*row, f"{prefix}_wql"), wql), ((*row, f"{prefix}_mase"), mase))
            yield (*row, "chronos_overlap"), overlap


def _pretrained(connection: duckdb.DuckDBPyConnection) -> Iterator[tuple[tuple[str, ...], float]]:
    asked = (
        "select figure, line, quantity, first, growth, size, time_ratio, space_ratio, value from published_pretrained"
    )
    files = {figure: file for file, figure in FIGURES.items()}
    for figure, line, quantity, first, growth, size, time, space, value in connection.sql(asked).fetchall():
        if figure == "ranks Table 3":
            row = (files[figure], f"{size:g}")
            settings = {"size_ratio": size, f"{line}_d0": first, f"{line}_alpha": growth}
            column = f"{line}_{quantity.lower()}"
        else:
            row = (files[figure], f"{first:g}")
            settings = {"d0": first, "alpha": growth, "size_ratio": size, "time": time, "space": space}
            prefix = {"reused embedding": "reuse_embedding"}.get(line, line.replace(" ", "_").replace("-", "_"))
            column = f"{prefix}_{quantity.removeprefix('score ').lower()}"
        yield from (((*row, name), number) for name, number in settings.items() if number is not None)
        yield (*row, column), value


def _plain(text: str) -> str:
    """A number without trailing zeros, other text as it is."""
    return f"{float(text):g}" if _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
