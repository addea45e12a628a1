"""Synthetic tables for bench/store.py, in the store's schema: a few seconds per million geometry rows.

A study measures its own models on all data sets under all conditions, so one study requests each cell. Half
of the models are compressed versions of the other half. Spectra are drawn from a few thousand decays, each
times a random scale, so that they descend and do not compress well in Parquet. Keys, cardinalities and widths
are realistic; the values have no meaning.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from store import files
from store.schema import arrow_schema

FAMILIES = ("chronos-t5", "chronos-bolt", "moirai", "patchtst", "lag-llama")
PAPER = ("finance-1", "seasonality-1", "seasonality-2", "trend-1", "trend-2", "retail-1", "retail-2", "energy-1")
CONDITIONS = (("c512", 512, 0.0), ("c128", 128, 0.0), ("c512-noisy", 512, 0.05), ("c128-noisy", 128, 0.05))
# data sets that a test queries by name
NAMED = ("noise", "sinusoid")
# states per model, in one stack or two
LAYERS = 25
# number of different decays
POOL = 4096
# geometry rows in memory at one time
AT_ONCE = 1_000_000
FIGURES = ("isotropy Fig. 3", "isotropy section 5", "isotropy Fig. 5", "isotropy Fig. 6", "ranks section 4")
FILLED = {"string": "x", "bool": False, "double": 0.5, "timestamp[us, tz=UTC]": 1_700_000_000_000_000}


@dataclass(frozen=True)
class Scale:
    """Sizes of the tables; geometry has studies * models * datasets * 4 * 25 rows.

    models: per study. width: number of eigenvalues per geometry row, and size of the weight matrices.
    windows: forecasts per cell. spectra: rows of layer inputs in table spectra, with `spectrum` singular
    values each. measured: false leaves out geometry and forecasts.
    """

    studies: int = 10
    models: int = 100
    datasets: int = 100
    width: int = 64
    windows: int = 5
    spectra: int = 100_000
    spectrum: int = 768
    measured: bool = True

    @property
    def geometry(self) -> int:
        """Return the number of geometry rows."""
        return self.studies * self.models * self.cells * LAYERS * self.measured

    @property
    def cells(self) -> int:
        """Return the number of cells per model: data sets times conditions."""
        return self.datasets * len(CONDITIONS)


def table(name: str, n: int, columns: Mapping[str, Any]) -> pa.Table:
    """Return n rows of a table of the schema; a missing column is null, or constant if not nullable."""
    columns_of_schema = []
    for field in arrow_schema(name):
        values = columns.get(field.name)
        if values is None and not field.nullable:
            values = [] if pa.types.is_list(field.type) else FILLED.get(str(field.type), 1)
        if isinstance(values, pa.Array | np.ndarray):
            columns_of_schema.append(pa.array(values) if isinstance(values, np.ndarray) else values)
        else:
            columns_of_schema.append(pa.repeat(pa.scalar(values, field.type), n))
    return pa.Table.from_arrays([a.cast(f.type) for a, f in zip(columns_of_schema, arrow_schema(name), strict=True)],
                                schema=arrow_schema(name))  # fmt: skip


def keys(rng: np.random.Generator, n: int) -> pa.Array:
    """Return n random job keys."""
    text = rng.bytes(32 * n).hex().encode()
    return pa.StringArray.from_buffers(n, pa.py_buffer(np.arange(n + 1, dtype=np.int32) * 64), pa.py_buffer(text))


def descending(rng: np.random.Generator, n: int, width: int) -> pa.Array:
    """Return n lists of `width` descending numbers."""
    powers = rng.uniform(0.2, 4, size=(POOL, 1))
    pool = np.sort(np.arange(1, width + 1) ** -powers * rng.uniform(0.8, 1.25, size=(POOL, width)), axis=1)[:, ::-1]
    values = pool[rng.integers(POOL, size=n)] * rng.lognormal(size=(n, 1))
    return pa.ListArray.from_arrays(np.arange(n + 1, dtype=np.int32) * width, values.ravel())


def named_array(names: list[str], codes: np.ndarray) -> pa.Array:
    """Return the names at these indices."""
    return pa.array(names).take(pa.array(codes))


def layer_keys() -> Mapping[str, tuple[list[str], np.ndarray, np.ndarray]]:
    """Return stack, layer and `normed` of each state of a model, for models with one stack and with two."""
    one_stack = (["encoder"] * LAYERS, np.arange(LAYERS), np.arange(LAYERS) == LAYERS - 1)
    layers = np.concatenate([np.arange(13), np.arange(12)])
    two_stacks = (["encoder"] * 13 + ["decoder"] * 12, layers, np.isin(np.arange(LAYERS), [12, 24]))
    return {"one": one_stack, "two": two_stacks}


def model_names(study: int, scale: Scale) -> tuple[list[str], list[str | None]]:
    """Return the models of a study and their base models, None for uncompressed ones."""
    half = max(1, scale.models // 2)
    base = [f"{FAMILIES[n % len(FAMILIES)]}-{study}-{n:03d}" for n in range(half)]
    compressed = [f"{base[n % half]}@svd-{n:03d}" for n in range(scale.models - half)]
    return base + compressed, [None] * half + [base[n % half] for n in range(scale.models - half)]


class Rows:
    """Tables of a scale; `write` writes them as Parquet files into a folder."""

    def __init__(self, scale: Scale, seed: int = 0) -> None:
        self.scale, self.rng = scale, np.random.default_rng(seed)
        self.datasets = [*NAMED, *(f"dataset-{n:03d}" for n in range(scale.datasets))][: scale.datasets]
        self.models = [model_names(study, scale) for study in range(scale.studies)]

    def write(self, folder: Path) -> dict[str, list[Path]]:
        """Write all tables; return the files of each table."""
        files_by_table: dict[str, list[Path]] = {}
        makers = [self.spectra(), self.weights(), self.small()]
        if self.scale.measured:
            makers = [self.geometry(), self.forecasts(), *makers]
        for n, (name, part) in enumerate(itertools.chain.from_iterable(makers)):
            path = folder / name / f"{n:04d}.parquet"
            files.write_parquet(path, part)
            files_by_table.setdefault(name, []).append(path)
        return files_by_table

    def cell(self, models: list[str], bases: list[str | None], m: np.ndarray, d: np.ndarray, c: np.ndarray) -> dict:
        """Return the columns that identify a measured cell."""
        is_compressed = np.array([base is not None for base in bases])[m]
        return {
            "model": named_array(models, m),
            "base_model": named_array(bases, m),
            "size_parameter": pa.array(np.full(len(m), 0.25), mask=~is_compressed),
            "size_rule": pa.array(np.full(len(m), "share"), mask=~is_compressed),
            "dataset": named_array(self.datasets, d),
            "condition": named_array([name for name, _, _ in CONDITIONS], c),
            "context": np.array([context for _, context, _ in CONDITIONS])[c],
            "noise": np.array([noise for _, _, noise in CONDITIONS])[c],
        }

    def study_jobs(self, study: int, stage: str, job_keys: pa.Array) -> pa.Table:
        """Return rows of `study_jobs`, one per job key."""
        return table("study_jobs", len(job_keys), {"study": f"study-{study}", "stage": stage, "job_key": job_keys})

    def geometry(self) -> Iterator[tuple[str, pa.Table]]:
        """Yield geometry and its rows of `study_jobs`, in files of at most a million rows.

        Rows are in random order, as rows that are sorted by key are.
        """
        rng, cells = self.rng, self.scale.cells
        for study, (models, bases) in enumerate(self.models):
            total = len(models) * cells * LAYERS
            order = rng.permutation(total)
            for start in range(0, total, AT_ONCE):
                row = order[start : start + AT_ONCE]
                m, index = np.divmod(row, cells * LAYERS)
                cell, state = np.divmod(index, LAYERS)
                two = np.array(["chronos-t5" in name for name in models])[m]
                stacks, layers, normed = (np.stack([a, b]) for a, b in zip(*layer_keys().values(), strict=True))
                columns = self.cell(models, bases, m, cell // len(CONDITIONS), cell % len(CONDITIONS))
                columns |= {"stack": pa.array(stacks[two.astype(int), state]), "layer": layers[two.astype(int), state]}
                columns |= {"normed": normed[two.astype(int), state], "job_key": keys(rng, len(row))}
                columns |= {name: rng.normal(size=len(row)) * 0.1 for name in MEASURES}
                columns |= {"zeta_adjusted_p": rng.uniform(size=len(row))}
                columns |= {"eigenvalues": descending(rng, len(row), self.scale.width), "silhouettes": [0.3, 0.2, 0.1]}
                yield "geometry", table("geometry", len(row), columns)
                yield "study_jobs", self.study_jobs(study, "geometry", columns["job_key"])

    def forecasts(self) -> Iterator[tuple[str, pa.Table]]:
        """Yield forecasts, with `windows` rows and one job per cell, their rows of `study_jobs`, and timings."""
        rng, cells, windows = self.rng, self.scale.cells, self.scale.windows
        for study, (models, bases) in enumerate(self.models):
            jobs = keys(rng, len(models) * cells)
            job = np.arange(len(jobs)).repeat(windows)
            n, m = len(job), job // cells
            cell = job % cells
            columns = self.cell(models, bases, m, cell // len(CONDITIONS), cell % len(CONDITIONS))
            columns |= {
                "job_key": jobs.take(pa.array(job)),
                "series": named_array(["s0", "s1", "s2"], np.arange(n) % 3),
            }
            columns |= {"origin": np.arange(n) % windows, "levels": [0.1 * q for q in range(1, 10)]}
            columns |= {name: rng.lognormal(-1, 0.5, size=n) for name in SCORES}
            yield "forecasts", table("forecasts", n, columns)
            yield "study_jobs", self.study_jobs(study, "forecasts", jobs)
            timing = {"stage": "forecasts", "key": jobs, "seconds": rng.lognormal(size=len(jobs))}
            actors = named_array([f"actor-{a}" for a in range(8)], np.arange(len(jobs)) % 8)
            timing |= {"started": (1_700_000_000_000_000 + np.arange(len(jobs)) * 1000).astype("datetime64[us]")}
            yield (
                "timings",
                table("timings", len(jobs), timing | {"actor": actors, "load_seconds": 0.0, "subject": "m"}),
            )

    def spectra(self) -> Iterator[tuple[str, pa.Table]]:
        """Yield spectra of all models' layer inputs, on as many data sets as their number needs."""
        rng = self.rng
        models = [(study, name, base) for study, two in enumerate(self.models) for name, base in zip(*two, strict=True)]
        names, bases = [name for _, name, _ in models], [base for _, _, base in models]
        for start in range(0, self.scale.spectra, AT_ONCE // 20):
            row = np.arange(start, min(start + AT_ONCE // 20, self.scale.spectra))
            n, (cell, layer) = len(row), np.divmod(row, LAYERS)
            d, m = np.divmod(cell, len(models))
            columns = self.cell(names, bases, m, d % self.scale.datasets, d // self.scale.datasets % len(CONDITIONS))
            columns |= {"what": "input", "stack": "encoder", "layer": layer, "normed": layer == LAYERS - 1}
            columns |= {"tokens": "valued", "n_rows": 2048, "n_columns": self.scale.spectrum, "dtype": "float32"}
            columns |= {"floor": 3e-5, "singular_values": descending(rng, n, self.scale.spectrum), "heads": None}
            columns |= {"job_key": keys(rng, n)}
            yield "spectra", table("spectra", n, columns)
            study = np.array([study for study, _, _ in models])[m]
            for number in np.unique(study):
                yield (
                    "study_jobs",
                    self.study_jobs(number, "spectra", columns["job_key"].filter(pa.array(study == number))),
                )

    def weights(self) -> Iterator[tuple[str, pa.Table]]:
        """Yield weight spectra of uncompressed models, whole and by head: 12 blocks, 5 matrices, 4 heads."""
        kinds = [(matrix, head) for matrix in ("q", "k", "v", "o") for head in (None, 0, 1, 2, 3)] + [("mlp_in", None)]
        width = self.scale.width
        for study, (models, bases) in enumerate(self.models):
            bare = [n for n, base in enumerate(bases) if base is None]
            m, layer, kind = (a.ravel() for a in np.meshgrid(bare, range(1, 13), range(len(kinds)), indexing="ij"))
            head = np.array([-1 if h is None else h for _, h in kinds])[kind]
            for part, rows in ((head < 0, width), (head >= 0, width // 4)):
                n, attends = int(part.sum()), kind[part] < 20
                columns = {
                    "model": named_array(models, m[part]),
                    "what": "weight",
                    "stack": "encoder",
                    "layer": layer[part],
                }
                columns |= {"matrix": named_array([name for name, _ in kinds], kind[part]), "dtype": "float32"}
                columns |= {"attention": pa.array(np.where(attends, "self", None)), "floor": 3e-5}
                columns |= {"head": pa.array(head[part], mask=head[part] < 0), "n_rows": rows, "n_columns": width}
                columns |= {"heads": pa.array(np.full(n, 4), mask=~attends), "job_key": keys(self.rng, n)}
                columns |= {"singular_values": descending(self.rng, n, rows)}
                yield "spectra", table("spectra", n, columns)
                yield "study_jobs", self.study_jobs(study, "spectra", columns["job_key"])

    def small(self) -> Iterator[tuple[str, pa.Table]]:
        """Yield the small tables: checkpoints, datasets, compression, questions, training and runs."""
        names = [name for models, _ in self.models for name in models]
        bases = [base for _, bases in self.models for base in bases]
        n, compressed = len(names), [i for i, base in enumerate(bases) if base is not None]
        family = pa.array([next(f for f in FAMILIES if name.startswith(f)) for name in names])
        source = pa.array(["hub" if base is None else "compressed" for base in bases])
        output_stack = pa.array(["decoder" if "chronos-t5" in name else "encoder" for name in names])
        columns = {"model": pa.array(names), "family": family, "modality": "series", "source": source}
        columns |= {"input_stack": "encoder", "output_stack": output_stack}
        yield "checkpoints", table("checkpoints", n, columns)
        d = len(self.datasets)
        paper = pa.array([*PAPER[:d], *[None] * (d - len(PAPER))])
        domain = named_array([f"domain-{k}" for k in range(10)], np.arange(d) % 10)
        columns = {
            "dataset": pa.array(self.datasets, pa.string()),
            "domain": domain,
            "paper": paper,
            "source": "folder",
        }
        yield "datasets", table("datasets", d, columns)
        columns = {
            "model": named_array(names, np.array(compressed)),
            "base_model": named_array(bases, np.array(compressed)),
            "method": "svd",
        }
        share = np.array([0.125, 0.25, 0.5])[np.arange(len(compressed)) % 3]
        columns |= {"attention_ratio": share, "rank_ratio": share, "size_ratio": share}
        columns |= {"parameters": 1, "base_parameters": 2, "attention_parameters": 1, "base_attention_parameters": 2}
        yield "compression", table("compression", len(compressed), columns)
        studies = [f"study-{n}" for n in range(self.scale.studies)]
        figure = pa.array([FIGURES[n % len(FIGURES)] for n in range(len(studies))])
        yield "studies", table("studies", len(studies), {"study": pa.array(studies), "figure": figure})
        step, runs = np.arange(100 * len(names)) % 100, named_array(names, np.arange(100 * len(names)) // 100)
        yield "training", table("training", len(step), {"model": runs, "step": step, "job_key": runs})
        yield "runs", table("runs", 1, {"stage": "forecasts", "seconds": 1e5})


MEASURES = ("zeta", "zeta_adjusted", "zeta_adjusted_corrected", "log_isotropy", "log_isotropy_scaled", "isoscore")
MEASURES += ("zeta_token", "zeta_adjusted_weighted", "zeta_adjusted_floor", "zeta_adjusted_null")
SCORES = ("nmse", "nmse_power", "squared_error", "nmse_denominator", "wql_window", "quantile_loss", "target_abs")
SCORES += ("mase",)
