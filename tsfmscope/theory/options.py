"""Sizes of the experiments of Yu et al. 2026, Appendix J."""

from __future__ import annotations

from pydantic import Field, model_validator

from tsfmscope.defaults import ROWS
from tsfmscope.strict import Strict


class ByRank(Strict):
    """Appendix J.1 of Yu et al. 2026: the error against the rank, by default at the published sizes.

    A score matrix is columns x columns.
    """

    width: int = Field(512, ge=4)
    columns: int = Field(4096, ge=4, description="vocabulary size, N >= width")
    points: int = Field(24, ge=3, description="ranks between 1 and width - 1")


class ByWidth(Strict):
    """Appendix J.1 of Yu et al. 2026: the error against the width; the paper prints no widths and no rank."""

    widths: list[int] = Field([64, 128, 256, 512], min_length=3)
    columns: int = Field(4096, ge=4)
    kept: int = Field(16, ge=1, description="rank that is kept, below the smallest width")

    @model_validator(mode="after")
    def _fits(self) -> ByWidth:
        if not self.kept < min(self.widths) or max(self.widths) > self.columns:
            raise ValueError(
                f"kept {self.kept} must be below every width, and every width at most columns {self.columns}"
            )
        return self


class ByHeads(Strict):
    """Experiment whose numbers of heads divide its width."""

    width: int = Field(ge=4)
    heads: list[int] = Field(min_length=3, description="divisors of the width")

    @model_validator(mode="after")
    def _divides(self) -> ByHeads:
        if odd := [count for count in self.heads if count < 1 or self.width % count]:
            raise ValueError(f"heads {odd} do not divide the width {self.width}")
        return self


class Sketch(ByHeads):
    """Appendix J.2 of Yu et al. 2026: sketches of `kept` rows per head, by default at the published sizes.

    The result does not depend on the number of tokens, which cancels.
    """

    width: int = Field(ROWS, ge=8)
    kept: int = Field(4, ge=1)
    heads: list[int] = Field([1, 2, 4, 8, 16, 32, 64, 128], min_length=3)


class Flow(ByHeads):
    """Appendix J.3 of Yu et al. 2026: ranks against the number of heads.

    The paper prints no sizes: the width is that of J.1, the numbers of heads are our choice.
    """

    width: int = Field(512, ge=4)
    columns: int = Field(1024, ge=4, description="tokens, at least the width")
    heads: list[int] = Field([1, 2, 4, 8, 16, 32, 64], min_length=3)
