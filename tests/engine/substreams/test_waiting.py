from unittest import mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidegate.engine.expressions.frames import Frame
from tidegate.engine.substreams import watermarks as waiting
from tidegate.engine.substreams.watermarks import SubstreamWatermarks, Waiting
from tidegate.ordering import NO_TIME, Advances, Emission

LATE = 12
MOST = 3
"""Substreams."""

rows = st.lists(st.tuples(st.integers(0, 30), st.integers(0, MOST - 1)), max_size=8)


def frame(times: list[int], substreams: list[int] | None, first: int) -> Frame:
    """Rows that know their number."""
    numbers = first + np.arange(len(times))
    of = None if substreams is None else np.array(substreams, dtype=np.int64)
    return Frame(np.array(times, dtype=np.int64), order=(numbers,), substreams=of)


def numbers_of(taken: Frame | None) -> list[int]:
    return [] if taken is None else taken.order[0].tolist()


@given(st.lists(st.tuples(rows, st.integers(-1, 31)), max_size=12), st.sampled_from([0, 4, 10]))
def test_rows_before_a_watermark_leave_once_in_the_order_they_came(
    steps: list[tuple[list[tuple[int, int]], int]], small: int
) -> None:
    held: Waiting[Frame] = Waiting()
    model: dict[int, int] = {}
    count = 0
    with mock.patch.object(waiting, "SMALL_ROWS", small):
        for times, watermark in steps:
            held.append(frame([time for time, _ in times], None, count))
            model |= {count + place: time for place, (time, _) in enumerate(times)}
            count += len(times)
            ready = [number for number, time in model.items() if time < watermark]
            assert numbers_of(held.take_before(watermark)) == ready
            for number in ready:
                del model[number]
            assert len(held) == len(model)
            # No more is kept aside than waits, and small parts are few.
            assert sum(len(part.table) for part in held.parts) <= 2 * len(model)
            assert all(len(part) for part in held.parts)


@given(st.data(), st.lists(rows, max_size=12), st.sampled_from([0, 4, 10]), st.sampled_from([None, LATE]))
def test_each_row_leaves_as_soon_as_its_substream_is_past_it(
    data: st.DataObject, steps: list[list[tuple[int, int]]], small: int, late: int | None
) -> None:
    """Looking only at the substreams that have moved finds all that looking at every row finds."""
    emission = Emission(late)
    emission.add_substreams(np.arange(MOST), 1)
    delay = data.draw(st.integers(0, 3))
    held: Waiting[Frame] = Waiting()
    model: dict[int, tuple[int, int]] = {}
    largest, arrival, count = [NO_TIME] * MOST, 0, 0
    with mock.patch.object(waiting, "SMALL_ROWS", small):
        for wanted in steps:
            # As a scan gives them out: not below the watermark of the substream, nor below the arrival less the late
            # tolerance.
            floors = [max(one, NO_TIME if late is None else arrival - late) for one in largest]
            came = [(max(time, floors[of]), of) for time, of in wanted]
            moves = []
            for time, of in came:
                if time > largest[of]:
                    largest[of] = time
                    moves.append((of, arrival, time))
            emission.add_advances(
                0,
                Advances(*(np.array(column, dtype=np.int64) for column in zip(*moves, strict=True)))
                if moves
                else NOTHING,
            )
            held.append(frame([time for time, _ in came], [of for _, of in came], count))
            model |= {count + place: row for place, row in enumerate(came)}
            count += len(came)
            arrival += data.draw(st.integers(0, 9), label="forward")
            emission.advance(arrival)
            watermarks = SubstreamWatermarks(emission).less(delay)
            until = watermarks.until(np.arange(MOST)).tolist()
            ready = [number for number, (time, of) in model.items() if time < until[of]]
            assert numbers_of(held.take_before(watermarks)) == ready
            for number in ready:
                del model[number]


NOTHING = Advances(*(np.empty(0, dtype=np.int64) for _ in range(3)))
