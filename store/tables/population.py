"""Table of the weights that the trainings of a population went through."""

from __future__ import annotations

from store.tables.columns import F64, FLAG, I32, I64, TEXT, Table
from store.tables.columns import Column as C
from store.tables.shared import KEY, MODEL, SEED

TABLES = (
    Table(
        "population",
        "the weights after one step of one training of the population",
        (
            MODEL,
            C("run", TEXT, "training, by the name of its recipe; also the model with its last weights"),
            C("family", TEXT, "model family"),
            C("size", TEXT, "size of the model, by its name in population.families"),
            C("run_seed", I64, "seed of the training's initial weights and series"),
            C("step", I32, "training step after which the model has these weights", "steps"),
            C("is_final", FLAG, "whether these are the training's last weights"),
            C(
                "validation_loss",
                F64,
                "the family's training loss on series that no training draws, the same for all trainings of a family",
                "as the family's loss",
            ),
            C("n_windows", I32, "windows of these series", "windows"),
            SEED,
            KEY,
        ),
        stages=("checkpoints",),
        key=("model",),
    ),
    Table(
        "hypotheses",
        "one claim about the population that was committed to git before it was tested on the confirming data sets",
        (
            C("name", TEXT, "name of the hypothesis"),
            C("claim", TEXT, "claim in words"),
            C("study", TEXT, "study, by its name in params"),
            C("measure", TEXT, "isotropy measure"),
            C("grouping", TEXT, "across_runs, inside_families, across_seeds or within_runs"),
            C("error", TEXT, "error: nmse or wql"),
            C("statistic", TEXT, "its statistic in `inference`"),
            C("direction", TEXT, "claimed sign of the correlation of isotropy with error: negative or positive"),
            C("commit", TEXT, "git commit that last changed the file of hypotheses"),
        ),
        stages=("statistics",),
        key=("name",),
    ),
)
