"""Bodies to columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from tidegate.engine.values import Int64Array, Vector
from tidegate.saql.plan import Type


class Problem(IntEnum):
    """Why an event, or a row of one, could not be used: Input Deserialization Errors, all of them."""

    MALFORMED = 1
    OUT_OF_RANGE = 2
    NON_CONFORMING = 3


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the query needs of an input's bodies.

    Attributes:
        paths: fields, and fields inside them, spelled as the query does; they match without case.
        record: the whole body is needed.
        declared: the columns of CREATE TABLE.
        bits: whether JSON truth values are bits (level 1.2) or bigints.
    """

    paths: tuple[tuple[str, ...], ...] = ()
    record: bool = False
    declared: tuple[tuple[str, Type], ...] | None = None
    bits: bool = True


@dataclass(frozen=True, slots=True)
class Decoded:
    """The n rows that m bodies hold.

    Attributes:
        events: int64[n], ascending: which body the row is of. A body may hold no row, one, or (array, lines) several.
        indices: int64[n], which row of its body it is.
        fields: a vector for each wanted path, its names in lower case.
        records: the whole rows, where wanted.
        rejected_events: int64[r], bodies (or rows of them) that could not be used, ``rejected_problems`` uint8[r] why.
    """

    events: Int64Array
    indices: Int64Array
    fields: dict[tuple[str, ...], Vector]
    records: Vector | None
    rejected_events: Int64Array
    rejected_problems: Int64Array = field(repr=False)


class Decoder:
    """Decodes batches of one input. It learns how producers spell names, which makes it faster and changes nothing else."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted

    def decode(self, bodies: Sequence[bytes]) -> Decoded:
        """The rows of a batch of bodies."""
        raise AssertionError
