"""Every family says which stack reads the series and which one stands for the model."""

from __future__ import annotations

from typing import ClassVar

from tsfmscope.models.base import Family


def test_the_last_stack_is_the_default_also_in_a_subclass_of_a_subclass() -> None:
    class Mixer(Family):
        stacks: ClassVar[tuple[str, ...]] = ("zoom", "mixer")

    class Named(Mixer):
        output_stack: ClassVar[str] = "zoom"

    class Short(Named):
        stacks: ClassVar[tuple[str, ...]] = ("mixer",)

    assert [one.output_stack for one in (Mixer, Named, Short)] == ["mixer", "zoom", "mixer"]
