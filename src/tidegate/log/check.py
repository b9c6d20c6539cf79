"""Background check of the events that opening did not verify, so that damage is found before a reader hits it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from tidegate.log.errors import LogDamaged

if TYPE_CHECKING:
    from tidegate.log.partition_log import PartitionLog

PIECE_BYTES = 1 << 18


def check(log: PartitionLog, unread: range) -> Iterator[LogDamaged | None]:
    """Yield the damage among the events `unread`, and None after every PIECE_BYTES or so, when the caller may pause.

    Raises LogError.
    """
    sequence, end = unread.start, unread.stop
    read = 0
    while sequence < end:
        try:
            with closing(log.entries(sequence)) as entries:
                for entry in entries:
                    sequence = entry.next_sequence_number
                    if sequence >= end:
                        return
                    read += entry.length
                    if read >= PIECE_BYTES:
                        read = 0
                        yield None
                return
        except LogDamaged as damage:
            sequence = damage.resume_sequence_number
            yield damage
