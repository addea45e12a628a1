"""Specs of jobs against their plain dicts, which keys are made of."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from tasks.embeddings import EmbedSpec
from tasks.geometry import GeometrySpec, MeasureSpec
from tasks.job import IDENTITY, LAYER, Job, Task
from tasks.parts import CellIdentity, Identity, LayerPlace
from tests import task_versions
from tsfmscope.strict import IN_EVERY_KEY

PLAIN = {
    "model": "m", "base_model": None, "size_parameter": None, "size_rule": None, "dataset": "d", "condition": "c",
    "context": 64, "noise": 0.0, "family": "f", "ref": "r",
    "rows": 2048, "batch": None, "store_dtype": "float32", "seed": 0, "format": "arrow",
}  # fmt: skip


def test_parts_name_the_columns_that_rows_begin_with() -> None:
    assert tuple(CellIdentity.model_fields) == tuple(Identity.model_fields) == IDENTITY
    assert tuple(LayerPlace.model_fields) == LAYER


def test_a_plain_dict_becomes_typed_values_and_the_same_dict_again() -> None:
    spec = EmbedSpec.from_job(Job(Task("t", 1, "m:f"), PLAIN))
    assert (spec.context, spec.kinds, spec.options) == (64, ("observation", "future"), {})
    assert spec.to_dict() == PLAIN
    assert spec.part(CellIdentity) == {name: PLAIN[name] for name in IDENTITY}
    assert CellIdentity.part_of(PLAIN).to_dict() == spec.part(CellIdentity)


def test_a_default_has_no_entry_so_that_a_new_field_changes_no_key() -> None:
    assert EmbedSpec(**PLAIN, kinds=["observation", "future"]).to_dict() == PLAIN
    assert EmbedSpec(**PLAIN, kinds=["start"]).to_dict() == PLAIN | {"kinds": ["start"]}


def test_fields_inside_are_plain_too() -> None:
    place = {"stack": "encoder", "layer": 1, "normed": False, "weights_dtype": "float32", "tokens": 9, "seed": 0}
    identity = {name: PLAIN[name] for name in IDENTITY}
    plain = GeometrySpec(**identity, **place, measure=MeasureSpec(presets=("cai",), k_max=3)).to_dict()
    assert plain["measure"] == {
        "k_max": 3, "restarts": 10, "min_silhouette": 0.1, "silhouette_rows": 20_000,
        "min_cluster": 30, "permutations": 39, "repeats": 5, "presets": ["cai"],
    }  # fmt: skip
    assert GeometrySpec.model_validate(json.loads(json.dumps(plain))).to_dict() == plain


@pytest.mark.parametrize("change", [{"row": 3}, {"rows": "many"}, {"rows": True}, {"store_dtype": "float64"}])
def test_an_entry_that_is_unknown_or_of_another_type_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=f"EmbedSpec\n{next(iter(change))}\n"):
        EmbedSpec.model_validate(PLAIN | change)


@pytest.mark.parametrize("name", ["model", "seed", "ref"])
def test_a_missing_entry_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match=f"{name}\n  Field required"):
        EmbedSpec.model_validate({one: value for one, value in PLAIN.items() if one != name})


def test_fields_that_every_key_contains_are_optional_fields_of_specs() -> None:
    kinds = {kind.__name__: kind for spec in task_versions.specs() for kind in task_versions.nested(spec)}
    for name, fields in IN_EVERY_KEY.items():
        for field in fields:
            assert field in kinds[name].__annotations__ and not kinds[name].model_fields[field].is_required()
