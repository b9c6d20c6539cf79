"""What a lost state costs a job that looks back a day: with sealed state, without it, and beside ten minutes of log.

    python -m benchmarks.state_after_loss [--rate EVENTS_PER_SECOND] [--hours N] [--keys N]

A recorded log of 30 hours is processed up to an hour before its end and sealed there. The job then goes on for five
minutes of log, the default time between seals of a live job, and dies. The next run counts which events it reads again
until it is where the dead one was, and the time that takes, from its first step's preparation on; once it has the seal,
and once it does not. Beside it: the time that reading ten minutes of the same log takes without any state.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tidegate.job import Job, load_job
from tidegate.job.run.opening import open_run
from tidegate.job.run.run import RunHooks, RunSettings, in_this_process, run_steps
from tidegate.job.runtime.seals import FOLDER
from tidegate.job.runtime.step import Step
from tidegate.ordering import TICKS_PER_SECOND, format_time, parse_time

START = parse_time("2026-01-01T00:00:00Z")
HOUR = 3600 * TICKS_PER_SECOND
QUERIES = {
    "LAG of a day": "SELECT System.Timestamp() AS ts, k, v, LAG(v) OVER (PARTITION BY k LIMIT DURATION(hour, 24)) AS b "
    "INTO o FROM i TIMESTAMP BY t",
    "join over a day": "SELECT l.k, l.v, r.v AS w INTO o FROM i l TIMESTAMP BY t JOIN i r TIMESTAMP BY t "
    "ON l.k = r.k AND DATEDIFF(hour, l, r) BETWEEN 23 AND 24 WHERE l.v > 990 AND r.v > 990",
}


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


def run(job: Job, watch: Watch, until: int | None = None, most: int = 200_000) -> list[str]:
    """Run a job until it dies or reaches a time; return what it said."""
    notices: list[str] = []
    settings = RunSettings(max_events_per_step=most) if until is None else RunSettings(until, max_events_per_step=most)
    hooks = RunHooks(observers=[watch], notice=notices.append)
    with open_run(job) as opened:
        watch.began = time.perf_counter()
        try:
            run_steps(opened, in_this_process(job.policy), settings, hooks)
        except Died:
            return notices
    watch.seconds = time.perf_counter() - watch.began
    return notices


def measure(query: str, rate: float, hours: float, keys: int) -> tuple[list[str], list[str]]:
    """Return the rows of the table for a query, and what the runs said."""
    events, ten_minutes = round(rate * hours * 3600), round(rate * 600)
    last_hour = START + round((hours - 1) * HOUR)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        path = write_job(folder, query, events, hours, keys)
        job = load_job(path)
        run(job, Watch(lambda step, read: False), until=last_hour, most=3 * ten_minutes)
        run(job, Watch(lambda step, read: read >= ten_minutes // 2), most=ten_minutes // 20)
        (state,) = folder.glob("*.state")
        positions = json.loads((state / "journal.json").read_bytes())["positions"]
        there = sum(sum(partitions.values()) for partitions in positions.values())
        size = sum(file.stat().st_size for file in (state / FOLDER).iterdir())

        def caught_up(step: Step, read: int) -> bool:
            return sum(timeline.position for timeline in step.timelines.values()) >= there

        said: list[str] = []
        found = [f"{events:,}", f"{size / 2**20:.1f}"]
        for _ in range(2):
            watch = Watch(caught_up)
            said += run(job, watch, most=ten_minutes // 2 if not said else 200_000)
            found += [f"{watch.events:,}", f"{watch.seconds:.2f}"]
            for file in (state / FOLDER).iterdir():
                file.unlink()
        beginning = Watch(lambda step, read: read >= ten_minutes)
        (folder / "again").mkdir()
        fresh = load_job(write_job(folder / "again", query, 2 * ten_minutes, 1 / 3, keys))
        run(fresh, beginning, most=ten_minutes)
        return [*found, f"{beginning.events:,}", f"{beginning.seconds:.2f}"], said


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=10.0)
    parser.add_argument("--hours", type=float, default=30.0)
    parser.add_argument("--keys", type=int, default=10_000)
    arguments = parser.parse_args()
    console, table = Console(width=140), Table(title=f"a job that looks back a day, {arguments.rate:g} events a second")
    for heading in (
        "query",
        "events",
        "seal, MB",
        "read again with it",
        "s",
        "without",
        "s",
        "ten minutes of log",
        "s",
    ):
        table.add_column(heading, justify="left" if heading == "query" else "right")
    for name, query in QUERIES.items():
        row, said = measure(query, arguments.rate, arguments.hours, arguments.keys)
        table.add_row(name, *row)
        for line in said:
            console.print(f"{name}: {line}")
    console.print(table)


if __name__ == "__main__":
    main()
