"""Block `compression` of params.yaml."""

from __future__ import annotations

from pydantic import Field

from tsfmscope.compression.options import CalibrationOptions, FidelityOptions, Method
from tsfmscope.strict import Strict


class Compression(Strict):
    """Stage compression: the compressed models that studies name as BASE@METHOD."""

    methods: dict[str, Method] = Field({}, description="name after the @ -> method")
    calibration: CalibrationOptions = CalibrationOptions()
    fidelity: FidelityOptions = FidelityOptions()
