"""What a lost state costs, from sealed state and from the log, in a process and on Spark, and what was estimated.

    python -m benchmarks.state_after_loss [--master URL] [--rate EVENTS_PER_SECOND] [--hours N] [--keys N] [FORM …]

A recorded log of 30 hours is processed up to an hour before its end and sealed there. The job then goes on for five
minutes of log, the default time between seals of a live job, and dies. The next runs count which events they read again
until they are where the dead one was, and the time that takes, from its first step's preparation on: one from the seal,
whatever is estimated, and one from the log. Beside each time is what it was estimated to be. Beside both: the time that
reading ten minutes of the same log takes without any state. With `--master`, all runs are on Spark, which has started
before the time begins.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

from rich.console import Console
from rich.table import Table

from tidegate.job import Job, load_job
from tidegate.job.config.spark_settings import SparkSettings, WhereRun
from tidegate.job.run.opening import open_run
from tidegate.job.run.run import RunHooks, RunSettings, in_this_process, run_steps
from tidegate.job.runtime.seals import FOLDER, RecoveryCosts
from tidegate.job.runtime.step import Step
from tidegate.ordering import END_OF_TIME, TICKS_PER_SECOND, format_time, parse_time

START = parse_time("2026-01-01T00:00:00Z")
HOUR = 3600 * TICKS_PER_SECOND
QUERIES = {
    "lag": "SELECT System.Timestamp() AS ts, k, v, LAG(v) OVER (PARTITION BY k LIMIT DURATION(hour, 24)) AS b "
    "INTO o FROM i TIMESTAMP BY t",
    "join": "SELECT l.k, l.v, r.v AS w INTO o FROM i l TIMESTAMP BY t JOIN i r TIMESTAMP BY t "
    "ON l.k = r.k AND DATEDIFF(hour, l, r) BETWEEN 23 AND 24 WHERE l.v > 990 AND r.v > 990",
    "join of all": "SELECT l.k, l.v, r.v AS w INTO o FROM i l TIMESTAMP BY t JOIN i r TIMESTAMP BY t "
    "ON l.k = r.k AND DATEDIFF(hour, l, r) BETWEEN 23 AND 24 AND l.v = r.v",
    "count": "SELECT System.Timestamp() AS ts, COUNT(*) AS n INTO o FROM i TIMESTAMP BY t "
    "GROUP BY TumblingWindow(day, 1)",
}
"""By form: what looks back a day with a row of each key, one row in a hundred, all rows, and a number."""


class Died(Exception):
    """The process is gone; nothing of the run is finished."""


@dataclass
class Watch:
    """Follows a run up to a time of the log or a position, and then lets it die."""

    stops: Callable[[Step, int], bool]
    events: int = 0
    began: float = 0.0
    seconds: float = 0.0

    def __call__(self, step: Step, *others: Mapping[str, object]) -> None:
        self.events += step.events
        if self.stops(step, self.events):
            self.seconds = time.perf_counter() - self.began
            raise Died


def write_job(folder: Path, query: str, events: int, hours: float, keys: int) -> Path:
    """Write a job and its log."""
    dice, gap = random.Random(1), round(hours * HOUR / events)
    with (folder / "log.jsonl").open("w", encoding="utf-8") as log:
        for number in range(events):
            arrival = START + number * gap
            times = f'"arrival":"{format_time(arrival)}","body":{{"t":"{format_time(arrival - dice.randrange(10**7))}"'
            body = f'"k":{dice.randrange(keys)},"v":{dice.randrange(1000)}}}'
            log.write(f'{{"partition":{number % 2},{times},{body}}}\n')
    path = folder / "job.toml"
    path.write_text(
        f'name = "loss"\nquery = """{query}"""\n[event_ordering]\nlate_arrival_tolerance_s = 5\n[inputs.i]\n'
        'type = "recorded"\npath = "log.jsonl"\n[outputs.o]\ntype = "file"\npath = "o.jsonl"\n',
        encoding="utf-8",
    )
    return path


@dataclass(frozen=True)
class Runs:
    """Runs of a job in this process, or on a master of Spark."""

    job: Job
    master: str | None

    def run(self, watch: Watch, until: int = END_OF_TIME, most: int = 200_000) -> list[str]:
        """Run until it dies or reaches a time; return what was said."""
        notices: list[str] = []
        settings = RunSettings(until, max_events_per_step=most)
        hooks = RunHooks(observers=[watch], notice=notices.append)
        with open_run(self.job) as opened, contextlib.ExitStack() as started:
            places = in_this_process(self.job.policy)
            if self.master is not None:
                from tidegate.spark.run import SparkPlacements

                wanted = SparkSettings(master=self.master, placement=WhereRun.SPARK)
                spark = SparkPlacements(self.job, opened, wanted, started, lambda address: None)
                places, settings = spark.of_run(), replace(settings, parallelism=spark.parallelism)
            watch.began = time.perf_counter()
            with contextlib.suppress(Died):
                run_steps(opened, places, settings, hooks)
                watch.seconds = time.perf_counter() - watch.began
        return notices


def measure(query: str, rate: float, hours: float, keys: int, master: str | None) -> tuple[list[str], list[str]]:
    """Return the rows of the table for a query, and what the runs said."""
    events, ten_minutes = round(rate * hours * 3600), round(rate * 600)
    last_hour = START + round((hours - 1) * HOUR)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        path = write_job(folder, query, events, hours, keys)
        runs = Runs(load_job(path), master)
        runs.run(Watch(lambda step, read: False), until=last_hour, most=3 * ten_minutes)
        runs.run(Watch(lambda step, read: read >= ten_minutes // 2), most=ten_minutes // 20)
        (state,) = folder.glob("*.state")
        positions = json.loads((state / "journal.json").read_bytes())["positions"]
        there = sum(sum(partitions.values()) for partitions in positions.values())
        size = sum(file.stat().st_size for file in (state / FOLDER).iterdir())

        def caught_up(step: Step, read: int) -> bool:
            return sum(timeline.position for timeline in step.timelines.values()) >= there

        estimates: list[RecoveryCosts] = []
        estimate = RecoveryCosts.of

        def seal_in_any_case(*given: object) -> RecoveryCosts:
            estimates.append(estimate(*given))
            return RecoveryCosts(1.0, 0.0)

        said: list[str] = []
        found = [f"{events:,}", f"{size / 2**20:.1f}"]
        for _ in range(2):
            watch = Watch(caught_up)
            with mock.patch.object(RecoveryCosts, "of", seal_in_any_case):
                said += runs.run(watch, most=ten_minutes // 2 if not said else 200_000)
            estimated = estimates[0].log_s if len(found) > 2 else estimates[0].seal_s
            found += [f"{watch.events:,}", f"{watch.seconds:.2f}", f"{estimated:.2f}"]
            for file in (state / FOLDER).iterdir():
                file.unlink()
        beginning = Watch(lambda step, read: read >= ten_minutes)
        (folder / "again").mkdir()
        fresh = Runs(load_job(write_job(folder / "again", query, 2 * ten_minutes, 1 / 3, keys)), master)
        fresh.run(beginning, most=ten_minutes)
        return [*found, f"{beginning.events:,}", f"{beginning.seconds:.2f}"], said


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--master")
    parser.add_argument("--rate", type=float, default=10.0)
    parser.add_argument("--hours", type=float, default=30.0)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("forms", nargs="*", metavar="FORM", help=", ".join(QUERIES))
    arguments = parser.parse_args()
    title = f"a job that looks back a day, {arguments.rate:g} events a second, {arguments.master or 'in a process'}"
    console, table = Console(width=140), Table(title=title)
    for heading in (
        "form",
        "events",
        "seal, MB",
        "read again with it",
        "s",
        "estimated",
        "without",
        "s",
        "estimated",
        "ten minutes of log",
        "s",
    ):
        table.add_column(heading, justify="left" if heading == "form" else "right")
    for name in arguments.forms or QUERIES:
        row, said = measure(QUERIES[name], arguments.rate, arguments.hours, arguments.keys, arguments.master)
        table.add_row(name, *row)
        for line in said:
            console.print(f"{name}: {line}")
    console.print(table)


if __name__ == "__main__":
    main()
