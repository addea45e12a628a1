"""`python -m tsfmscope.stages NAME` runs one stage, as dvc.yaml does; `plan` prints the size of every study."""

from __future__ import annotations

import importlib
import math
import os
import sys
from collections import Counter
from enum import StrEnum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from tsfmscope.stages import BY_NAME, DATA
from tsfmscope.stages.config import LARGEST_SEED, dvc_keys
from tsfmscope.stages.config.params import COMPRESSED, PARAMS_FILE, Params, ParamsError, load
from tsfmscope.stages.pipeline.sweeping import TooManyFailures
from tsfmscope.stages.pipeline.system_errors import describe, drop_output
from tsfmscope.store.errors import StoreError
from tsfmscope.store.printable import printable
from tsfmscope.tasks.errors import ModelError, TsfmscopeError
from tsfmscope.tasks.models.registry import check_name, check_options, check_reference, family_class
from tsfmscope.tasks.series.catalog import modality
from tsfmscope.tasks.sweep.cluster import Resources

if TYPE_CHECKING:
    from tsfmscope.stages.pipeline.contexts import Observed

# Environment variables whose names begin with these go with a submitted job: paths and retries, no
# credentials.
PASSED = ("TSFMSCOPE_", "HF_HOME")

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)


class Format(StrEnum):
    """File format of a corpus' shards."""

    parquet = auto()
    arrow = auto()


Profile = Annotated[Path, typer.Argument(help="a params file")]


def read(path: str | Path = PARAMS_FILE) -> Params:
    """Load a params file and check that its families exist, here or in an installed package.

    Raises ParamsError with one line. The check of families stands here and not in stages/config/params.py,
    because no stage depends on the names of all families.
    """
    params = load(path)
    named = {f"models.{name}": model.family for name, model in params.models.items()}
    named |= {f"checkpoints.recipes.{name}": one.family for name, one in params.checkpoints.recipes.items()}
    for where, family in named.items():
        try:
            check_name(family)
        except ValueError as error:
            raise ParamsError(f"{path}: {where}.family: {error}; install the package that adds another") from None
    return params


def _stage(name: str) -> None:
    module = importlib.import_module(f"tsfmscope.stages.{name}")
    params = read()
    # `external_inputs` runs first in every `dvc repro` and watches no key itself. DVC reports the missing
    # keys of one stage at a time; this check reports those of all stages at once.
    if name == "external_inputs":
        dvc_keys.check(params)
    module.main(params)


for _name, _one in BY_NAME.items():
    app.command(_name, help=_one.description)(lambda name=_name: _stage(name))


@app.command()
def plan(profile: Profile = Path(PARAMS_FILE)) -> None:
    """Check a params file offline and print how many models, data sets and cells each study has."""
    params = read(profile)
    dvc_keys.check(params, profile)
    for name, model in params.models.items():
        check_options(model.family, model.options, f"models.{name}.options")
        if not model.ref.startswith(("checkpoint:", COMPRESSED)):
            try:
                check_reference(model.ref)
            except ModelError as error:
                raise ParamsError(f"models.{name}.ref: {error}") from None
    table = Table("study", "models", "data sets", "conditions", "cells", title=f"{profile}")
    for name in params.studies:
        counts = [len(params.expand(name, block)) for block in ("models", "datasets", "conditions")]
        table.add_row(name, *map(str, counts), str(_cells(params, name)))
    Console().print(table)
    _print_contexts(params)
    rows = params.embeddings.rows
    typer.echo(
        f"{len(params.models)} models, {len(params.datasets.sets)} data sets, {len(params.conditions)} conditions; "
        f"{rows} tokens of every layer are kept of each cell"
    )


@app.command()
def profile(
    name: Annotated[str, typer.Argument(help="Name of a file in params/, without .yaml.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite edits of params.yaml.")] = False,
) -> None:
    """Check params/NAME.yaml and copy it over params.yaml, unless that has edits."""
    from tsfmscope.stages.config.profiles import FOLDER, use_profile

    if (FOLDER / f"{name}.yaml").is_file():
        plan(FOLDER / f"{name}.yaml")
    use_profile(name, force=force)


def _print_contexts(params: Params) -> None:
    """Print the observed steps of every context by data set, then the contexts that no series fills."""
    from tsfmscope.stages.pipeline.contexts import context_lines, planned_contexts

    contexts, absent = planned_contexts(params)
    lengths = sorted({one.context for one in contexts})
    table = Table("data set", *(f"context {length}" for length in lengths), title="observed steps: minimum / median")
    for name in dict.fromkeys(one.dataset for one in contexts):
        found = {one.context: one.observed for one in contexts if one.dataset == name}
        table.add_row(name, *(_steps(found[length]) if length in found else "" for length in lengths))
    if lengths:
        Console().print(table)
    for line in context_lines(contexts, absent):
        typer.echo(line)


def _steps(observed: Observed | None) -> str:
    return "no window" if observed is None else f"{observed.minimum} / {observed.median:g}"


def _cells(params: Params, study: str) -> int:
    """Return the number of cells of a study: models x data sets x conditions, within each modality.

    Data sets are counted whether or not their files are on this machine.
    """
    asked = {block: params.expand(study, block) for block in ("models", "datasets", "conditions")}
    kinds = (
        Counter(family_class(params.models[name].family).modality for name in asked["models"]),
        Counter(modality(params.datasets.sets[name].source) for name in asked["datasets"]),
        Counter(params.conditions[name].modality for name in asked["conditions"]),
    )
    return sum(math.prod(kind[one] for kind in kinds) for one in kinds[0])


@app.command()
def keep(folder: Annotated[Path, typer.Argument(help="a folder that is kept in git")] = Path("checkpoints")) -> None:
    """Copy the checkpoints that the stage `checkpoints` pretrained into a folder that is committed to git."""
    from tsfmscope.stages.checkpoints import keep as keep_checkpoints

    keep_checkpoints(read(), folder)


@app.command()
def export(
    model: Annotated[str, typer.Argument(help="a model of params.yaml, BASE@METHOD for a compressed one, or a folder")],
    folder: Annotated[Path, typer.Argument(help="where it goes: a new folder")],
    dense: Annotated[bool, typer.Option("--dense", help="of the original's shapes, for the stock package")] = False,
    family: Annotated[str | None, typer.Option(help="of a model that is a folder")] = None,
) -> None:
    """Write a model as a checkpoint for use elsewhere: compressed, or dense for the model's own package."""
    from tsfmscope.stages.cli.exporting import export as export_model

    typer.echo(export_model(read(), model, folder, dense=dense, family=family))


@app.command()
def corpus(
    folder: Annotated[Path, typer.Argument(help="where the shards go; a run that was stopped goes on there")],
    series: Annotated[int, typer.Option(min=1, help="how many; more than there are adds the rest")] = 100_000,
    length: Annotated[int, typer.Option(min=2, max=8192, help="steps of a KernelSynth series")] = 1024,
    max_kernels: Annotated[int, typer.Option(min=1, max=32, help="J of Algorithm 1")] = 5,
    tsmixup: Annotated[float, typer.Option(min=0, max=1, help="share of TSMixup; published pretraining: 0.9")] = 0.0,
    pool: Annotated[int, typer.Option(min=0, help="KernelSynth series that TSMixup may pick")] = 100_000,
    real: Annotated[
        list[str] | None, typer.Option(help="Parquet file of series for TSMixup, or bundled:NAME; repeat")
    ] = None,
    format: Annotated[Format, typer.Option(help="arrow is what gluonts and the Chronos script read")] = Format.parquet,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED)] = 0,
    shard: Annotated[int, typer.Option(min=1, help="series a file")] = 10_000,
    actors: Annotated[int | None, typer.Option(min=1, help="default: one a core")] = None,
    address: Annotated[str | None, typer.Option(help="of a running Ray; the folder must be shared with it")] = None,
) -> None:
    """Generate a corpus for pretraining: KernelSynth, TSMixup or both, in Parquet or Arrow shards."""
    from tsfmscope.stages.cli.corpora import make

    law = {
        "seed": seed,
        "length": length,
        "max_kernels": max_kernels,
        "tsmixup": tsmixup,
        "pool": pool,
        "real": real or [],
        "shard": shard,
        "format": format.value,
    }
    make(folder, law, series, Resources(address=address, actors=actors))


@app.command()
def submit(
    address: Annotated[str, typer.Option(help="of the cluster's job server: http://HEAD:8265")],
    command: Annotated[list[str] | None, typer.Argument(help="what to run there; default: dvc repro")] = None,
    folder: Annotated[str, typer.Option(help="this checkout as the nodes see it; default: as here")] = "",
    python: Annotated[str, typer.Option(help="of driver and workers; default: FOLDER/.venv/bin/python")] = "",
    name: Annotated[str, typer.Option(help="of the job; default: Ray makes one")] = "",
    follow: Annotated[bool, typer.Option(help="print its log and end with its exit status")] = True,
) -> None:
    """Run the pipeline as a job on a Ray cluster whose nodes share the folder; see docs/cluster.md."""
    from tsfmscope.tasks.sweep.submit import Submission
    from tsfmscope.tasks.sweep.submit import submit as submit_job

    folder = folder or str(Path.cwd())
    passed = {name: value for name, value in os.environ.items() if name.startswith(PASSED)}
    order = Submission(
        address,
        folder,
        python or f"{folder}/.venv/bin/python",
        command or ["dvc", "repro"],
        name or None,
        passed,
        follow,
    )
    raise typer.Exit(submit_job(order))


@app.command()
def retry() -> None:
    """Run the stages that have failed jobs again, including those jobs."""
    from tsfmscope.stages.pipeline.sweeping import RETRY_VARIABLE, stages_with_failures

    os.environ[RETRY_VARIABLE] = "1"
    named = stages_with_failures()
    typer.echo(f"retrying {', '.join(named)}" if named else "no stage has failures")
    for name in named:
        _stage(name)
    if named:
        typer.echo("now run `dvc repro`, so that what depends on them follows")


@app.command()
def done() -> None:
    """Print where the results of `dvc repro` are. Raises StoreError if there are none."""
    results = Path(DATA, "results.duckdb")
    if not results.is_file():
        raise StoreError(f"no results at {results}; `make repro` (or `dvc repro`) makes them, `dvc pull` brings them")
    typer.echo(f'results: {results}  (python -m tsfmscope.store "select * from correlation")')
    typer.echo(f"report:  {DATA}/report.html")


def main() -> None:
    """Run the command and turn known errors into one line on stderr and an exit code.

    Exit code 2: an error that the user can fix in params.yaml. Exit code 1: the work failed.
    """
    try:
        app()
    except ParamsError as error:
        sys.exit(_say(str(error), 2))
    except (TsfmscopeError, StoreError, TooManyFailures) as error:
        sys.exit(_say(str(error), 1))
    except BrokenPipeError:
        raise
    except OSError as error:
        drop_output()
        sys.exit(_say(describe(error), 1))


def _say(message: str, code: int) -> int:
    print(printable(message, keep="\n\t"), file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
