"""The scan over substreams: ``TIMESTAMP BY … OVER key``, one timeline for each value of the key inside a partition.

The out-of-order rule applies within a substream, the late rule to the whole partition (query reference "TIMESTAMP BY":
as if OVER were not used). So there is one latest arrival A and, for each substream, one largest time M.

Theory. As in ``timeline``, M is a running maximum, now of each substream on its own. A stable sort brings the events of
each substream together, and maxima are taken at distances 1, 2, 4, … without looking past the substream's first event
(Hillis and Steele, "Data Parallel Algorithms", 1986).

Forgetting. Let M < A - late for a substream. Every later event of it that is not dropped is stamped at least A - late,
which is above M, and so takes the maximum's place; and until then its watermark max(M - out_of_order, A - late) is
A - late whatever M is. So with M forgotten (NO_TIME) no stamp, fate, reason or watermark changes; only
``watermark_event`` of an event that is dropped before another is kept then reads NO_TIME. What must be remembered is
therefore bounded by the substreams that had an event within the late tolerance (and the early window) — unless there
is no late tolerance, when nothing can be forgotten.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from tidegate.ordering.key_index import Codes, KeyIndex, Keys
from tidegate.ordering.policy import Policy
from tidegate.ordering.ticks import NO_TIME, Times
from tidegate.ordering.timeline import (
    INVALID_KEY,
    INVALID_TIMESTAMP,
    Carry,
    Mask,
    Stamps,
    arrival_floor,
    arrival_rules,
    columns,
    minus,
    order_rule,
    running_arrival,
)

FORGET_FROM = 262_144
"""With fewer substreams than this, nothing is forgotten."""

BLOCK_EVENTS = 65_536


class SubstreamKeys:
    """The dictionary key -> code. It only grows, so carries of different ages can share one.

    Attributes:
        generation: a number that no other dictionary has. Where it is the same, a code has the same key. It changes
            when substreams are forgotten, which changes the codes of the others.
    """

    def __init__(self, index: KeyIndex | None = None, generation: int | None = None) -> None:
        self._index = index or KeyIndex()
        self.generation = secrets.randbits(62) if generation is None else generation
        self.forget_from = max(FORGET_FROM, 2 * len(self._index))

    def __len__(self) -> int:
        return len(self._index)

    def codes(self, keys: Keys) -> Codes:
        """Return int64[n]: the code of each key, no two of which are equal; a new key gets the next code."""
        return self._index.add(keys)

    def keys(self) -> Keys:
        """Return all keys, in order of their codes."""
        return self._index.keys()

    def first(self, count: int) -> SubstreamKeys:
        """Return the keys with codes below ``count``."""
        return SubstreamKeys(self._index.only(np.arange(count)), self.generation)

    def only(self, codes: Codes) -> SubstreamKeys:
        """Return the next generation, with some of the keys."""
        return SubstreamKeys(self._index.only(codes))

    def renewed(self) -> SubstreamKeys:
        """Return the next generation, with all keys; this dictionary is not used any more."""
        return SubstreamKeys(self._index)


@dataclass(frozen=True, eq=False)
class SubstreamCarry:
    """What a scan over substreams passes to the next.

    Attributes:
        keys: the dictionary that codes refer to.
        max_times: int64[k], by code the largest System.Timestamp of the substream, NO_TIME for none; codes from k on
            are substreams not seen yet.
        arrival: the latest arrival known on the partition, NO_TIME for none.
    """

    keys: SubstreamKeys = field(default_factory=SubstreamKeys)
    max_times: Times = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    arrival: int = NO_TIME

    def advance(self, arrival: int) -> SubstreamCarry:
        """Return the carry after a tick: the broker's clock has reached ``arrival``. It advances every substream."""
        return self if arrival <= self.arrival else replace(self, arrival=arrival)

    def renewed(self) -> SubstreamCarry:
        """Return the carry with a dictionary of its own, where another run continues from this carry as well.

        From here on, the two give codes to new keys as they read them.
        """
        return replace(self, keys=self.keys.renewed())

    def timeline(self, code: int) -> Carry:
        """Return the carry of one substream."""
        return Carry(int(self.max_times[code]) if 0 <= code < len(self.max_times) else NO_TIME, self.arrival)

    def forget(self, policy: Policy) -> SubstreamCarry:
        """Return the carry without the substreams that the arrival clock has overtaken (see the module docstring).

        Codes change: the result has its own dictionary. :func:`scan_substreams` does this by itself now and then.
        """
        floor = arrival_floor(self.arrival, policy)
        kept = np.flatnonzero(self.max_times >= max(floor, NO_TIME + 1))
        return SubstreamCarry(self.keys.only(kept), self.max_times[kept], self.arrival)


def substream_watermarks(carry: SubstreamCarry, policy: Policy) -> Times:
    """Return the watermark of each substream, int64[k] by code; all others are at the `arrival_floor`."""
    if not len(carry.max_times):
        return carry.max_times
    return np.maximum(minus(carry.max_times, policy.out_of_order_ticks), arrival_floor(carry.arrival, policy))


def scan_substreams(
    event_time: Times,
    arrival: Times,
    codes: Codes,
    carry: SubstreamCarry,
    policy: Policy,
    valid: Mask | None = None,
    latest: Times | None = None,
    *,
    forget: bool = True,
) -> tuple[Stamps, SubstreamCarry]:
    """Stamp n events of one partition, given in broker order, each on the timeline of its own substream.

    As :func:`tidegate.ordering.scan`; in addition ``codes``: int64[n], ``carry.keys.codes(…)`` of each event's key. A
    negative code is a NULL key: the event is DROPPED with INVALID_KEY and moves nothing but the arrival.
    ``watermark_event`` and ``watermark`` are those of the event's substream. ``carry`` is left as it was. Without
    ``forget`` the codes stay what they are.

    Raises ValueError if lengths differ or a code is not of ``carry.keys``.
    """
    event_time, arrival, valid = columns(event_time, arrival, valid)
    codes = np.ascontiguousarray(codes, dtype=np.int64)
    if len(codes) != len(event_time):
        raise ValueError("codes and event_time must be columns of the same events")
    if len(codes) and int(codes.max()) >= len(carry.keys):
        raise ValueError(f"substream code {int(codes.max())} is not in the carry's dictionary of {len(carry.keys)}")
    stamps = Stamps.empty(len(event_time))
    max_times = np.full(len(carry.keys), NO_TIME, dtype=np.int64)
    max_times[: len(carry.max_times)] = carry.max_times
    known = carry.arrival
    for start in range(0, len(event_time), BLOCK_EVENTS):
        stop = min(start + BLOCK_EVENTS, len(event_time))
        known = _scan_block(
            event_time[start:stop],
            arrival[start:stop],
            codes[start:stop],
            max_times,
            known,
            policy,
            None if valid is None else valid[start:stop],
            stamps.part(start, stop),
            None if latest is None else latest[start:stop],
        )
    after = SubstreamCarry(carry.keys, max_times, known)
    return stamps, _forget_if_it_pays(after, policy) if forget else after


def _forget_if_it_pays(carry: SubstreamCarry, policy: Policy) -> SubstreamCarry:
    """Forget once half of many substreams can go; then look again only at twice as many as are left.

    So the dictionary is written anew at most once for every doubling, and is at most twice what must be remembered.
    """
    keys = carry.keys
    if len(keys) < keys.forget_from:
        return carry
    remembered = int(np.count_nonzero(carry.max_times >= max(arrival_floor(carry.arrival, policy), NO_TIME + 1)))
    if 2 * remembered <= len(keys):
        return carry.forget(policy)
    keys.forget_from = 2 * remembered
    return carry


def _scan_block(
    event_time: Times,
    arrival: Times,
    codes: Codes,
    max_times: Times,
    known_arrival: int,
    policy: Policy,
    valid: Mask | None,
    stamps: Stamps,
    latest: Times | None,
) -> int:
    """Stamp one block, update ``max_times`` in place, and return the latest arrival."""
    stamps.reasons[:] = 0
    lost: Mask | None = None
    null_key = codes < 0
    if null_key.any():
        stamps.reasons[null_key] = INVALID_KEY
        lost = null_key
        codes = np.maximum(codes, -1)
    if valid is not None and not valid.all():
        stamps.reasons[~valid] |= INVALID_TIMESTAMP
        lost = ~valid if lost is None else lost | ~valid
    latest = running_arrival(arrival, known_arrival) if latest is None else latest
    moving, lost = arrival_rules(event_time, arrival, latest, policy, lost, stamps.reasons)

    before, after = running_maxima(moving, codes, max_times)
    floor = minus(latest, policy.late_ticks)
    stamps.watermark_event[:] = minus(after, policy.out_of_order_ticks)
    np.maximum(stamps.watermark_event, floor, out=stamps.watermark)
    order_rule(event_time, arrival, minus(before, policy.out_of_order_ticks), floor, policy, lost, stamps)
    return int(latest[-1])


def running_maxima(times: Times, codes: Codes, max_times: Times) -> tuple[Times, Times]:
    """Return the largest time of each event's substream before it and after it, int64[n] each; n > 0.

    ``max_times`` holds those of before the first event by code and is brought up to date. Code -1 is nobody's: its
    times must be NO_TIME.
    """
    order = stable_order(codes)
    sorted_codes = codes[order]
    first = np.empty(len(order), dtype=np.bool_)
    first[0] = True
    np.not_equal(sorted_codes[1:], sorted_codes[:-1], out=first[1:])
    starts = np.flatnonzero(first)
    substreams = sorted_codes[starts]
    nobodys = int(substreams[0] < 0)
    carried = np.full(len(substreams), NO_TIME, dtype=np.int64)
    carried[nobodys:] = max_times[substreams[nobodys:]]
    sorted_after = times[order]
    sorted_after[starts] = np.maximum(sorted_after[starts], carried)
    _running_maximum(sorted_after, starts)
    lasts = np.append(starts[1:], len(order)) - 1
    max_times[substreams[nobodys:]] = sorted_after[lasts[nobodys:]]

    sorted_before = np.empty_like(sorted_after)
    sorted_before[1:] = sorted_after[:-1]
    sorted_before[starts] = carried
    before, after = np.empty_like(times), np.empty_like(times)
    before[order] = sorted_before
    after[order] = sorted_after
    return before, after


def stable_order(codes: Codes) -> npt.NDArray[np.int64]:
    """Return the positions sorted by code, stably: code and position in one word, sorted as a number."""
    bits = len(codes).bit_length()
    words = (codes << bits) | np.arange(len(codes), dtype=np.int64)
    words.sort()
    words &= (1 << bits) - 1
    return words


def _running_maximum(times: Times, starts: npt.NDArray[np.int64]) -> None:
    """Compute a running maximum in place, restarted at each of ``starts`` (ascending, the first is 0)."""
    lengths = np.diff(np.append(starts, len(times)))
    longest = int(lengths.max())
    if longest == 1:
        return
    rank = np.arange(len(times), dtype=np.int64) - np.repeat(starts, lengths)
    distance = 1
    while distance < longest:
        inside = rank[distance:] >= distance
        np.maximum(times[distance:], times[:-distance].copy(), out=times[distance:], where=inside)
        distance *= 2
