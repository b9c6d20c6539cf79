"""Sums that are exact, so that they do not depend on the order or the grouping of what is added.

Theory. A float is an integer of 53 bits times a power of two. Cut the line of powers of two into limbs of 40 bits;
the part of a float that falls into a limb is an integer below 2^40 (of the float's sign), found exactly by scaling,
truncating and subtracting. Integers add up exactly, limb by limb, in int64: 2^23 of them fit before a carry is due.
The value of a sum is the integer that its limbs make, rounded once, at the end. (The idea is Kulisch's long
accumulator, "Computer Arithmetic and Validity", 2nd ed. 2013, with delayed carries.) Only limbs that some value
touches exist, so that values of usual size need two or three.

Bigints add up in two halves of 32 bits, which cannot overflow before 2^31 of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import frexp

import numpy as np

from tidegate.engine.values.vectors import BoolArray, FloatArray, Int64Array

LIMB_BITS = 40
LIMB_SHIFT = 20
"""Limb k counts units of 2^(40 k − 20), so that both a usual value's whole part and its first binary places are one
limb.
"""

_CARRY_FROM = 2**50
_SMALL_LIMB = 2**8
_HALF_BITS = 32
_LARGEST_DIRECT_EXPONENT = 1000
_LARGEST_QUICK_EXPONENT = 400
_SPLITTER = 2.0**27 + 1


@dataclass(slots=True)
class ExactSums:
    """A sum for each of g groups.

    Attributes:
        limbs: by number of limb, int64[g].
        highs, lows: int64[g], the halves of the sums of bigints; None where there are none.
    """

    size: int
    limbs: dict[int, Int64Array] = field(default_factory=dict)
    highs: Int64Array | None = None
    lows: Int64Array | None = None

    def add_floats(self, codes: Int64Array, values: FloatArray) -> None:
        """Add finite floats to the groups ``codes``."""
        largest = float(np.abs(values).max(initial=0.0))
        if largest == 0.0:
            return
        limb = -(-(frexp(largest)[1] + LIMB_SHIFT) // LIMB_BITS) - 1
        rest = values.copy()
        while True:
            exponent = LIMB_BITS * limb - LIMB_SHIFT
            parts = np.trunc(_scaled(rest, -exponent))
            if parts.any():
                np.add.at(self._limb(limb), codes, parts.astype(np.int64))
                rest -= _scaled(parts, exponent)
                if not rest.any():
                    break
            limb -= 1
        self._carry()

    def add_bigints(self, codes: Int64Array, values: Int64Array) -> None:
        """Add bigints to the groups ``codes``."""
        if self.highs is None or self.lows is None:
            self.highs = np.zeros(self.size, dtype=np.int64)
            self.lows = np.zeros(self.size, dtype=np.int64)
        np.add.at(self.highs, codes, values >> _HALF_BITS)
        np.add.at(self.lows, codes, values & (2**_HALF_BITS - 1))

    def add_scaled(self, code: int, number: int, exponent: int) -> None:
        """Add number · 2^exponent to one group."""
        sign, rest = (-1, -number) if number < 0 else (1, number)
        limb = (exponent + LIMB_SHIFT) // LIMB_BITS
        rest <<= exponent - (LIMB_BITS * limb - LIMB_SHIFT)
        while rest:
            self._limb(limb)[code] += sign * (rest & (2**LIMB_BITS - 1))
            rest >>= LIMB_BITS
            limb += 1
        self._carry()

    def take(self, indices: Int64Array) -> ExactSums:
        """Return the sums of these groups."""
        return ExactSums(
            len(indices),
            {limb: values[indices] for limb, values in self.limbs.items()},
            None if self.highs is None else self.highs[indices],
            None if self.lows is None else self.lows[indices],
        )

    def merge(self, codes: Int64Array, size: int) -> ExactSums:
        """Merge groups: ``codes`` says which of ``size`` new groups each goes to."""
        merged = ExactSums(size)
        for limb, values in self.limbs.items():
            np.add.at(merged._limb(limb), codes, values)
        if self.highs is not None and self.lows is not None:
            merged.highs = np.zeros(size, dtype=np.int64)
            merged.lows = np.zeros(size, dtype=np.int64)
            carries = self.lows >> _HALF_BITS
            np.add.at(merged.highs, codes, self.highs + carries)
            np.add.at(merged.lows, codes, self.lows - (carries << _HALF_BITS))
        merged._carry()
        return merged

    def negated(self) -> ExactSums:
        """Return the sums with the opposite sign: merging them subtracts."""
        return ExactSums(
            self.size,
            {limb: -values for limb, values in self.limbs.items()},
            None if self.highs is None else -self.highs,
            None if self.lows is None else -self.lows,
        )

    def trimmed(self) -> ExactSums:
        """Return the same sums, with limbs at the upper end moved down if they are small."""
        limbs = {limb: values for limb, values in self.limbs.items() if values.any()}
        while limbs:
            top = max(limbs)
            if int(np.abs(limbs[top]).max()) >= _SMALL_LIMB or top == min(limbs):
                break
            below = limbs.get(top - 1, np.zeros(self.size, dtype=np.int64))
            limbs[top - 1] = below + (limbs.pop(top) << LIMB_BITS)
        return ExactSums(self.size, limbs, self.highs, self.lows)

    @classmethod
    def concat(cls, sums: Sequence[ExactSums]) -> ExactSums:
        """Concatenate the groups of several sums."""
        joined = cls(sum(one.size for one in sums))
        for limb in {limb for one in sums for limb in one.limbs}:
            joined.limbs[limb] = np.concatenate(
                [one.limbs.get(limb, np.zeros(one.size, dtype=np.int64)) for one in sums]
            )
        if any(one.highs is not None for one in sums):
            joined.highs, joined.lows = (
                np.concatenate([np.zeros(one.size, dtype=np.int64) if half is None else half for one, half in halves])
                for halves in ([(one, one.highs) for one in sums], [(one, one.lows) for one in sums])
            )
        return joined

    def bigints(self) -> list[int]:
        """Return the sums of the bigints alone."""
        if self.highs is None or self.lows is None:
            return [0] * self.size
        return [(high << _HALF_BITS) + low for high, low in zip(self.highs.tolist(), self.lows.tolist(), strict=True)]

    def scaled(self) -> tuple[list[int], int]:
        """Return integers N and an exponent e such that the sums are N · 2^e, exactly."""
        lowest = min(self.limbs, default=0)
        exponent = min(LIMB_BITS * lowest - LIMB_SHIFT, 0)
        totals = [whole << -exponent for whole in self.bigints()]
        for limb, values in self.limbs.items():
            shift = LIMB_BITS * limb - LIMB_SHIFT - exponent
            for group, part in enumerate(values.tolist()):
                totals[group] += part << shift
        return totals, exponent

    def quotients(self, counts: Int64Array) -> tuple[FloatArray, BoolArray]:
        """Divide each sum by its count (1 or more), rounded to the nearest float; say where that is certain.

        The sum is brought to s + t exactly, s being its nearest float. With q = s / n rounded, the remainder s − q n is
        exact, for a product of floats is a sum of two (Dekker 1971); so q + (s − q n + t) / n is known to some 2^-50 of
        the last place, which leaves the rounding in doubt only next to the middle between two floats. The mean of two
        floats is often there, but a division by a power of two is exact, so that its only rounding is that of the sum.
        """
        total, rest = np.zeros(self.size), np.zeros(self.size)
        sure = np.ones(self.size, dtype=np.bool_)
        parts = [(values, LIMB_BITS * limb - LIMB_SHIFT) for limb, values in sorted(self.limbs.items(), reverse=True)]
        if self.highs is not None and self.lows is not None:
            parts += [(self.highs, _HALF_BITS), (self.lows, 0)]
        for values, exponent in parts:
            if abs(exponent) > _LARGEST_QUICK_EXPONENT:
                return total, np.zeros(self.size, dtype=np.bool_)
            sure &= np.abs(values) < 2**53
            part: FloatArray = values.astype(np.float64) * 2.0**exponent
            total, error = _two_sum(total, part)
            rest, lost = _two_sum(rest, error)
            sure &= lost == 0
        total, rest = _two_sum(total, rest)
        divisors = counts.astype(np.float64)
        sure &= counts < 2**26
        quotient = total / divisors
        high, low = _halves(quotient)
        # The divisor has 26 bits, so that its products with the halves are exact.
        product = quotient * divisors
        product_error = (high * divisors - product) + low * divisors
        correction = ((total - product) - product_error + rest) / divisors
        quotient, doubt = _two_sum(quotient, correction)
        half_place = np.spacing(np.nextafter(np.abs(quotient), 0.0)) / 2
        exact = counts & (counts - 1) == 0
        return quotient, sure & (exact | (np.abs(doubt) < half_place * (1 - 2.0**-30)))

    def _limb(self, limb: int) -> Int64Array:
        if limb not in self.limbs:
            self.limbs[limb] = np.zeros(self.size, dtype=np.int64)
        return self.limbs[limb]

    def _carry(self) -> None:
        """Carry what has grown large into the next limb, long before it could overflow."""
        for limb in sorted(self.limbs):
            values = self.limbs[limb]
            while len(values) and max(int(values.max()), -int(values.min())) >= _CARRY_FROM:
                carries = values >> LIMB_BITS
                values -= carries << LIMB_BITS
                limb += 1
                values = self._limb(limb)
                values += carries


def _two_sum(one: FloatArray, other: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the rounded sum of two floats, and exactly what rounding lost (Knuth, TAOCP 2, 4.2.2)."""
    total = one + other
    back = total - one
    return total, (one - (total - back)) + (other - back)


def _halves(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Split floats into sums of two of 26 bits."""
    split = values * _SPLITTER
    high = split - (split - values)
    return high, values - high


def _scaled(values: FloatArray, exponent: int) -> FloatArray:
    """Return values · 2^exponent; exact unless the result is smaller than a float can be."""
    if abs(exponent) < _LARGEST_DIRECT_EXPONENT:
        return values * 2.0**exponent
    return np.ldexp(values, exponent)


def quotient(numerator: int, denominator: int) -> float | None:
    """Return the float nearest to a quotient of integers; None if it is beyond the range of float."""
    try:
        return numerator / denominator
    except OverflowError:
        return None
