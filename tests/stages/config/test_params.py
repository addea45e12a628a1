"""params.yaml is parsed once, and what is wrong is one line that names the key, the value and the mend."""

from __future__ import annotations

import copy
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from dvc.utils.serialize import YAMLFileCorruptedError, parse_yaml

from stages.commands.new_study import add_study
from stages.config.bounded_yaml import load_yaml
from stages.config.params import LARGEST_FILE, ParamsError, complete, load, parse
from stages.planning.run_stage import read_params
from stages.planning.training import recipes, training_job, training_jobs
from tasks.job import Job
from tsfmscope.compression import schedules
from tsfmscope.training.options import Recipe

ROOT = Path(__file__).parents[3]
DEFAULT = complete(yaml.safe_load((ROOT / "params" / "full.yaml").read_text()))


def changed(path: str, value: Any) -> dict[str, Any]:
    block = copy.deepcopy(DEFAULT)
    *parents, last = path.split("/")
    at = block
    for key in parents:
        at = at[key]
    if value is None:
        del at[last]
    else:
        at[last] = value
    return block


@pytest.mark.parametrize(
    "path", [ROOT / "params.yaml", *sorted((ROOT / "params").glob("*.yaml"))], ids=lambda p: p.stem
)
def test_every_profile_loads(path: Path) -> None:
    assert load(path).studies


def test_a_model_of_the_catalogue_needs_no_definition_and_a_recipe_of_the_file_replaces_the_catalogues() -> None:
    studies = {"mine": {"title": "Mine", "measures": ["weights"], "models": "all"}}
    params = parse(yaml.safe_dump({"models": {"chronos-bolt-mini": None}, "studies": studies}))
    assert params.models["chronos-bolt-mini"].family == "chronos-bolt"
    assert set(params.checkpoints.recipes) == {"chronos-bolt-mini"}
    recipe = params.checkpoints.recipes["chronos-bolt-mini"].model_dump() | {"seed": 7}
    block = {"models": {"chronos-bolt-mini": {}}, "studies": studies}
    block["checkpoints"] = {"recipes": {"chronos-bolt-mini": recipe}}
    assert parse(yaml.safe_dump(block)).checkpoints.recipes["chronos-bolt-mini"].seed == 7
    with pytest.raises(ParamsError, match=r"models.chronos-bolt-minio is not in .*did you mean chronos-bolt-mini"):
        parse(yaml.safe_dump({"models": {"chronos-bolt-minio": {}}, "studies": studies}))


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({}, {"options": {"rope_scaling": "linear"}, "base_model": "lag-llama-mini"}),
        ({"options": {"precision": "bfloat16"}}, {"ref": "checkpoint:lag-llama-mini", "base_model": "lag-llama-mini"}),
        ({"family": "lag-llama", "ref": "mine"}, {"ref": "mine", "options": {}, "base_model": None}),
    ],
    ids=["no entry", "options", "family and ref"],
)
def test_a_model_with_a_reference_of_its_own_takes_nothing_from_the_catalogue(entry: dict, expected: dict) -> None:
    found = parse(in_catalogue(entry)).models["lag-llama-mini-rope"].model_dump()
    assert found | expected == found


@pytest.mark.parametrize(("entry", "missing"), [({"ref": "mine"}, "family"), ({"family": "lag-llama"}, "ref")])
def test_half_a_definition_of_a_model_of_the_catalogue_is_refused(entry: dict, missing: str) -> None:
    with pytest.raises(ParamsError, match=f"models.lag-llama-mini-rope.{missing}: missing"):
        parse(in_catalogue(entry))


def in_catalogue(entry: dict) -> str:
    """A params file with this entry of a model that the catalogue derives from another with other options."""
    models = {"lag-llama-mini": {}, "lag-llama-mini-rope": entry}
    return yaml.safe_dump(
        {"models": models, "studies": {"mine": {"title": "Mine", "measures": ["weights"], "models": "all"}}}
    )


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("geometri", {}, ["geometri", "unknown key", "did you mean 'geometry'"]),
        ("models/chronos-t5-mini/famly", "x", ["models.chronos-t5-mini.famly", "did you mean 'family'"]),
        ("seed", 2**70, ["seed: got 1180591620717411303424", "less than or equal to 4294967295"]),
        ("datasets/sets/exchange_rate", {"file": "../out.parquet"}, ["sets.exchange_rate.file: got '../out.parquet'"]),
        ("datasets/sets/exchange_rate", {"file": "a/../../out"}, ["expected a path under the data root"]),
        ("datasets/sets/exchange_rate", {"file": "/etc/passwd"}, ["sets.exchange_rate.file: got '/etc/passwd'"]),
        ("models/mine", {"ref": "folder"}, ["models.mine.family: missing"]),
        ("checkpoints/skill/datasets", ["co3"], ["checkpoints.skill.datasets: unknown name 'co3'", "mean 'co2'"]),
        ("checkpoints/skill/datasets", ["english"], ["skill.datasets: 'english' is text, expected time series"]),
        ("conditions/context-100/context", "long", ["conditions.context-100.context", "'long'", "integer"]),
        ("conditions/context-100/context", 3, ["conditions.context-100.context", "got 3", "16"]),
        ("studies/isotropy/models", ["chronos-t5-nan"], ["studies.isotropy.models", "did you mean 'chronos-t5-mini'"]),
        ("studies/isotropy/datasets", [], ["studies.isotropy", "datasets: got none"]),
        ("datasets/sets/linear-3", {}, ["linear-3", "not in catalog.yaml", "linear-"]),
        ("datasets/sets/mine", {"source": "folder", "horizon": 4}, ["datasets.sets.mine", "needs 'file'"]),
        ("checkpoints/recipes/chronos-t5-mini/mixture", {"kernelsynth": 0.5}, ["mixture sums to 0.5"]),
        ("checkpoints/recipes/chronos-t5-mini/snapshots", [0, 25000], ["snapshots [0, 25000]", "steps up to 24000"]),
        ("checkpoints/recipes/chronos-t5-mini/snapshots", [5, 5], ["snapshots [5, 5] must be ascending"]),
        ("checkpoints/recipes/chronos-t5-mini/mixture", {"text": 0.5, "bundled": 0.5}, ["['text'] cannot be mixed"]),
        (
            "checkpoints/recipes/chronos-t5-mini/mixture",
            {"priors": 0.5, "bundled": 0.5},
            ["priors, periodic, weekdays and real mix only with each other", "drop ['bundled']"],
        ),
        (
            "checkpoints/recipes/t5-text-nano/phases",
            [{"until": 5, "batch_steps": 64, "mixture": {"periodic": 1.0}}],
            ["expected priors, periodic, weekdays or real", "drop phases"],
        ),
        (
            "checkpoints/recipes/mine",
            {
                "family": "chronos-bolt",
                "config": {},
                "steps": 30,
                "batch_steps": 64,
                "learning_rate": 0.1,
                "contexts": [64],
                "horizon": 8,
                "min_past": 8,
                "mixture": {"priors": 1.0},
                "log_every": 5,
                "save_every": 5,
                "phases": [{"until": n, "batch_steps": 64, "mixture": {"periodic": 1.0}} for n in (9, 5)],
            },
            ["until [9, 5]", "ascending steps below steps 30"],
        ),
        (
            "checkpoints/recipes/chronos-t5-mini/heads",
            {"flat": 4, "guideline": {}},
            ["chronos-t5-mini.heads", "got guideline, flat, expected one of flow, guideline, flat"],
        ),
        ("checkpoints/recipes/chronos-t5-mini/heads", {"flow": {"first": 3}}, ["heads.flow.growth: missing"]),
        (
            "checkpoints/recipes/chronos-t5-mini/embedding_from",
            "chronos-bolt-mini",
            ["recipes.chronos-t5-mini.embedding_from", "is of chronos-bolt", "of the same family"],
        ),
        ("checkpoints/recipes/chronos-t5-mini/embedding_from", "nano", ["embedding_from: got 'nano'"]),
        ("checkpoints/recipes/chronos-t5-mini/embedding_from", "chronos-t5-mini", ["got 'chronos-t5-mini'"]),
        ("checkpoints/recipes/chronos-t5-mini/family", "chronos-bolt", ["models.chronos-t5-mini.family", "-bolt"]),
        ("models/chronos-t5-mini/ref", "checkpoint:nano", ["models.chronos-t5-mini.ref", "'nano'"]),
        ("models/lag-llama-mini-rope/base_model", "lag-llama", ["lag-llama-mini-rope.base_model", "'lag-llama-mini'"]),
        (
            "models/lag-llama-mini-rope/base_model",
            "lag-llama-mini-rope",
            ["lag-llama-mini-rope is made from lag-llama-mini-rope; name its original"],
        ),
        ("models/lag-llama-mini/base_model", "lag-llama-mini-rope", ["is made from lag-llama-mini-rope is made from"]),
        ("models/moirai-mini/options", {"precision": "half"}, ["moirai-mini", "options.precision: got 'half'"]),
        ("forecasts/baselines", [], ["studies.compression-frontier.measures", "name some of seasonal-naive"]),
        ("datasets/sets/mine", {"source": "folder", "horizn": 4}, ["mine.horizn", "did you mean 'horizon'?", "1 more"]),
        ("checkpoints/recipes/chronos-t5-mini/horizon", 320, ["horizon 320: expected at most 64, config.prediction"]),
        ("studies/isotropy/plot", "pie", ["studies.isotropy.plot", "'pie'", "islands"]),
        (
            "studies/grid/models",
            ["chronos-t5-nan@joint-0.5"],
            ["studies.grid.models", "'chronos-t5-nan@joint-0.5'", "base model", "did you mean 'chronos-t5-mini'"],
        ),
        (
            "studies/grid/models",
            ["chronos-t5-mini@joint-0.55"],
            ["studies.grid.models", "'chronos-t5-mini@joint-0.55'", "compression.methods", "did you mean 'joint-0.5'"],
        ),
        ("studies/isotropy/x_axis", {"moirai@joint-0.5": 1}, ["studies.isotropy.x_axis", "did you mean 'moirai-mini'"]),
        ("studies/grid/models", ["@joint-0.5"], ["studies.grid.models", "base model: unknown name ''"]),
        ("studies/grid/models", ["chronos-t5-mini@"], ["studies.grid.models", "compression.methods: unknown name ''"]),
        ("studies/grid/layers", "middle", ["studies.grid.layers", "'middle'", "'first' or 'last'"]),
        (
            "models/moirai-mini/options",
            {"precision": "half"},
            ["got 'half', expected one of float32, bfloat16"],
        ),
        ("models/moirai-mini/ref", "compressed:x@y", ["models.moirai-mini.ref", "BASE@METHOD in a study"]),
        (
            "compression/methods/joint-0.5/ranks",
            {"share": 0.5, "flat": 4},
            [
                "compression.methods.joint-0.5.ranks",
                "got ['flat', 'share']",
                "one of epsilon, budget, time, share, flat, flow",
            ],
        ),
        (
            "compression/methods/timed",
            {"method": "svd", "ranks": {"time": 0.5}},
            [
                "compression.methods.timed",
                "ranks: got time, expected epsilon or budget or share or flat or flow with method svd",
                "methods that take time: joint, activation-aware",
            ],
        ),
        ("compression/methods/joint-0.5/ranks", {}, ["compression.methods.joint-0.5.ranks", "got none"]),
        (
            "compression/methods/two",
            {"method": "activation-aware-2step", "ranks": {"flat": 4}},
            ["compression.methods.two", "ranks: got flat, expected budget"],
        ),
        ("compression/calibration/datasets", [], ["compression.calibration.datasets", "'aware-budget-0.15'"]),
        ("compression/calibration/datasets", ["trend"], ["compression.calibration.datasets", "'trend'"]),
        ("report/study", "isotrop", ["report.study", "did you mean 'isotropy'"]),
        ("resources/gpus_per_actor", 1.5, ["resources.gpus_per_actor", "got 1.5", "a whole number"]),
        ("resources/tasks", {"mesure": {"gpus": 0}}, ["resources.tasks", "'mesure'", "did you mean 'measure'"]),
        ("seed", None, []),  # has a default
    ],
)
def test_a_wrong_file_is_one_line_that_says_what_to_mend(
    tmp_path: Path, path: str, value: Any, expected: list[str]
) -> None:
    file = tmp_path / "params.yaml"
    file.write_text(yaml.safe_dump(changed(path, value)))
    if not expected:
        load(file)
        return
    with pytest.raises(ParamsError) as caught:
        load(file)
    message = str(caught.value)
    assert "\n" not in message
    for text in expected:
        assert text in message


# ten lists, each of ten times the one before
LAUGHS = "a0: &a0 [l]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 11))

# the same as merge keys, which PyYAML writes out before anybody can count what came of them
MERGES = "a0: &a0 {k: l}\n" + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}\n" for n in range(1, 8))


BLOCKS = ("models", "datasets/sets", "conditions", "studies", "checkpoints/recipes", "compression/methods")


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("name", ["../x", "a/b", "a\n", ".a", "", "x" * 101])
def test_every_name_that_becomes_part_of_a_path_is_held_to_one_rule(tmp_path: Path, block: str, name: str) -> None:
    whole = copy.deepcopy(DEFAULT)
    at = whole
    for key in block.split("/"):
        at = at.setdefault(key, {})
    at[name] = next(iter(at.values()), {"packages": ["six"]})
    file = tmp_path / "params.yaml"
    file.write_text(yaml.safe_dump(whole))
    with pytest.raises(ParamsError, match=f"{block.replace('/', '.')}: invalid name .*: use letters, digits and"):
        load(file)


def test_a_file_of_four_hundred_bytes_is_refused_before_its_merges_are_written_out() -> None:
    assert len(MERGES) < 500
    began = time.process_time()
    with pytest.raises(ValueError, match="stand for more than 1000000 values"):
        load_yaml(MERGES)
    assert time.process_time() - began < 0.5


def test_merge_keys_and_aliases_that_repeat_little_are_read_as_yaml_has_them() -> None:
    text = "base: &base {a: 1, b: [x]}\nfirst: {<<: *base, a: 2}\nsecond: {<<: [*base, {c: 3}]}\nlist: [*base, *base]"
    assert load_yaml(text) == yaml.safe_load(text)


def test_a_file_takes_time_in_proportion_to_its_size() -> None:
    def seconds(entries: int) -> float:
        text = "".join(f"k{n}: [{n}, &a{n} x, *a{n}]\n" for n in range(entries))
        began = time.process_time()
        assert len(load_yaml(text)) == entries
        return time.process_time() - began

    # The shortest of three tries: other processes disturb one.
    assert min(seconds(6_000) for _ in range(3)) < 30 * min(seconds(600) for _ in range(3))


@pytest.mark.slow
def test_twenty_thousand_models_that_are_made_from_each_other_are_read_in_linear_time(tmp_path: Path) -> None:
    def seconds(models: int) -> float:
        lines = (f"  m{n}: {{family: patchtst, ref: x, base_model: m{n + 1}}}\n" for n in range(models))
        own = f"\nmodels:\n{''.join(lines)}  m{models}: {{family: patchtst, ref: x}}\n"
        text = (ROOT / "params" / "smoke.yaml").read_text().replace("\nmodels:\n", own)
        began = time.process_time()
        assert len(parse(text).models) > models
        return time.process_time() - began

    assert min(seconds(20_000) for _ in range(2)) < 30 * min(seconds(2_000) for _ in range(2))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "expected a mapping"),
        ("- a\n", "expected a mapping"),
        ("a: [1", "not YAML"),
        ("a: !!python/object:x {}", "not YAML"),
        ("a: !!python/object/apply:os.system [exit]", "not YAML"),
        ("a: " + "[" * 5000 + "]" * 5000, "line 1: nested deeper than 100 levels; flatten it"),
        ("seed: " + "9" * 5000, "line 1: expected a number or date of at most 100 characters, got 5000"),
        ("seed: 0x" + "f" * 20_000, "line 1: expected a number or date of at most 100 characters, got 20002"),
        ("seed: " + "1:" * 300_000 + "1", "line 1: expected a number or date of at most 100 characters, got 600001"),
        ("seed: !!bool x", "line 1: expected a plain value, got the tag .*:bool"),
        ("seed: !!int ''", "line 1: expected a plain value, got the tag .*:int"),
        ("seed: !!timestamp x", "line 1: expected a plain value, got the tag"),
        (LAUGHS, r"aliases \(\*name\) stand for more than 1000000 values; repeat less"),
        ("a: &a [*a]", "stand for more than 1000000 values"),
        (MERGES, r"aliases \(\*name\) stand for more than 1000000 values; repeat less"),
        ("a: " + "[" * 200_000, "nested deeper than 100 levels"),
        ("- " * 100_000, "nested deeper than 100 levels"),
        ("<<: {}\n" * 50_000, "line 2: the key '<<' is already in this mapping, on line 1; write <<: \\[\\*a, \\*b\\]"),
    ],
)
def test_a_file_that_is_no_mapping_says_so(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "params.yaml"
    file.write_text(text)
    with pytest.raises(ParamsError, match=expected):
        load(file)


@pytest.mark.timeout(20)
def test_a_params_file_that_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", LARGEST_FILE + 1)
    found = {"pipe": "a named pipe", "/dev/zero": "a device", ".": "a folder", "large": f"got {LARGEST_FILE + 1}"}
    for name, what in found.items():
        with pytest.raises(ParamsError, match=rf"{what}.*; run from the repository's root, or name a params file"):
            load(tmp_path / name)


def test_a_missing_file_says_where_to_run_from(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match="run from the repository's root"):
        load(tmp_path / "params.yaml")


def test_facts_of_known_data_sets_come_from_the_catalog_and_can_be_overridden(tmp_path: Path) -> None:
    file = tmp_path / "params.yaml"
    file.write_text(yaml.safe_dump(changed("datasets/sets/exchange_rate", {"horizon": 5})))
    dataset = load(file).datasets.sets["exchange_rate"]
    assert (dataset.source, dataset.file, dataset.horizon) == ("folder", "exchange_rate.parquet", 5)


def test_the_environment_overrides_the_data_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    params = load(ROOT / "params" / "full.yaml")
    monkeypatch.setenv("TSFMSCOPE_DATA", str(tmp_path))
    assert params.data_root == tmp_path
    monkeypatch.delenv("TSFMSCOPE_DATA")
    assert params.data_root is None


def test_all_data_sets_are_the_time_series_but_for_probing_signals() -> None:
    params = load(ROOT / "params" / "full.yaml")
    kinds = {name: one.source for name, one in params.datasets.sets.items()}
    series = [name for name, source in kinds.items() if source in ("kernelsynth", "bundled", "folder", "hub")]
    assert params.expand("isotropy", "datasets") == series
    assert {"signals", "constant"} <= set(kinds) - set(series)
    assert params.expand("isotropy-table1", "datasets") == ["exchange_rate"]


def test_all_models_are_those_that_are_made_from_no_other() -> None:
    params = load(ROOT / "params" / "full.yaml")
    variants = {name for name, model in params.models.items() if model.base_model is not None}
    assert variants - set(params.compressed) == {"lag-llama-mini-rope"}
    assert set(params.expand("ranks-flow", "models")) == set(params.models) - variants
    assert "lag-llama-mini-rope" in params.expand("isotropy-fig8", "models")
    assert set(params.compressed) == {name for name in variants if "@" in name}
    assert set(params.compressed) <= {*params.expand("grid", "models"), *params.expand("compression-table2", "models")}


def test_a_committed_checkpoint_has_the_key_of_its_recipe_and_snapshots_count_where_there_are_some() -> None:
    params = load(ROOT / "params" / "full.yaml")
    for name, recipe in recipes(params).items():
        key = json.loads((ROOT / "tsfmscope" / "checkpoints" / name / "recipe.json").read_text())["key"]
        assert training_job(name, recipe).key == key, name
        assert training_job(name, recipe.model_copy(update={"snapshots": [0]})).key != key


def test_heads_precision_and_the_embedding_that_is_taken_over_are_part_of_a_key_where_they_are_used() -> None:
    recipe = load(ROOT / "params" / "full.yaml").checkpoints.recipes["chronos-t5-mini"]

    def key(source: Job | None = None, **changes: Any) -> str:
        return training_job("m", Recipe.model_validate(recipe.model_dump() | changes), source).key

    sources = [training_job("source", recipe.model_copy(update={"seed": seed})) for seed in (1, 2)]
    found = [
        key(),
        key(precision="bfloat16"),
        key(heads={"flat": 4}),
        key(heads={"flat": 4, "factors": "shared"}),
        key(heads={"guideline": {"smallest": 4}}),
        key(heads={"guideline": {"smallest": 4}, "factors": "shared"}),
        key(heads={"flow": {"first": 3, "growth": 0.27}}),
        key(heads={"flow": {"first": 3, "growth": 0.27, "origin": 2}}),
        *(key(source, embedding_from="source") for source in sources),  # trained otherwise, it is another embedding
    ]
    assert len(set(found)) == len(found)
    assert key(precision="float32", heads=None, embedding_from=None) == key()


def test_the_profile_of_compression_pairs_models_of_equal_size_and_trains_what_is_taken_over() -> None:
    params = load(ROOT / "params" / "compression.yaml")
    found = recipes(params)
    assert {recipe.embedding_from for recipe in found.values()} == {None, "chronos-dense-0"}
    jobs = training_jobs(found)
    assert jobs["chronos-reuse25-0"].spec["embedding"]["key"] == jobs["chronos-dense-0"].key
    for family, ratio, full in (("chronos", "25", 32), ("moirai", "25", 64), ("moirai", "50", 64)):
        for seed in range(5):
            flow, flat = (found[f"{family}-{kind}{ratio}-{seed}"] for kind in ("flow", "flat"))
            assert flow.heads and flow.heads.flow and flat.heads and flow.seed == flat.seed == seed
            ranks = schedules.flow(flow.heads.flow.first, flow.heads.flow.growth, 4, origin=flow.heads.flow.origin)
            assert sum(ranks) == 4 * flat.heads.flat == full * int(ratio) // 25


@pytest.mark.parametrize(
    ("ranks", "number"),
    [
        ({"share": 0.25}, 0.25),
        ({"budget": 0.1}, 0.1),
        ({"flat": 4}, 4.0),
        ({"flow": {"first": 3, "growth": 0.27}}, 3.0),
        ({"time": 0.5}, 0.5),
        ({"epsilon": 0.1}, 0.1),
    ],
)
def test_a_compressed_model_is_its_base_under_another_reference_and_has_the_number_of_its_ranks(
    tmp_path: Path, ranks: dict[str, Any], number: float
) -> None:
    block = changed("compression/methods/mine", {"method": "joint", "ranks": ranks})
    block["studies"]["isotropy-fig8"]["models"] = ["lag-llama-mini", "lag-llama-mini-rope@mine"]
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(block))
    params = load(tmp_path / "params.yaml")
    made, base = params.models["lag-llama-mini-rope@mine"], params.models["lag-llama-mini-rope"]
    assert (made.family, made.options) == (base.family, base.options)
    assert made.base_model == "lag-llama-mini-rope"
    assert made.size == {"size_parameter": number, "size_rule": next(iter(ranks))}
    assert base.size == {"size_parameter": None, "size_rule": None}
    assert made.ref == "compressed:lag-llama-mini-rope@mine"
    assert "lag-llama-mini-rope@mine" not in params.expand("ranks-flow", "models")
    assert params.compression.methods["mine"].method == "joint"


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("models/chronos-t5-mini/family", "chronos_t5", "models.chronos-t5-mini.family: .*'chronos_t5'; did you mean"),
        ("checkpoints/recipes/chronos-t5-mini/family", "qqq", "chronos-t5-mini.family: unknown family 'qqq'; known: "),
    ],
)
def test_a_family_that_no_package_adds_is_named_before_any_work(
    path: str, value: str, expected: str, tmp_path: Path
) -> None:
    block = changed(path, value)
    both = {"models": block["models"]["chronos-t5-mini"], "recipes": block["checkpoints"]["recipes"]["chronos-t5-mini"]}
    both["models"]["family"] = both["recipes"]["family"] = value  # they must say the same
    if path.startswith("checkpoints"):
        block["models"]["chronos-t5-mini"]["family"] = "chronos-t5"
        block["models"]["chronos-t5-mini"]["ref"] = "folder"
    file = tmp_path / "params.yaml"
    file.write_text(yaml.safe_dump(block))
    with pytest.raises(ParamsError, match=f"{file}: .*{expected}.*install the package that adds"):
        read_params(file)
    assert read_params(ROOT / "params" / "full.yaml").models


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\na: 2\n",
        "a: {b: 1, b: 2}\n",
        "a: 1\n'a': 2\n",
        "x: &x {a: 1}\ny: {<<: *x, a: 2}\n",
        "x: &x {a: 1}\ny: {<<: *x, <<: *x}\n",
        "x: &x {a: 1}\ny: {<<: [*x, *x]}\n",
        "- {a: 1, a: 1}\n",
        "a: {b: 1}\nc: {b: 1}\n",
        "- a\n- a\n",
        "a: b\nb: a\n",
    ],
)
def test_a_key_that_occurs_twice_is_refused_where_dvc_refuses_it(text: str) -> None:
    try:
        parse_yaml(text, "params.yaml")
    except YAMLFileCorruptedError:
        with pytest.raises(ValueError, match=r"line \d+: the key '.*' is already in this mapping, on line \d+"):
            load_yaml(text)
    else:
        assert load_yaml(text) == yaml.safe_load(text)


def test_a_command_refuses_a_params_file_with_a_key_twice_and_leaves_it_as_it_is(tmp_path: Path) -> None:
    text = (ROOT / "params" / "smoke.yaml").read_text() + "\nresources: {actors: 1}\nresources: {actors: 2}\n"
    (tmp_path / "params.yaml").write_text(text)
    with pytest.raises(ParamsError, match="the key 'resources' is already in this mapping"):
        add_study(tmp_path / "params.yaml", "mine", {"models": ["patchtst-mini"], "datasets": ["nile"]})
    assert (tmp_path / "params.yaml").read_text() == text


@pytest.mark.parametrize("block", ["models", "datasets: {sets", "conditions", "studies", "resources: {labels"])
@pytest.mark.parametrize("name", ["yes", "Off", "null", "~", ".nan", "2024-01-31", "1", "1.5", "0x1f"])
def test_a_name_that_yaml_does_not_read_as_text_is_one_line(block: str, name: str) -> None:
    braces = "}" * block.count("{")
    with pytest.raises(ParamsError) as refused:
        parse(f"{block}: {{{name}: {{}}}}{braces}")
    assert f"line 1: expected text as a key, got '{name}', which YAML reads as" in str(refused.value)
    assert "\n" not in str(refused.value)
    with pytest.raises(ParamsError) as error:
        parse(f"{block}: {{'{name}': {{}}}}{braces}")
    assert "expected text as a key" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("seed: yes", "seed: got True, expected no boolean"),
        ("seed: 1:30", "line 1: expected a decimal number, got '1:30', which YAML reads in base 60"),
        ("seed: 010", "line 1: expected a decimal number, got '010', which YAML reads in base 8"),
        ("pretraining: {seeds: [1, on]}", r"pretraining.seeds: got \[1, True\], expected no boolean"),
        ("datasets: {max_series: true}", "datasets.max_series: got True, expected no boolean"),
        ("conditions: {short: {context: 64, noise: off}}", "conditions.short.noise: got False, expected no boolean"),
        ("resources: {labels: {zone: no}}", "resources.labels: got {'zone': False}, expected no boolean"),
    ],
)
def test_a_value_that_yaml_reads_as_another_number_is_refused(text: str, expected: str) -> None:
    with pytest.raises(ParamsError, match=expected):
        parse(f"{text}\nmodels: {{}}\nstudies: {{}}")
