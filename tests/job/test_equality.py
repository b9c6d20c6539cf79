"""Equality over many logs: output = f(log, query, policy, start), with everything at once.

Each log is drawn from a seed: one or two inputs of one to three partitions with all rules active, substreams, idle
stretches with the hub's promises, malformed events and ties to the tick; a query of some family; a policy; cuts into
steps, batches and tasks, restarts, and a later start. TIDEGATE_EQUALITY_LOGS says how many logs are tried, and
TIDEGATE_EQUALITY_SEED tries one alone: a failure names its seed.
"""

from __future__ import annotations

import json
import os
import random

from tests.job.logs import EPOCH, Cuts, outputs_in_cuts, outputs_of_one_step, prepared, runner_of
from tests.job.test_step import QUERIES as PLAIN
from tests.job.test_substreams import QUERIES as BY_SUBSTREAM
from tests.job.test_substreams import TWO_INPUTS
from tidegate.engine import Program
from tidegate.job.recorded import RecordedEvent, RecordedLog
from tidegate.job.step import Stepper
from tidegate.ordering import NO_TIME, TICKS_PER_SECOND, Policy, format_time

LOGS = int(os.environ.get("TIDEGATE_EQUALITY_LOGS", "40"))
ONE_SEED = os.environ.get("TIDEGATE_EQUALITY_SEED")
QUERIES = [*PLAIN.values(), *BY_SUBSTREAM.values(), *BY_SUBSTREAM.values(), *TWO_INPUTS.values()]
_HALF = TICKS_PER_SECOND // 2
_prepared: dict[str, Program] = {}


def test_any_cut_restart_start_and_number_of_tasks_gives_the_same() -> None:
    seeds = range(LOGS) if ONE_SEED is None else [int(ONE_SEED)]
    for seed in seeds:
        try:
            _try(random.Random(seed))
        except Exception as error:
            raise AssertionError(f"TIDEGATE_EQUALITY_SEED={seed} shows it again") from error


def _try(dice: random.Random) -> None:
    sql = dice.choice(QUERIES)
    program = _prepared.setdefault(sql, prepared(sql))
    logs = {name: _log(dice) for name in program.input_names}
    policy = _policy(dice)
    whole = outputs_of_one_step(program, policy, logs)
    assert outputs_in_cuts(program, policy, logs, _cuts(dice)) == whole
    start = EPOCH + dice.randint(-5, 60) * TICKS_PER_SECOND + dice.randint(-1, 1)
    assert _lines(program, policy, logs, start) == _lines(program, policy, logs, NO_TIME, since=start)


def _lines(
    program: Program, policy: Policy, logs: dict[str, RecordedLog], start: int, since: int = NO_TIME
) -> dict[str, list[bytes]]:
    found = {}
    for rows in Stepper(program, policy, dict(logs), runner_of(program, policy), start=start).step().rows:
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


def _log(dice: random.Random) -> RecordedLog:
    partitions = dice.randint(1, 3)
    clock, events = EPOCH, []
    for _ in range(dice.randint(0, 45)):
        clock += dice.choice([0, 0, 0, 1, _HALF, _HALF, TICKS_PER_SECOND, 2 * TICKS_PER_SECOND, 25 * TICKS_PER_SECOND])
        usual = dice.randint(-2, 12) * _HALF + dice.choice([0, 0, 0, -1, 1])
        tolerances = [10**8, -3 * 10**9, -2 * 10**7, 36 * 10**9, -36 * 10**9]
        lateness = usual if dice.random() < 0.85 else dice.choice(tolerances) + dice.randint(-1, 1)
        body = {"t": format_time(clock - lateness), "k": dice.choice("abcd"), "v": dice.choice([-1, 0, 2.5, "7", None])}
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
                encoded = json.dumps({"k": "a"}).encode()
        events.append(RecordedEvent(str(dice.randrange(partitions)), clock, encoded))
    return RecordedLog(events)
