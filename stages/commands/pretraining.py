"""Commands `tsfmscope corpus` and `commit-checkpoints`: series for pretraining, and pretrained checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from tsfmscope.cli.output import Json, print_json, stdout_for_json
from tsfmscope.strict import LARGEST_SEED

# Series of the largest corpus: a hundred times those of published pretraining, 4 TB at 1,024 steps.
MOST = 10**9


def corpus(
    folder: Annotated[Path, typer.Argument(help="Folder for the shards; a run that was interrupted continues there.")],
    series: Annotated[
        int, typer.Option(min=1, max=MOST, help="Number of series; a larger number than before adds the rest.")
    ] = 100_000,
    source: Annotated[
        Literal["kernelsynth", "priors"],
        typer.Option(help="Kind of the series that are not TSMixup, and of those that TSMixup may pick."),
    ] = "kernelsynth",
    length: Annotated[int, typer.Option(min=2, max=8192, help="Number of steps of a series of the source.")] = 1024,
    max_kernels: Annotated[
        int, typer.Option(min=1, max=32, help="Largest number of kernels of a KernelSynth series, J of Algorithm 1.")
    ] = 5,
    tsmixup: Annotated[
        float, typer.Option(min=0, max=1, help="Share of TSMixup series; 0.9 in the published pretraining.")
    ] = 0.0,
    pool: Annotated[
        int, typer.Option(min=0, max=MOST, help="Number of series of the source that TSMixup may pick.")
    ] = 100_000,
    real: Annotated[
        list[str] | None,
        typer.Option(help="Parquet file of real series for TSMixup, or bundled:NAME; the option may be repeated."),
    ] = None,
    form: Annotated[
        Literal["parquet", "arrow"],
        typer.Option("--format", help="File format; arrow is what gluonts and the Chronos script read."),
    ] = "parquet",
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of every series.")] = 0,
    shard: Annotated[int, typer.Option(min=1, max=MOST, help="Number of series per file.")] = 10_000,
    actors: Annotated[int | None, typer.Option(min=1, help="Number of actors; default: one per core.")] = None,
    address: Annotated[
        str | None, typer.Option(help="Address of a running Ray cluster, whose nodes share the folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Generate a corpus of series for pretraining.

    \b
    tsfmscope corpus FOLDER --series 1000000 --tsmixup 0.9 --real bundled:co2

    The series are those of one source, TSMixup or both, in Parquet or Arrow shards. The source is KernelSynth, or
    priors: random series with the features of real ones.
    """
    from stages.commands.corpora import make
    from tasks.sweep.cluster import Resources

    corpus_spec = {
        "seed": seed,
        "length": length,
        "max_kernels": max_kernels,
        "tsmixup": tsmixup,
        "pool": pool,
        "real": real or [],
        "shard": shard,
        "format": form,
        "source": source,
    }
    with stdout_for_json(as_json):
        summary = make(folder, corpus_spec, series, Resources(address=address, actors=actors))
    if as_json:
        counts = {"shards": summary.planned, "done": summary.done, "reused": summary.reused}
        print_json({"folder": str(folder), "series": series} | counts)


def commit_checkpoints(
    folder: Annotated[Path, typer.Argument(help="Folder of the checkpoints that are committed to git.")] = Path(
        "tsfmscope/checkpoints"
    ),
) -> None:
    """Copy pretrained checkpoints to a folder kept by git.

    The checkpoints are those that the stage `checkpoints` pretrained by the recipes of params.yaml. Each gets a model
    card, README.md, with its data, training and skill. The skill of its weights is read from docs/results/skill.csv,
    which `python -m bench.skill` writes; the command also renews cards.
    """
    from stages.planning.model_cards import commit
    from stages.planning.run_stage import read_params

    for name in commit(read_params(), folder):
        typer.echo(f"{folder / name}")
