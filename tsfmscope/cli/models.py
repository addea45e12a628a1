"""Command `tsfmscope models`: the bundled models."""

from __future__ import annotations

import math
from typing import Any

import typer

from tsfmscope.cli.output import Json, print_json, print_table
from tsfmscope.models import registry
from tsfmscope.models.bundled_skill import bundled_skill
from tsfmscope.models.cards import license_of
from tsfmscope.models.references import load_catalog, resolve


def models(as_json: Json = False) -> None:
    """List the bundled models, with size, licence, skill and seconds.

    \b
    tsfmscope models
    tsfmscope models --json

    skill: WQL over that of seasonal naive, geometric mean over the data sets that guided the recipes; below 1 is better
    than seasonal naive. seconds: of one core of an Intel Xeon, for eight series of 512 steps, 24 steps ahead. Other
    data sets may rank models in another order: `tsfmscope score` ranks them on yours, and measures their seconds.
    A folder, FAMILY:FOLDER or hub:ORG/NAME is a model, too.
    """
    rows = [_row(name) for name in load_catalog()["models"]]
    if as_json:
        print_json(rows)
        return
    print_table("", list(rows[0]), [list(row.values()) for row in rows])
    typer.echo("skill: WQL over that of seasonal naive, on data sets that guided the recipes; below 1 is better")
    typer.echo("seconds: of one core, for eight series of 512 steps, 24 steps ahead; `tsfmscope score`: both on yours")


def _row(name: str) -> dict[str, Any]:
    source = resolve(name)
    facts, skill = registry.facts(source.folder), bundled_skill().get(name)
    return {
        "model": name, "family": source.family, "reads": registry.family_class(source.family).modality,
        "parameters": facts["parameters"], "bytes": facts["bytes"], "licence": license_of(source.folder).name,
        "skill": None if skill is None else math.exp(skill.log_ratio),
        "seconds": None if skill is None else skill.seconds,
    }  # fmt: skip
