"""Jobs that train the checkpoints of recipes, for the stages checkpoints and pretraining."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from stages import DATA
from stages.config.params import Params
from store.files import fingerprint
from tasks.job import Job, Task
from tasks.pretraining import EmbeddingSource, PretrainSpec
from tsfmscope.errors import ModelError
from tsfmscope.models import registry
from tsfmscope.models.common.checkpoint_folder import SNAPSHOTS
from tsfmscope.models.references import split_checkpoint
from tsfmscope.series.synthetic.shards import CORPUS_FILE
from tsfmscope.training.corpora import check_complete
from tsfmscope.training.options import Recipe

TRAINING = Task("pretrain", 1, "tasks.pretraining:pretrain", table="training")
# Folder of the checkpoints, by name of their recipe.
MODELS = Path(DATA, "checkpoints", "models")


def recipes(params: Params) -> dict[str, Recipe]:
    """Return the recipes that models name, and the recipes whose embedding one of these takes over."""
    references = (split_checkpoint(model.ref)[0] for model in params.models.values())
    all_recipes = params.checkpoints.recipes
    named = {name: all_recipes[name] for name in references if name}
    sources = (recipe.embedding_from for recipe in named.values())
    return named | {name: all_recipes[name] for name in sources if name is not None}


def checkpoint_path(ref: str) -> str | None:
    """Return the path under MODELS of a reference checkpoint:RECIPE[/step-N]; None for another kind of reference."""
    recipe, snapshot = split_checkpoint(ref)
    return f"{recipe}/{SNAPSHOTS}/{snapshot}" if snapshot else recipe or None


def training_job(name: str, recipe: Recipe, source: Job | None = None) -> Job:
    """Return the training job, whose key ties a checkpoint, committed or not, to its recipe.

    source: the job of recipe.embedding_from, needed if the recipe names one. Raises ModelError if the
    recipe's corpus has no file of its specification, DataError if shards of the corpus are missing or
    incomplete.
    """
    embedding = None
    if recipe.embedding_from is not None:
        assert source is not None
        embedding = EmbeddingSource(folder=(MODELS / recipe.embedding_from).as_posix(), key=source.key)
    spec = PretrainSpec(
        model=name, recipe=recipe, code=registry.code_of(recipe.family) or None, embedding=embedding
    ).to_dict()
    if recipe.corpus is None:
        return Job(TRAINING, spec)
    # The file determines every series of the corpus.
    corpus_file = Path(recipe.corpus, CORPUS_FILE)
    if not corpus_file.exists():
        raise ModelError(f"recipe {name}: corpus {recipe.corpus} has no {CORPUS_FILE}; make it with `tsfmscope corpus`")
    check_complete(corpus_file.parent)
    return Job(TRAINING, spec, {corpus_file.as_posix(): fingerprint(corpus_file)})


def training_jobs(recipes: Mapping[str, Recipe]) -> dict[str, Job]:
    """Return the job of every recipe. `recipes` must contain those whose embeddings are taken over."""
    plain = {name: training_job(name, recipe) for name, recipe in recipes.items() if recipe.embedding_from is None}
    return {
        name: plain[name] if recipe.embedding_from is None else training_job(name, recipe, plain[recipe.embedding_from])
        for name, recipe in recipes.items()
    }
