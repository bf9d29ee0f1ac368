"""Which secondary contrasts stand after correction for their number? Holm's step-down.

With p(1) <= ... <= p(k) in a family of size F, the adjusted values are
max_{i<=j} min(1, (F - i + 1) p(i)): the running maximum first, then the cap. The family has the
size that was declared and frozen. A member whose p-value is not available keeps its place as 1,
so the others are not corrected for less than was declared.

Holm (1979), Scandinavian Journal of Statistics 6:65-70; as R's p.adjust(p, "holm", n = F).
"""

from collections.abc import Sequence
from fractions import Fraction

import msgspec

from projections.analyses.admissible_values import Rational, admit_count, admit_level


class HolmAdjustment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Holm-adjusted p-values in the order given.

    family_size: declared number of members, those without a p-value included.
    alpha: familywise level, nearest float.
    adjusted: adjusted p-values in [0, 1]; None where no p-value was available.
    rejected: adjusted <= alpha, decided on exact rationals; False where there is none.
    """

    family_size: int
    alpha: float
    adjusted: tuple[float | None, ...]
    rejected: tuple[bool, ...]


def holm_adjust(
    p_values: Sequence[Fraction | float | None], family_size: int, alpha: Rational = "0.05"
) -> HolmAdjustment:
    """Adjust a family; members beyond `p_values` count as unavailable.

    p_values: exact fractions or floats (taken at their exact binary value) in [0, 1], or None.

    Raises ValueError for more p-values than members, an empty family, a p-value outside [0, 1]
    (NaN included) or alpha outside (0, 1).
    """
    size = admit_count(family_size, "family_size", minimum=1)
    level = admit_level(alpha, "alpha")
    if len(p_values) > size:
        raise ValueError(
            f"{len(p_values)} p-values for a family declared with {size} members: a contrast "
            "outside the declared family is not adjusted with it"
        )
    for p in p_values:
        if p is not None and not 0 <= p <= 1:
            raise ValueError(f"a p-value must lie between 0 and 1 (or be None), not {p!r}")

    available = [(Fraction(p), place) for place, p in enumerate(p_values) if p is not None]
    adjusted: list[Fraction | None] = [None] * len(p_values)
    running = Fraction(0)
    # Unavailable members are 1 and sort last, so they only enter through the size.
    for rank, (p, place) in enumerate(sorted(available)):
        running = max(running, (size - rank) * p)
        adjusted[place] = min(running, Fraction(1))
    return HolmAdjustment(
        family_size=size,
        alpha=float(level),
        adjusted=tuple(None if p is None else float(p) for p in adjusted),
        rejected=tuple(p is not None and p <= level for p in adjusted),
    )
