"""Base class of options and of the blocks of params.yaml, and the type of a seed."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic.fields import FieldInfo

# Seeds go to several generators; this is the largest seed that NumPy's legacy RandomState takes,
# the narrowest.
LARGEST_SEED = 2**32 - 1
Seed = Annotated[int, Field(ge=0, le=LARGEST_SEED)]
# Fields with a default that `to_dict`, and so the keys of jobs, contain even where they equal it, by
# class. They were in keys before they had a default; a line goes when the version of its tasks is
# raised.
IN_EVERY_KEY: Mapping[str, tuple[str, ...]] = {
    "TokenOptions": ("rows",),
    "EmbedOptions": ("rows", "batch", "store_dtype"),
    "ClusterOptions": ("k_max", "restarts", "min_silhouette", "silhouette_rows"),
    "IsotropyOptions": ("min_cluster", "permutations", "repeats"),
    "HeadsOptions": ("rows", "batch"),
    "LemmaOptions": ("tokens", "windows", "layers"),
    "ScoreOptions": ("levels", "samples", "batch", "keep_quantiles"),
    "SkillOptions": ("windows", "context", "samples", "bootstrap"),
    "FlowRanks": ("rounding", "origin", "cross_offset"),
    "GuidelineRanks": ("smallest", "bend"),
    "HeadRanks": ("factors",),
    "CalibrationOptions": ("datasets", "windows", "context", "horizon"),
    "FidelityOptions": ("windows", "top"),
    "Phase": ("batch_steps", "periods"),
    "Recipe": ("weight_decay", "warm_up", "futures", "pool", "length", "seed", "log_every", "save_every"),
}


class Strict(BaseModel):
    """Frozen model in which an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_boolean_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse `seed: yes`, which pydantic takes for 1."""
        annotation: Any = cls.model_fields[str(info.field_name)].annotation
        if _contains_boolean(value) and not _takes_booleans(annotation):
            raise ValueError(f"got {value}, expected no boolean (YAML reads yes, no, on and off as booleans)")
        return value

    def part(self, kind: type[BaseModel]) -> dict[str, Any]:
        """Return the values of the fields that another class has, such as a base class, by name."""
        return {name: getattr(self, name) for name in kind.model_fields}

    def to_dict(self) -> dict[str, Any]:
        """Return the plain dict, in the types of JSON.

        A field that equals its default has no entry, so that a new field with a default changes no key of a job.
        """
        entries: dict[str, Any] = _plain(self)
        return entries


@functools.cache
def optional_fields(kind: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a class, by name, that keys contain only where they differ from their default."""
    kept = {name for base in kind.__mro__ for name in IN_EVERY_KEY.get(base.__name__, ())}
    return {name: field for name, field in kind.model_fields.items() if not field.is_required() and name not in kept}


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, BaseModel):
        optional = optional_fields(type(value))
        return {
            name: _plain(entry)
            for name, entry in value
            if name not in optional or entry != optional[name].get_default(call_default_factory=True)
        }
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, list | tuple) else value


def _contains_boolean(value: Any) -> bool:
    if isinstance(value, list | dict):
        return any(map(_contains_boolean, value.values() if isinstance(value, dict) else value))
    return isinstance(value, bool)


@functools.cache
def _takes_booleans(annotation: Any) -> bool:
    """Return whether a field of this type may contain a boolean, or a block that checks its own fields."""
    if annotation in (bool, Any) or isinstance(annotation, bool):
        return True
    is_block = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    return is_block or any(map(_takes_booleans, get_args(annotation)))
