"""One example of the equality property, drawn from a seed: a log with everything at once, and ways to run a job on it.

One or two inputs of one to three partitions with all rules active, substreams, idle stretches with the hub's promises
or with estimates that overshoot, malformed events and ties to the tick; a query of some family; a policy; cuts into
steps, batches and tasks, restarts, and a later start.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tests.job.estimates import outputs_by_estimate, with_ticks
from tests.job.logs import EPOCH, Cuts, TravellingTasks, outputs_in_cuts, outputs_of_one_step, prepared
from tests.job.random_queries import KEYS, random_query
from tests.job.runtime.test_step import QUERIES as PLAIN
from tests.job.sharded import ShardsHere
from tests.job.test_substreams import QUERIES as BY_SUBSTREAM
from tests.job.test_substreams import TWO_INPUTS
from tidegate.connectors.inputs.recorded import RecordedEvent, RecordedLog
from tidegate.connectors.inputs.ticks import Ticks
from tidegate.connectors.model.events import InputLog
from tidegate.engine import Program
from tidegate.job.runtime.placement import Placement
from tidegate.job.runtime.step import Progress, Stepper
from tidegate.ordering import NO_TIME, TICKS_PER_SECOND, Policy, format_time

QUERIES = [*PLAIN.values(), *BY_SUBSTREAM.values(), *BY_SUBSTREAM.values(), *TWO_INPUTS.values()]
_HALF = TICKS_PER_SECOND // 2
_prepared: dict[str, Program] = {}


PlacementOf = Callable[[Program, Policy, int, int], Placement]
"""Returns a new placement of a program, given a number of shards and a seed of their hashes."""


class Drawn(NamedTuple):
    """A job at random."""

    program: Program
    logs: dict[str, InputLog]
    policy: Policy


def drawn(dice: random.Random) -> Drawn:
    """Return a query of some family, a log for each of its inputs, and a policy."""
    sql = random_query(dice) if dice.random() < 0.5 else dice.choice(QUERIES)
    program = _prepared.setdefault(sql, prepared(sql))
    keys = dice.choice(KEYS)
    return Drawn(program, {name: _log(dice, keys) for name in program.input_names}, _policy(dice))


def check(seed: int, placement_of: PlacementOf = ShardsHere) -> None:
    """Whatever is computed in cuts, and by shards, is what one look in this process gives.

    Raises:
        AssertionError: it is not; the message has the seed.
    """
    try:
        _check(random.Random(seed), placement_of)
    except Exception as error:
        raise AssertionError(f"TIDEGATE_EQUALITY_SEED={seed} shows it again") from error


def _check(dice: random.Random, placement_of: PlacementOf) -> None:
    program, logs, policy = drawn(dice)
    cuts = _cuts(dice)
    start = EPOCH + dice.randint(-5, 60) * TICKS_PER_SECOND + dice.randint(-1, 1)
    whole = outputs_of_one_step(program, policy, logs)
    assert outputs_in_cuts(program, policy, logs, cuts) == whole
    shards, hash_seed = dice.randint(1, 4), dice.getrandbits(64)
    sharded = outputs_in_cuts(
        program, policy, logs, cuts, placement=lambda: placement_of(program, policy, shards, hash_seed)
    )
    assert sharded == whole, f"{shards} shards"
    _check_start(program, policy, with_ticks(logs, Ticks()), start)

    outputs, ticks = outputs_by_estimate(program, policy, logs, cuts, dice)
    ticked = with_ticks(logs, ticks)
    assert outputs == _joined(_lines(program, policy, ticked, NO_TIME))
    _check_start(program, policy, ticked, start)


def _check_start(program: Program, policy: Policy, logs: dict[str, InputLog], start: int) -> None:
    assert _lines(program, policy, logs, start) == _lines(program, policy, logs, NO_TIME, since=start)


def _joined(lines: dict[str, list[bytes]]) -> dict[str, bytes]:
    return {output: b"".join(line + b"\n" for line in of_output) for output, of_output in lines.items()}


def _lines(
    program: Program, policy: Policy, logs: dict[str, InputLog], start: int, since: int = NO_TIME
) -> dict[str, list[bytes]]:
    """The results from an output start time on, in one look, those since a time."""
    found = {}
    for rows in Stepper(program, policy, logs, TravellingTasks(program, policy), Progress(start)).step().rows:
        lines = zip(rows.timestamps.tolist(), rows.to_json_lines().splitlines(), strict=True)
        if kept := [line for time, line in lines if time >= since]:
            found[rows.output] = kept
    return found


def _policy(dice: random.Random) -> Policy:
    return Policy.seconds(
        early=dice.choice([300, 300, 300, 2, 0, None]),
        late=dice.choice([10, 5, 5, 0, 3600, -1]),
        out_of_order=dice.choice([0, 0, 1, 2, 30]),
        action=dice.choice(["adjust", "drop"]),
        merged=dice.random() < 0.15,
    )


def _cuts(dice: random.Random) -> Cuts:
    return Cuts(
        clocks=[EPOCH + dice.randint(0, 200) * _HALF + dice.randint(-1, 1) for _ in range(dice.randint(0, 8))],
        max_events_per_step=dice.randint(1, 20),
        batch_events=dice.randint(1, 9),
        parallelism=dice.randint(1, 4),
        restart_after=frozenset(dice.randint(0, 14) for _ in range(dice.randint(0, 4))),
    )


def _log(dice: random.Random, keys: Sequence[Any]) -> RecordedLog:
    partitions = dice.randint(1, 3)
    clock, events = EPOCH, []
    for _ in range(dice.randint(0, 45)):
        clock += dice.choice([0, 0, 0, 1, _HALF, _HALF, TICKS_PER_SECOND, 2 * TICKS_PER_SECOND, 25 * TICKS_PER_SECOND])
        usual = dice.randint(-2, 12) * _HALF + dice.choice([0, 0, 0, -1, 1])
        tolerances = [10**8, -3 * 10**9, -2 * 10**7, 36 * 10**9, -36 * 10**9]
        lateness = usual if dice.random() < 0.85 else dice.choice(tolerances) + dice.randint(-1, 1)
        body = {"t": format_time(clock - lateness), "k": dice.choice(keys), "v": dice.choice([-1, 0, 2.5, "7", None])}
        encoded = json.dumps(body).encode()
        match dice.randrange(30):
            case 0:
                encoded = b"{broken"
            case 1:
                encoded = json.dumps({**body, "t": "not a time"}).encode()
            case 2:
                encoded = json.dumps({**body, "k": None}).encode()
            case 3:
                encoded = json.dumps([body, {**body, "v": 1}]).encode()
            case 4:
                encoded = json.dumps({"k": keys[0]}).encode()
        events.append(RecordedEvent(str(dice.randrange(partitions)), clock, encoded))
    return RecordedLog(events)
