"""What saturates first on a large cluster: a simulation from costs that are measured here.

    python -m benchmarks.cluster_simulation [EXECUTORS] [MILLION_EVENTS_PER_SECOND] [FORM …]

*Measured*, in processor time of one core. The stages of a step run in this process as executors run them: tasks,
shards, writers, and what the driver does with their answers. Steps of two sizes over two numbers of shards give a cost
for each event, and one for each blob; every task sends a blob to every shard. The bytes of blobs and of states are
counted. Java's cost of a task is that of the driver alone, with executors that are processes of their own.

*Assumed*: executors with four cores and a network of 10 Gbit/s, as many tasks and shards as a job would have
(TIDEGATE_AS_MANY_AS_CORES=1: as many as cores), evenly spread events and keys, and a log that delivers everything on
time.

*Simulated*: steps of several lengths, the load of each resource in them, and the resource that saturates first. The
stages of a step follow each other: the *path* is how long they take together, as a share of the step's length.
"""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pyspark import SparkContext
from rich.console import Console
from rich.table import Table

from benchmarks._backlog import spark_session
from benchmarks.job_substreams import TICKS_APART, MadeLog, MadeRange
from tidegate.connectors.model.events import PartitionEnd
from tidegate.engine import CATALOG, KeyedSide, Program, ResultRows
from tidegate.engine.sharding.payloads import Sharding, merged_results
from tidegate.job.runtime.emission import Completeness, StepOrder
from tidegate.job.runtime.placement import Outcome
from tidegate.job.runtime.shards import ShardInput, deliveries_of_task, new_shard, run_shard
from tidegate.job.runtime.state_store import StateStore, StoredState
from tidegate.job.runtime.step import Stepper, StepSettings
from tidegate.job.runtime.task import Task, run_task
from tidegate.job.runtime.timelines import tasks_of
from tidegate.ordering import TICKS_PER_SECOND, Policy
from tidegate.spark.executors import shards_for
from tidegate.sql import compile_query

TASKS = 8
SHARDS = (4, 32)
STEPS = (6_250, 25_000)
WARM_UP_STEPS, MEASURED_STEPS = 3, 6
KEYS = 250_000
"""Of each partition: as many as there are events, so that no task can aggregate anything."""
CORES_OF_EXECUTOR = 4
NETWORK_BYTES_PER_S = 1.25e9
STEP_LENGTHS_S = (1, 5, 30)
FROM = "FROM i TIMESTAMP BY t"
AS_MANY_AS_CORES = bool(os.environ.get("TIDEGATE_AS_MANY_AS_CORES"))


@dataclass(frozen=True)
class Form:
    """A query, and for how many seconds an event stays in its state."""

    sql: str
    held_s: float


FORMS = {
    "rows": Form(f"SELECT k, v INTO out {FROM}", 0),
    "tumbling": Form(
        f"SELECT k, COUNT(*) AS n, AVG(v) AS mean INTO out {FROM} GROUP BY k, TumblingWindow(second, 10)", 10
    ),
    "lag": Form(f"SELECT k, v - LAG(v) OVER (PARTITION BY k LIMIT DURATION(minute, 1)) AS rise INTO out {FROM}", 60),
    "join": Form(
        "SELECT l.k, l.v, r.v AS w INTO out FROM i l TIMESTAMP BY t JOIN i r TIMESTAMP BY t "
        "ON l.k = r.k AND DATEDIFF(second, l, r) BETWEEN 0 AND 1 WHERE r.v < 10",
        1,
    ),
    "chain": Form(
        f"WITH s AS (SELECT k, SUBSTRING(k, 1, 11) AS g, COUNT(*) AS n {FROM} GROUP BY k, SUBSTRING(k, 1, 11), "
        "TumblingWindow(second, 1)) SELECT g, MAX(n) AS n INTO out FROM s GROUP BY g, TumblingWindow(second, 10)",
        10,
    ),
}


class MadeLogs:
    """A log in memory with a partition for each task."""

    def __init__(self) -> None:
        self.logs = {str(number): MadeLog(KEYS, 1) for number in range(TASKS)}
        self.seconds = 0.0
        """Processor time of cutting ranges, which copies events; other logs do not."""

    def show(self, events: int) -> None:
        for log in self.logs.values():
            log.shown = events

    def ends(self) -> dict[str, PartitionEnd]:
        return {name: log.ends()["0"] for name, log in self.logs.items()}

    def first_at(self, partition: str, arrival: int) -> int:
        return self.logs[partition].first_at(partition, arrival)

    def range(self, partition: str, start: int, end: int) -> MadeRange:
        began = time.process_time()
        cut = self.logs[partition].range(partition, start, end)
        self.seconds += time.process_time() - began
        return cut

    def close(self) -> None:
        pass


@dataclass
class Costs:
    """What steps cost: processor seconds by stage, bytes sent between stages, and bytes held at their end."""

    task: float = 0
    shard: float = 0
    write: float = 0
    driver: float = 0
    sent: float = 0
    held: float = 0

    def vector(self) -> list[float]:
        return [self.task, self.shard, self.write, self.driver, self.sent, self.held]


class MeasuredShards:
    """A placement that runs each stage of a step as executors do, and notes what it costs."""

    def __init__(self, program: Program, policy: Policy, shards: int, folder: Path) -> None:
        self._program = program.sharded()
        self._policy = policy
        self.sharding = Sharding.of(self._program, shards, 1)
        self._store = StateStore(folder)
        self._version = 0
        self.costs = Costs()

    def run(self, tasks: Sequence[Task], order: StepOrder) -> Outcome:
        shards, costs = self.sharding.shards, self.costs
        began = time.process_time()
        answers: list[bytes] = []
        inboxes: list[list[bytes]] = [[] for _ in range(shards)]
        for number, task in enumerate(tasks):
            results = run_task(task, self._program, self._policy)
            stripped, deliveries = deliveries_of_task(number, results, self._program, self.sharding)
            self._send(deliveries, inboxes)
            answers.append(pickle.dumps(stripped, protocol=5))
        mapped = time.process_time()
        rows: list[ResultRows] = []
        costs.held = 0
        for level in range(self.sharding.levels):
            following: list[list[bytes]] = [[] for _ in range(shards)]
            for shard in range(shards):
                keyed, before = self._keyed(level, shard)
                inbox = [pickle.loads(blob) for blob in inboxes[shard]]
                report, deliveries = run_shard(keyed, (level, shard), self.sharding, order, inbox)
                stored = self._store.save(f"{level}-{shard}", self._version + 1, keyed.state, before)
                costs.held += stored.bytes
                rows += report.rows
                report.rows = []
                self._send(deliveries, following)
                answers.append(pickle.dumps(report, protocol=5))
            inboxes = following
        sharded = time.process_time()
        for one in merged_results(rows, self._program.output_names):
            one.to_json_lines()
        written = time.process_time()
        self._version += 1
        received = [pickle.loads(answer) for answer in answers]
        reports = [one for one in received if not isinstance(one, list)]
        outcome = Outcome(
            [result for one in received if isinstance(one, list) for result in one],
            [],
            Completeness.least(report.complete for report in reports),
            [error for report in reports for error in report.errors],
        )
        costs.task += mapped - began
        costs.shard += sharded - mapped
        costs.write += written - sharded
        costs.driver -= written - began
        return outcome

    def _send(self, deliveries: Sequence[ShardInput], inboxes: Sequence[list[bytes]]) -> None:
        for inbox, delivery in zip(inboxes, deliveries, strict=False):
            blob = pickle.dumps(delivery, protocol=5)
            self.costs.sent += len(blob)
            inbox.append(blob)

    def _keyed(self, level: int, shard: int) -> tuple[KeyedSide, StoredState | None]:
        keyed = new_shard(self._program, self._policy, self.sharding, level)
        if not self._version:
            return keyed, None
        stored = self._store.load(f"{level}-{shard}", self._version)
        keyed.state = stored.value
        return keyed, stored

    def preview(self, order: StepOrder) -> list[ResultRows]:
        return []

    def use(self, program: Program) -> None:
        self._program = program.sharded()

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class UnitCosts:
    """Costs by unit, each with a stage's figures: for an event, for a blob (task and shard), for a shard."""

    event: Costs
    blob: Costs
    shard: Costs
    levels: int
    held_per_event: float


def unit_costs(form: Form) -> UnitCosts:
    """Measure a form: steps of two sizes, over two numbers of shards."""
    program = Program.prepare(compile_query(form.sql, catalog=CATALOG))
    policy = Policy.seconds(late=5)
    logs = MadeLogs()
    known, found, levels, held = [], [], 1, 0.0
    for shards in SHARDS:
        for size in STEPS:
            with tempfile.TemporaryDirectory() as folder:
                placement = MeasuredShards(program, policy, shards, Path(folder))
                levels = placement.sharding.levels
                logs.show(0)
                stepper = Stepper(
                    program, policy, {"i": logs}, placement, settings=StepSettings(10**9, parallelism=TASKS)
                )
                for step in range(1, WARM_UP_STEPS + MEASURED_STEPS + 1):
                    if step == WARM_UP_STEPS + 1:
                        placement.costs = Costs()
                    logs.show(step * size)
                    began, cutting = time.process_time(), logs.seconds
                    stepper.step()
                    placement.costs.driver += time.process_time() - began - (logs.seconds - cutting)
                events = size * TASKS
                span_s = (WARM_UP_STEPS + MEASURED_STEPS) * size * TICKS_APART / TICKS_PER_SECOND
                # The events of the late tolerance wait as well.
                held_events = min(span_s, form.held_s + 5) * TASKS * TICKS_PER_SECOND / TICKS_APART
                held = max(held, placement.costs.held / held_events)
                known.append([events, TASKS * shards, shards])
                found.append([cost / MEASURED_STEPS for cost in placement.costs.vector()])
    solved, *_ = np.linalg.lstsq(np.array(known, dtype=float), np.array(found), rcond=None)
    per = [Costs(*np.maximum(0, row).tolist()) for row in solved]
    return UnitCosts(per[0], per[1], per[2], levels, held)


def spark_costs() -> tuple[float, float]:
    """Return the processor seconds of the driver's Java for a Spark job of two tasks, and for one more task."""
    spark = spark_session(spark_master="local-cluster[2,1,1024]")
    java = Path(f"/proc/{SparkContext._gateway.proc.pid}/stat")

    def used() -> float:
        fields = java.read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def seconds(tasks: int, jobs: int) -> float:
        began = used()
        for _ in range(jobs):
            spark.range(0, tasks, 1, tasks).write.format("noop").mode("overwrite").save()
        return (used() - began) / jobs

    seconds(400, 5)
    few, many = seconds(2, 20), seconds(402, 10)
    spark.stop()
    return few, (many - few) / 400


def loads(
    unit: UnitCosts, executors: int, rate: float, length_s: float, job_s: float, task_s: float
) -> Mapping[str, float]:
    """Return how busy each resource is in steps of a length; 1 is saturated."""
    cores = executors * CORES_OF_EXECUTOR
    events = rate * length_s
    tasks, shards = (cores, cores) if AS_MANY_AS_CORES else (tasks_of(int(events), cores), shards_for(cores))
    blobs = tasks * shards + (unit.levels - 1) * shards * shards
    spark_tasks = tasks + shards * (1 + unit.levels)

    def total(stage: str) -> float:
        per_event, per_blob, per_shard = (getattr(one, stage) for one in (unit.event, unit.blob, unit.shard))
        return float(per_event * events + per_blob * blobs + per_shard * shards)

    scheduler = job_s + spark_tasks * task_s
    driver = total("driver")
    path = total("task") / tasks + (total("shard") + total("write")) / shards + scheduler + driver
    return {
        "a step's path": path / length_s,
        "executors' cores": (total("task") + total("shard") + total("write")) / (cores * length_s),
        "executors' network": total("sent") / (executors * length_s * NETWORK_BYTES_PER_S),
        "driver: Python": driver / length_s,
        "driver: Spark's scheduler": scheduler / length_s,
    }


def main(arguments: Sequence[str]) -> int:
    """Print what an event costs in each form, and the load of each resource."""
    executors = int(arguments[0]) if arguments else 100
    rate = 1e6 * (float(arguments[1]) if len(arguments) > 1 else 10)
    job_s, task_s = spark_costs()
    costs = Table("form", "µs/event: task", "shard", "write", "µs/blob", "bytes sent/event", "/blob", "held/event")
    result = Table(
        "form", "step s", *("path", "cores", "network", "driver Python", "scheduler"), "saturates first", "memory GB"
    )
    for name in arguments[2:] or FORMS:
        unit = unit_costs(FORMS[name])
        each = unit.event
        figures = [each.task * 1e6, each.shard * 1e6, each.write * 1e6, (unit.blob.task + unit.blob.shard) * 1e6]
        costs.add_row(
            name,
            *(f"{value:.2f}" for value in figures),
            *(f"{value:.0f}" for value in (each.sent, unit.blob.sent, unit.held_per_event)),
        )
        memory = unit.held_per_event * rate * (FORMS[name].held_s + 5) / executors / 1e9
        for length_s in STEP_LENGTHS_S:
            busy = loads(unit, executors, rate, length_s, job_s, task_s)
            worst = max([*busy][1:], key=lambda resource: busy[resource])
            result.add_row(
                name,
                str(length_s),
                *(f"{load:.0%}" for load in busy.values()),
                f"{worst} ({busy[worst]:.0%})",
                f"{memory:.2f}",
            )
    console = Console(width=140)
    print(f"the driver's Java: {job_s * 1e3:.0f} ms of the processor for a job, {task_s * 1e3:.1f} ms for a task")
    console.print(costs)
    print(f"{executors} executors of {CORES_OF_EXECUTOR} cores, {rate / 1e6:g} million events per second")
    console.print(result)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
