"""What every block of params.yaml is."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """Unknown keys are errors, and nothing changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)
