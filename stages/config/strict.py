"""Base class of the blocks of params.yaml, and the type of a seed."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

# Seeds go to several generators; this is the largest seed that NumPy's legacy RandomState takes,
# the narrowest.
LARGEST_SEED = 2**32 - 1
Seed = Annotated[int, Field(ge=0, le=LARGEST_SEED)]


class Strict(BaseModel):
    """Frozen block in which an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)
