"""Registry of the statements checked at random instances; seed and number reproduce an instance."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from tsfmscope.theory import corollary2, theorem1, theorem2, theorem3, theorem4, theorem6
from tsfmscope.theory.bound_check import BoundCheck

STATEMENTS: Mapping[str, Callable[[np.random.Generator], dict[str, list[BoundCheck]]]] = {
    "Theorem 1.1": theorem1.smooth_instance,
    "Theorem 1.2": theorem1.analytic_instance,
    "Corollary 2": corollary2.corollary_instance,
    "Theorem 2": theorem2.mlp_instance,
    "Theorem 3.1": theorem3.compressible_instance,
    "Theorem 3.2": theorem3.incompressible_instance,
    "Theorem 4 eq. 5": theorem4.upper_instance,
    "Theorem 4 eq. 6": theorem4.lower_instance,
    "Corollary 1 upper": theorem4.corollary_upper_instance,
    "Corollary 1 lower": theorem4.corollary_lower_instance,
    "Theorem 5": theorem3.heads_instance,
    "Theorem 6": theorem6.heads_instance,
}


def instance(statement: str, seed: int, number: int) -> Iterator[tuple[str, BoundCheck]]:
    """Yield (part, check) for every part and form of a statement at one instance.

    The same three arguments give the same result. Raises ValueError, with the list of statements, for an
    unknown statement.
    """
    if statement not in STATEMENTS:
        raise ValueError(f"statement: got {statement!r}, expected one of {', '.join(STATEMENTS)}")
    rng = np.random.default_rng([seed, zlib.crc32(statement.encode()), number])
    for part, sides in STATEMENTS[statement](rng).items():
        for side in sides:
            yield part, side
