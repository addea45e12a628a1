"""R factor of a tall matrix that arrives in blocks of rows, and the singular values it gives."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

import numpy as np
from jaxtyping import Float

# Rows that are factored at once, 17 MB at 1024 columns. From 512 to 4096 rows the speed is the
# same.
HEIGHT = 2048
# Columns of a block reflector of dtpqrt. 32 and 64 are equally fast at 1024 columns, 32 is faster
# at 512.
PANEL = 32
# Range of exponents around 2^0 that need no scaling: a column's sum of squares stays inside
# float64.
CALM = 300


class TallQR:
    """R factor of [1 Ψ] = Q R in float64, for all rows Ψ [N, d] added so far.

    Neither Q nor ΨᵀΨ is formed. One pass gives two spectra. The singular values of Ψ are those of R without
    its first column. The singular values of Ψ minus its column means are those of R without its first row and
    column.

    HEIGHT rows at a time are added to R by Householder reflectors (LAPACK dtpqrt, in place). This changes no
    singular value by more than a small multiple of the float64 rounding of σ₁: bench/spectra.py measured
    2e-15 σ₁ after a million rows of 1024 columns and after 10 million of 64. Rows are buffered before they
    are added, so the result is the same, bit for bit, however the rows are split into blocks, unless a result
    is requested in between. Memory: R and two times HEIGHT rows.
    """

    def __init__(self, width: int) -> None:
        """Start without rows; width is the number of columns of Ψ. Raises ValueError for a width below 1."""
        if width < 1:
            raise ValueError(f"width: got {width}, expected at least 1")
        self.width = width
        self.rows = 0
        self.blocks = 0
        # R belongs to the rows divided by 2 to this power.
        self._power = 0
        self._r = np.zeros((width + 1, width + 1), order="F")
        self._buffer = np.empty((HEIGHT, width + 1), order="F")
        self._n_buffered = 0
        self._longest = 0.0

    @classmethod
    def of(cls, blocks: Iterable[Float[np.ndarray, "row width"]]) -> Self:
        """Build the factor from all blocks of an iterable.

        Raises ValueError where there is no block (a block without rows is allowed), and as `add` does.
        """
        qr = None
        for block in blocks:
            qr = cls(np.shape(block)[-1]) if qr is None else qr
            qr.add(block)
        if qr is None:
            raise ValueError(
                "blocks: got none, expected at least one; a block without rows is enough, because it has a width"
            )
        return qr

    def add(self, block: Float[np.ndarray, "row width"]) -> None:
        """Add a block of rows, of any height and real dtype; it is read once and not kept.

        Raises ValueError, naming block and row, for a wrong shape, NaN or infinity; then no row of the block
        is added.
        """
        block = np.asarray(block)
        where = f"block {self.blocks} (rows from {self.rows})"
        if block.ndim != 2 or block.shape[1] != self.width:
            raise ValueError(f"{where}: got shape {block.shape}, expected [row, {self.width}]")
        if len(block) and not np.isfinite(_largest(block)):
            bad = int(np.flatnonzero(~np.isfinite(block).all(axis=1))[0])
            raise ValueError(f"{where}: NaN or infinity in its row {bad}; check the model and its dtype")
        for start in range(0, len(block), HEIGHT):
            rows = block[start : start + HEIGHT]
            count = min(len(rows), HEIGHT - self._n_buffered)
            for part in (rows[:count], rows[count:]):
                if len(part):
                    self._buffer[self._n_buffered : self._n_buffered + len(part), 1:] = part
                    self._n_buffered += len(part)
                if self._n_buffered == HEIGHT:
                    self._fold()
        self.rows += len(block)
        self.blocks += 1

    def singular_values(self, *, centred: bool = False) -> Float[np.ndarray, " value"]:
        """Return all min(N, d) singular values, descending; centred: of Ψ minus its column means.

        Without rows there are none. Raises ValueError where the largest is beyond float64, which finite rows
        near 1e308 can cause.
        """
        from scipy.linalg import svdvals

        self._fold()
        r = np.triu(self._r)[1:, 1:] if centred else np.triu(self._r)[:, 1:]
        values = self._restore_scale(svdvals(r)[: min(self.rows, self.width)])
        if not np.isfinite(values).all():
            raise ValueError("singular values: got more than the largest float64; divide the rows by 1e10")
        return values

    def root(self) -> Float[np.ndarray, "width_and_one width_and_one"]:
        """Return R of [1 Ψ].

        RᵀR is the second-moment matrix of [1 Ψ] times the number of rows. R is thus a square root of it,
        obtained without squaring any entry. Raises ValueError where a value is beyond float64.
        """
        self._fold()
        r = np.triu(self._r)
        r[:, 1:] = self._restore_scale(r[:, 1:])
        if not np.isfinite(r).all():
            raise ValueError("root: got values beyond the largest float64; divide the rows by 1e10")
        return r

    def directions(self) -> Float[np.ndarray, "width width"]:
        """Return the right singular vectors of Ψ as columns, the leading one first, with arbitrary signs."""
        self._fold()
        return np.asarray(np.linalg.svd(np.triu(self._r)[:, 1:], full_matrices=False)[2].T)

    @property
    def longest_row(self) -> float:
        """Return the largest norm of a row; 0 without rows."""
        self._fold()
        return self._longest

    @property
    def longest_column(self) -> float:
        """Return the largest norm of a column, taken from R because Q preserves norms; 0 without rows."""
        self._fold()
        r = np.triu(self._r)[:, 1:]
        return float(self._restore_scale(np.linalg.norm(r, axis=0)).max())

    def _fold(self) -> None:
        """Fold the buffered rows into R by reflectors, which overwrite both."""
        from scipy.linalg.lapack import dtpqrt

        if not self._n_buffered:
            return
        rows = self._buffer if self._n_buffered == HEIGHT else np.asfortranarray(self._buffer[: self._n_buffered])
        self._n_buffered = 0
        rows[:, 0] = 1.0
        values = rows[:, 1:]
        if largest := _largest(values):
            # R is scaled, so that values near 2 to this power neither overflow nor underflow.
            power = int(np.frexp(largest)[1])
            # Without rows, and with zero rows only, R does not determine a scale.
            if not self._r[:, 1:].any():
                self._power = power if abs(power) > CALM else 0
            elif power > self._power + CALM:
                self._r[:, 1:] = np.ldexp(self._r[:, 1:], self._power - power)
                self._power = power
        if self._power:
            np.ldexp(values, -self._power, out=values)
        norms = np.sqrt(np.einsum("ij,ij->i", values, values))
        self._longest = max(self._longest, float(self._restore_scale(norms).max()))
        panel = min(PANEL, self.width + 1)
        self._r, *_, info = dtpqrt(0, panel, self._r, rows, overwrite_a=1, overwrite_b=1)
        assert info == 0, f"dtpqrt: argument {-info} is wrong"

    def _restore_scale(self, values: np.ndarray) -> np.ndarray:
        """Return values of R in the rows' own units, infinite where these are beyond float64."""
        with np.errstate(over="ignore"):
            return np.asarray(np.ldexp(values, self._power))


def _largest(values: np.ndarray) -> float:
    """Return the largest absolute value, or NaN where there is one, without a copy."""
    return max(abs(float(values.max())), abs(float(values.min())))
