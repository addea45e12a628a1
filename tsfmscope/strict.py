"""Base class of the blocks of params.yaml, and the type of a seed."""

from __future__ import annotations

import functools
from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

# Seeds go to several generators; this is the largest seed that NumPy's legacy RandomState takes,
# the narrowest.
LARGEST_SEED = 2**32 - 1
Seed = Annotated[int, Field(ge=0, le=LARGEST_SEED)]


class Strict(BaseModel):
    """Frozen block in which an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_boolean_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse `seed: yes`, which pydantic takes for 1."""
        annotation: Any = cls.model_fields[str(info.field_name)].annotation
        if _contains_boolean(value) and not _takes_booleans(annotation):
            raise ValueError(f"got {value}, expected no boolean (YAML reads yes, no, on and off as booleans)")
        return value


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
