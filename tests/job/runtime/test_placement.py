"""What a placement counts and measures does not depend on where its shards are."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from tests.job.logs import TravellingTasks
from tests.job.runtime.test_watermark_blockers import at
from tests.job.sharded import ShardsHere
from tests.sql.compiling import compile_query
from tidegate.connectors.inputs.recorded import RecordedEvent, RecordedLog
from tidegate.engine import KeyedSide, OperatorRows, Program
from tidegate.job import Stepper
from tidegate.job.analysis.query_plan import plan_of
from tidegate.job.runtime import placement
from tidegate.job.runtime.placement import DriverPlacement, StateSizes
from tidegate.job.runtime.sealing import SealFolder
from tidegate.job.runtime.step import StepSettings
from tidegate.ordering import Policy

POLICY = Policy.seconds(late=5)
QUERY = """
WITH counted AS (
  SELECT k, COUNT(*) AS n FROM i WHERE v > 0 GROUP BY k, TumblingWindow(second, 10) HAVING COUNT(*) < 3
)
SELECT n, LAG(k) OVER (PARTITION BY n LIMIT DURATION(minute, 1)) AS before INTO changes FROM counted
"""
EVENTS = [("a", 1), ("a", 1), ("b", 0), ("b", 2), ("c", 3), ("c", 3), ("c", 3)]


def counted(shards: int, events_a_step: int) -> OperatorRows:
    program = Program.prepare(compile_query(QUERY))
    log = RecordedLog(
        [RecordedEvent("0", at(n), json.dumps({"k": k, "v": v}).encode()) for n, (k, v) in enumerate(EVENTS, start=1)]
    )
    here = ShardsHere(program, POLICY, shards, seed=1) if shards else TravellingTasks(program, POLICY)
    stepper = Stepper(program, POLICY, {"i": log}, here, settings=StepSettings(events_a_step))
    total, complete = OperatorRows(), False
    while not complete:
        step = stepper.step()
        total.add(step.operator_rows)
        complete = step.complete
    return total


@pytest.mark.parametrize("shards", [0, 1, 3])
@pytest.mark.parametrize("events_a_step", [2, 100])
def test_operators_count_the_rows_that_they_take_and_release(shards: int, events_a_step: int) -> None:
    found = counted(shards, events_a_step)
    # Six events pass the first filter and make three groups; the count of one is left out by the second.
    assert +found.taken == {(0, 0): 6, (1, 0): 2}
    assert +found.released == {0: 3, 1: 2}


def test_a_plan_names_operators_by_the_numbers_of_their_counts() -> None:
    query = compile_query(QUERY)
    texts: dict[int, str] = {}
    waiting = [node for _, node in plan_of(query).outputs]
    while waiting:
        node = waiting.pop()
        waiting += node.sources
        if node.operator is not None:
            texts[node.operator] = node.text
    assert [texts[number].split()[0] for number in sorted(texts)] == ["group", "over"]
    program = Program.prepare(query)
    assert [type(one).__name__ for one in program.operators] == ["PanesOperator", "TemporalOperator"]


def test_sizes_are_measured_by_operator_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    keyed = KeyedSide(Program.prepare(compile_query(QUERY)))
    sizes = StateSizes()
    sizes.see(keyed)
    assert (sizes.total, sizes.operators) == (0, {})
    monkeypatch.setattr(placement, "MEASURE_EVERY_S", -1.0)
    sizes.see(keyed)
    assert sizes.operators.keys() == {0, 1}
    assert sizes.total > sum(sizes.operators.values()) > 0


def test_what_a_killed_run_left_on_the_local_disk_is_deleted_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(disk))
    program = Program.prepare(compile_query(QUERY))

    def placement_that_seals(job: str) -> DriverPlacement:
        placement = TravellingTasks(program, POLICY)
        placement.seal(SealFolder(tmp_path / job / "sealed"))
        return placement

    placement_that_seals("one")
    (left,) = disk.iterdir()
    other = placement_that_seals("other")
    again = placement_that_seals("one")
    assert not left.exists()
    assert len([*disk.iterdir()]) == 2
    again.close()
    other.close()
    assert not [*disk.iterdir()]
