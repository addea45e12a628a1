"""Model cards (README.md) of the checkpoints that are committed to git."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from stages.config.params import Params
from stages.planning.checkpoints import CARD, LOG
from stages.planning.dataset_skill import GENERATED, WITH_BUNDLED
from stages.planning.model_folders import key_of
from stages.planning.training import MODELS, recipes, training_jobs
from store.files import write_text
from tsfmscope.defaults import HELD_OUT
from tsfmscope.errors import ModelError
from tsfmscope.files import read_packaged
from tsfmscope.forecasting.skill import dataset_ratios, group_skill, interval, read_rows
from tsfmscope.models import registry
from tsfmscope.models.cards import loading_code, make_card, make_table
from tsfmscope.models.common.checkpoint_folder import STOCK, verify_sums
from tsfmscope.models.facts import Package
from tsfmscope.series.files.sources import BUNDLED
from tsfmscope.series.synthetic.shards import CORPUS_FILE, REAL_PREFIX
from tsfmscope.training.corpora import SHARDS
from tsfmscope.training.options import Recipe
from tsfmscope.training.pretraining import RUN_RECORD

# Rows that `python -m bench.skill` wrote, next to the folder of committed checkpoints.
SKILL = Path("docs/results/skill.csv")
TEXTS = read_packaged(Path(__file__).with_suffix(".yaml"))
RATIO_TITLES = "WQL ratio | MAE ratio"
NOTE = "<!-- Written by `tsfmscope commit-checkpoints`, which replaces changes that are made by hand. -->"


def commit(params: Params, folder: Path) -> list[str]:
    """Copy the pretrained checkpoints to a folder that is committed to git, and write their cards; return their names.

    A checkpoint that only this folder contains gets its card anew and is otherwise left as it is. Raises ModelError
    for a checkpoint that is not made by the recipe in params.yaml, or whose files are damaged.
    """
    jobs = training_jobs(recipes(params))
    for name, job in jobs.items():
        if key_of(MODELS / name) == job.key:
            verify_sums(MODELS / name)
            shutil.copytree(MODELS / name, folder / name, dirs_exist_ok=True, ignore=shutil.ignore_patterns(CARD))
        elif key_of(folder / name) != job.key:
            raise ModelError(f"{MODELS / name} is not made by the recipe in params.yaml; run `dvc repro checkpoints`")
        verify_sums(folder / name)
        write_text(folder / name / CARD, card_text(folder / name, params.checkpoints.recipes))
    return list(jobs)


def card_text(folder: Path, recipes: Mapping[str, Recipe]) -> str:
    """Return the text of the model card of the checkpoint in `folder`, whose name is that of its recipe."""
    recipe = recipes[folder.name]
    # No other package reads the weights of narrow heads, which have another file name.
    family = registry.family_class(recipe.family)
    package = family.package if (folder / STOCK).is_file() else None
    return make_card(
        folder.name,
        f"A small model of the family `{recipe.family}`, pretrained with tsfmscope.",
        {
            "Training data": _data(recipes, folder.name),
            "Model and training": _facts(folder, recipe),
            "Use": _use(folder, package),
            "Skill": _skill(folder),
            "Train it again": TEXTS["train_again"],
        },
        note=NOTE,
        library_name=package.name if package else "tsfmscope",
        license=license_of_workspace(),
        pipeline_tag="time-series-forecasting" if family.modality == "series" else None,
        tags=[recipe.family, "tsfmscope"],
    )


def license_of_workspace() -> str | None:
    """Return apache-2.0 if the file LICENSE of this folder has that text, else None."""
    path = Path("LICENSE")
    words = path.read_text(encoding="utf-8", errors="replace").split()[:5] if path.is_file() else []
    return "apache-2.0" if words == ["Apache", "License", "Version", "2.0,", "January"] else None


def _data(recipes: Mapping[str, Recipe], name: str) -> str:
    """Describe the training data: a table of the sources with their shares, and the real series among them."""
    recipe = recipes[name]
    descriptions, real = dict(TEXTS["sources"]), []
    if recipe.corpus is not None:
        corpus = json.loads(Path(recipe.corpus, CORPUS_FILE).read_text())
        kind = f"source {corpus.get('source', 'kernelsynth')}, {_percent(corpus['tsmixup'])} of the series TSMixup"
        descriptions["shards"] = f"a corpus that `tsfmscope corpus` wrote: {kind}"
        real = [item if item.startswith(REAL_PREFIX) else Path(item).name for item in corpus["real"]]
    elif set(recipe.mixture) & WITH_BUNDLED:
        real = [f"the first {_percent(1 - HELD_OUT)} of {', '.join(BUNDLED)} (included in statsmodels)"]
    shares = sorted(recipe.mixture.items(), key=lambda item: (-item[1], item[0]))
    text = make_table("source | share", ((descriptions[source], _percent(share)) for source, share in shares))
    if recipe.phases:
        until = recipe.phases[-1].until
        text += f"\nThe first {until:,} steps mixed these sources in other shares: `phases` in recipe.json.\n"
    if then := recipe.then:
        mixture = ", ".join(f"{source} {_percent(share)}" for source, share in then.mixture.items())
        text += f"\nThe last {recipe.all_steps - recipe.steps:,} steps mixed: {mixture}.\n"
    if recipe.real:
        real += [f"the files {', '.join(recipe.real.files)} (checksums in recipe.json)"]
    if real:
        text += f"\nReal series: {', '.join(real)}.\n"
    elif set(recipe.mixture) <= GENERATED | {SHARDS}:
        text += "\nNo real series.\n"
    if recipe.embedding_from:
        text += f"\nThe token embedding is that of `{recipe.embedding_from}`, whose training data were:\n\n"
        text += _data(recipes, recipe.embedding_from)
    return text


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _facts(folder: Path, recipe: Recipe) -> str:
    """Return the table of the model's shape and of its training."""
    log = json.loads((folder / LOG).read_text())
    path = folder / RUN_RECORD
    run = json.loads(path.read_text()) if path.is_file() else {}
    n_values, seconds = run.get("n_values"), run.get("seconds")
    missing = "not recorded"
    shape = ", ".join(f"{key} {json.dumps(value)}" for key, value in recipe.config.items())
    facts: dict[str, object] = {
        "parameters": f"{registry.facts(folder)['parameters']:,}",
        "shape": shape,
        "heads": json.dumps(recipe.heads.to_dict()) if recipe.heads else None,
        "steps": f"{recipe.all_steps:,}",
        "training points (observed values)": missing if n_values is None else f"{n_values:,}",
        "hours of training": missing if seconds is None else f"{seconds / 3600:.3g}",
        "processor": ", ".join(run.get("processors", ())) or missing,
        "torch": ", ".join(run.get("torch_versions", ())) or missing,
        "loss, first and last row of training.json": f"{log[0]['loss']:.4g}, {log[-1]['loss']:.4g}",
    }
    return make_table("fact | value", ((key, value) for key, value in facts.items() if value is not None))


def _use(folder: Path, package: Package | None) -> str:
    """Return the code that loads a checkpoint with this package, and with the family's own if there is one."""
    path = Path(os.path.relpath(folder)).as_posix()
    text = loading_code("import tsfmscope as ts", f'ts.load("{path}")')
    if package:
        module, _, name = package.loader.partition(":")
        name = name or json.loads((folder / "config.json").read_text())["architectures"][0]
        arguments = ", ".join(filter(None, (f'"{path}"', package.options)))
        own = loading_code(f"from {module} import {name}", f"{name}.from_pretrained({arguments})")
        text += f"\nWith {package.name}:\n\n{own}"
    return text


def _skill(folder: Path) -> str:
    """Return the section on skill, from the rows of SKILL that were measured with these weights."""
    weights = registry.resolve(str(folder)).fingerprint[:12]
    measured = read_rows(SKILL) if SKILL.is_file() else []
    rows = [row for row in measured if (row["model"], row["weights"]) == (folder.name, weights)]
    if not rows:
        return str(TEXTS["not_measured"]).format(name=folder.name)
    means, ratios = group_skill(rows), dataset_ratios(rows)
    text = str(TEXTS["measured"]).format(weights=weights, series=max(row["series"] for row in means)) + "\n"
    cells = (
        [
            row["group"],
            row["n_datasets"],
            interval(row, "wql"),
            interval(row, "mae"),
            row["worst"],
            f"{row['worst_wql']:.2f}",
        ]
        for row in means
    )
    text += make_table(f"data sets | number | {RATIO_TITLES} | worst data set | its WQL ratio", cells) + "\n"
    lines = (
        [
            *(row[name] for name in ("dataset", "group", "n_windows", "horizon", "season")),
            *(f"{row[name]:.3f}" for name in ("wql", "mae")),
        ]
        for row in sorted(ratios, key=lambda row: (row["group"], row["dataset"]))
    )
    return text + make_table(f"data set | group | windows | horizon | season | {RATIO_TITLES}", lines)
