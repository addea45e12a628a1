"""The block population: its recipes, models and snapshots, and errors of one line."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from stages.config.params import Params, ParamsError, parse

BOLT = {"d_model": 16, "d_ff": 32, "d_kv": 8, "num_heads": 2, "num_layers": 1, "num_decoder_layers": 1}
BOLT |= {"context_length": 64, "prediction_length": 16, "input_patch_size": 16, "input_patch_stride": 16}
RECIPE = {"steps": 60, "batch_steps": 640, "learning_rate": 0.002, "contexts": [64], "horizon": 16, "min_past": 16}
RECIPE |= {"mixture": {"periodic": 0.5, "priors": 0.5}, "log_every": 20, "save_every": 20}
POPULATION: dict[str, Any] = {"snapshots": 4, "first_snapshot": 10, "recipe": RECIPE}
POPULATION["families"] = {
    "chronos-bolt": {"sizes": {"small": BOLT, "large": BOLT | {"d_model": 32}}, "recipe": {"learning_rate": 0.001}}
}


def block(**population: Any) -> dict[str, Any]:
    """A params file with a population and a study of its snapshots."""
    study = {"title": "s", "models": "snapshots", "datasets": "all", "conditions": ["c"], "measures": ["isotropy"]}
    sets = {"datasets": {"sets": {"nile": {}}}, "conditions": {"c": {"context": 64}}}
    return {"models": {}, "population": POPULATION | population, "studies": {"s": study}, **sets}


def read(whole: dict[str, Any]) -> Params:
    return parse(yaml.safe_dump(whole, sort_keys=False))


def test_every_family_size_and_seed_is_a_recipe_and_every_snapshot_a_model() -> None:
    params = read(block())
    runs = [f"chronos-bolt-{size}-{seed}" for size in ("small", "large") for seed in (0, 1)]
    assert sorted(params.checkpoints.recipes) == sorted(runs)
    recipe = params.checkpoints.recipes["chronos-bolt-large-1"]
    assert (recipe.seed, recipe.learning_rate, recipe.config["d_model"]) == (1, 0.001, 32)
    # From 10 to 60 in four log-spaced steps; the last is the end of the training.
    assert recipe.snapshots == [10, 18, 33]
    assert params.models["chronos-bolt-large-1"].ref == "checkpoint:chronos-bolt-large-1"
    assert params.models["chronos-bolt-large-1-step-33"].ref == "checkpoint:chronos-bolt-large-1/step-33"
    assert params.expand("s", "models") == [
        f"{run}{end}" for run in runs for end in ("-step-10", "-step-18", "-step-33", "")
    ]


def test_all_models_are_the_ends_of_the_trainings() -> None:
    whole = block()
    whole["studies"]["s"]["models"] = "all"
    params = read(whole)
    assert params.expand("s", "models") == list(params.checkpoints.recipes)


def test_a_study_may_name_single_snapshots_of_any_recipe() -> None:
    whole = block()
    whole["models"] = {"early": {"family": "chronos-bolt", "ref": "checkpoint:chronos-bolt-small-0/step-10"}}
    assert read(whole).models["early"].is_snapshot


@pytest.mark.parametrize(
    ("population", "texts"),
    [
        ({"recipe": RECIPE | {"seed": 1}}, ["population: recipe: got seed"]),
        ({"first_snapshot": 50}, ["first_snapshot: got 50", "60 steps"]),
        ({"seeds": [1, 1]}, ["seeds: got [1, 1]"]),
        ({"seeds": []}, ["population.seeds"]),
        ({"families": {}}, ["population.families"]),
        ({"families": {"chronos-bolt": {"sizes": {"small": BOLT}, "recipe": {"step": 3}}}}, ["small: recipe.step"]),
        ({"recipe": RECIPE | {"horizon": 64}}, ["chronos-bolt.small: recipe: horizon 64"]),
        ({"snapshots": 3}, ["population.snapshots", "greater than or equal to 4"]),
        ({"families": {"chronos-bolt": {"sizes": {"a b": BOLT}}}}, ["population.families.chronos-bolt.sizes"]),
        ({"recipe": RECIPE | {"mixture": {"bundled": 1.0}}}, ["small: recipe.mixture: got bundled"]),
        ({"recipe": {"steps": 60}}, ["small: recipe.batch_steps", "required"]),
    ],
)
def test_what_is_wrong_is_one_line_with_the_key(population: dict[str, Any], texts: list[str]) -> None:
    with pytest.raises(ParamsError) as error:
        read(block(**population))
    message = str(error.value)
    assert "\n" not in message
    assert all(text in message for text in texts), message


@pytest.mark.parametrize(
    ("change", "texts"),
    [
        ({"population": None}, ["studies.s.models: snapshots", "population"]),
        ({"models": {"chronos-bolt-small-0": {"family": "patchtst", "ref": "here"}}}, ["models.chronos-bolt-small-0"]),
        (
            {"models": {"m": {"family": "chronos-bolt", "ref": "checkpoint:chronos-bolt-small-0/step-11"}}},
            ["models.m.ref: snapshots of chronos-bolt-small-0", "'step-11'"],
        ),
    ],
)
def test_names_that_clash_or_do_not_exist_are_errors(change: dict[str, Any], texts: list[str]) -> None:
    with pytest.raises(ParamsError) as error:
        read(block() | change)
    assert all(text in str(error.value) for text in texts), str(error.value)


def test_a_size_stands_for_its_trainings_with_all_seeds_in_models_and_on_the_axis() -> None:
    whole = block()
    whole["studies"]["s"] |= {"models": ["chronos-bolt-small", "chronos-bolt-large-1"], "measures": ["weights"]}
    whole["studies"]["s"]["x_axis"] = {"chronos-bolt-small": 16, "chronos-bolt-large-1": 32}
    params = read(whole)
    names = ["chronos-bolt-small-0", "chronos-bolt-small-1", "chronos-bolt-large-1"]
    assert params.expand("s", "models") == names
    assert params.studies["s"].x_axis == dict(zip(names, (16, 16, 32), strict=True))
    whole["studies"]["s"]["models"] = ["chronos-bolt-medium"]
    with pytest.raises(ParamsError, match=r"studies\.s\.models: unknown name 'chronos-bolt-medium'"):
        read(whole)
