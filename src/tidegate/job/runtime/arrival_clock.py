"""What is known of a timeline once some of its events have been read: its watermark, and the arrival it has reached.

The driver asks this of timelines that a step does not read, and the tasks of those that it does, so that the watermark
can travel with the rows and no shard has to wait for the driver.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.connectors.model.events import PartitionEnd
from tidegate.engine import Program
from tidegate.ordering import END_OF_TIME, NO_TIME, Carry, Policy, SubstreamCarry, arrival_floor, watermark

AnyCarry = Carry | SubstreamCarry
END_OF_LOG = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a timeline has come.

    Attributes:
        watermark: ticks; END_OF_TIME if no event can follow.
        arrival: ticks; every event still to be read has at least this arrival.
    """

    watermark: int
    arrival: int


NOWHERE = Reached(NO_TIME, NO_TIME)
OPEN_END = PartitionEnd(0, END_OF_LOG, None)
"""An end that no range of events reaches."""


def reached(
    carry: AnyCarry, position: int, end: PartitionEnd, input_name: str, program: Program, policy: Policy
) -> tuple[AnyCarry, Reached]:
    """Return how far a timeline has come, and its carry with what the end of its log adds.

    Args:
        carry: the carry after the events before ``position``.
        position: the next sequence number to read; at the end of the log its arrival lower bound counts.
    """
    if position >= end.end:
        if end.complete:
            return carry, Reached(END_OF_TIME, END_OF_TIME)
        if end.arrival_lower_bound is not None and not policy.merged:
            carry = carry.advance(end.arrival_lower_bound)
    if isinstance(carry, SubstreamCarry):
        # A substream not seen yet may begin anywhere within the late tolerance.
        return carry, Reached(arrival_floor(carry.arrival, policy), carry.arrival)
    own = policy if program.has_event_time(input_name) else Policy.arrival_time()
    return carry, Reached(watermark(carry, own), carry.arrival)
