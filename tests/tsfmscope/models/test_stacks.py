"""Every family says which stack reads the series and which one stands for the model."""

from __future__ import annotations

from typing import ClassVar

from tsfmscope.models.base import Family
from tsfmscope.models.registry import FAMILIES, family_class


def test_the_output_stack_of_every_family() -> None:
    # Shelim et al. 2025 read Chronos' and the other decoders' last layer, and the encoder's of the others.
    decoders = {"chronos-t5", "lag-llama", "moirai-2", "time-moe", "timesfm", "timesfm-2.5", "toto-2", "wavetoken"}
    for name in FAMILIES:
        cls = family_class(name)
        assert cls.output_stack in cls.stacks, name
        assert (cls.output_stack == "decoder") == (name in decoders), name


def test_the_last_stack_is_the_default_also_in_a_subclass_of_a_subclass() -> None:
    class Mixer(Family):
        stacks: ClassVar[tuple[str, ...]] = ("zoom", "mixer")

    class Named(Mixer):
        output_stack: ClassVar[str] = "zoom"

    class Short(Named):
        stacks: ClassVar[tuple[str, ...]] = ("mixer",)

    assert [one.output_stack for one in (Mixer, Named, Short)] == ["mixer", "zoom", "mixer"]
