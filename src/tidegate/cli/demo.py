"""`tidegate demo`: the whole of it on one machine, in about a minute.

A hub, a toll road that publishes to it with Microsoft's own client, a job that counts cars, the same job again cut into
other steps, and a picture of what the watermark did. It reads from top to bottom as what happens.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from types import FrameType

import click
from azure.eventhub import EventData, EventHubProducerClient
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tidegate.cli.processes import ask_to_stop, own_group
from tidegate.cli.tollbooth import CAMERAS, Crossing, traffic
from tidegate.cli.up import READY
from tidegate.job import JobError, StepReport, load_job
from tidegate.job.analysis.replay_source import open_replay_source
from tidegate.job.analysis.stretch_picture import stretch_svg
from tidegate.job.config.spark_settings import SparkSettings, WhereRun
from tidegate.ordering import format_time
from tidegate.spark import end_java, run_job_on_spark

HUB = "tolls"
PARTITIONS = 4
WINDOW_S = 5
QUERY = """\
SELECT System.Timestamp() AS window_end, booth, COUNT(*) AS cars, AVG(speed) AS avg_speed
INTO results
FROM tolls TIMESTAMP BY entry_time
GROUP BY booth, TumblingWindow(second, 5)"""
JOB = """\
# The job that `tidegate demo` runs; `tidegate job run {file}` runs it again while its hub is up.
name = "{name}"
query = \"\"\"
{query}
\"\"\"

[event_ordering]
late_arrival_tolerance_s = 5
out_of_order_tolerance_s = 2
action = "adjust"

[inputs.tolls]
type = "eventhub"
connection_string = "{connection_string};EntityPath=tolls"

[outputs.results]
type = "file"
path = "{results}"
"""

console = Console(highlight=False, soft_wrap=True)


@click.command()
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("demo"),
    show_default=True,
    help="Where data, jobs, results and the picture go; what an earlier run left is moved to its folder 'previous'.",
)
@click.option(
    "--seconds",
    type=click.IntRange(20, 600),
    default=30,
    show_default=True,
    help="How long cars pass on the toll road.",
)
def demo(folder: Path, seconds: int) -> None:
    """See it work: hub, publishers, a job and its proof.

    Everything happens on loopback, ends by itself and leaves nothing running.

    \b
    Example:
      tidegate demo
    """
    began = time.monotonic()
    _make_fresh(folder)
    with _stop_on_sigterm(), _hub(folder) as connection_string:
        _heading("1. The hub is up", f"its log is in {folder / 'data'}")
        console.print(f"   {connection_string}")

        version = importlib.metadata.version("azure-eventhub")
        _heading("2. Eight cameras at four booths publish", f"azure-eventhub {version}, partition keys, batches")
        _publish(connection_string, seconds)

        _heading("3. A job on Spark", "each result leaves when the watermark has passed it")
        console.print(f"[cyan]{_indented(QUERY)}[/cyan]")
        _run(folder, "tolls", connection_string, "local[2]", max_events_per_step=400, show=True)

        _heading("4. The same job again over the same log", "other steps, one core in place of two")
        _run(folder, "tolls-again", connection_string, "local[1]", max_events_per_step=150, show=False)
        _compare(folder / "tolls.jsonl", folder / "tolls-again.jsonl")

        _heading("5. What the watermark did", "event time against arrival")
        _draw(folder)
        end_java()
    port = connection_string.partition(";")[0].rpartition(":")[2]
    console.print(
        f"\nDone in {time.monotonic() - began:.0f} s; nothing is left running. The same hub again, to look around:"
    )
    console.print(f"   tidegate up --config {folder / 'Config.json'} --data {folder / 'data'} --amqp-port {port}")


# -- 1. the hub --------------------------------------------------------------------------------------------------------


def _make_fresh(folder: Path) -> None:
    """An empty folder; what was in it is now in its folder `previous`, in place of what was there before."""
    previous = folder / "previous"
    shutil.rmtree(previous, ignore_errors=True)
    left = list(folder.iterdir()) if folder.exists() else []
    previous.mkdir(parents=True)
    for path in left:
        path.rename(previous / path.name)


@contextmanager
def _hub(folder: Path) -> Iterator[str]:
    """Run `tidegate up` in its own process and yield its connection string; it is always stopped at the end."""
    config = folder / "Config.json"
    entities = [{"Name": HUB, "PartitionCount": PARTITIONS, "ConsumerGroups": []}]
    namespace = {"Type": "EventHub", "Name": "demo", "Entities": entities}
    content = {"UserConfig": {"NamespaceConfig": [namespace], "LoggingConfig": {"Type": "File"}}}
    config.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "tidegate", "up", "--config", str(config), "--data", str(folder / "data")]
    # A session of its own: Ctrl-C is for the demo, which then stops the hub when the job has let go of it.
    process = subprocess.Popen(
        [*command, "--amqp-port", "0"], stdout=subprocess.PIPE, text=True, encoding="utf-8", **own_group()
    )
    try:
        yield _connection_string(process)
    finally:
        ask_to_stop(process)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _connection_string(process: subprocess.Popen[str]) -> str:
    found = ""
    assert process.stdout is not None
    for line in process.stdout:
        if "Endpoint=" in line:
            found = line[line.index("Endpoint=") :].strip()
        if READY in line:
            return found.rstrip(";")
    raise click.ClickException("the hub did not come up; see its messages above")


# -- 2. the publishers -------------------------------------------------------------------------------------------------


def _publish(connection_string: str, seconds: int) -> None:
    """Publish the road's traffic as it gets through, then wait until the clock is past the last window's end."""
    crossings = traffic(duration_s=seconds)
    opened = datetime.now(UTC)
    columns = (
        TextColumn("   {task.description}"),
        BarColumn(bar_width=40),
        MofNCompleteColumn(),
        TextColumn("events"),
        TimeElapsedColumn(),
    )
    producer = EventHubProducerClient.from_connection_string(connection_string, eventhub_name=HUB)
    with producer, Progress(*columns, console=console) as progress:
        bar = progress.add_task("publishing", total=len(crossings))
        sent = 0
        while sent < len(crossings):
            now_s = _seconds_since(opened)
            ready = sent
            while ready < len(crossings) and crossings[ready].sent_s <= now_s:
                ready += 1
            _send(producer, crossings[sent:ready], opened)
            sent = ready
            progress.update(bar, completed=sent)
            time.sleep(0.1)
    furthest_clock_s = max(camera.skew_s for camera in CAMERAS)
    last_window_s = math.ceil(seconds + furthest_clock_s) + WINDOW_S
    with console.status("   the road is closed; waiting for the clock to pass the last window"):
        time.sleep(max(0.0, last_window_s - _seconds_since(opened)))


def _send(producer: EventHubProducerClient, crossings: list[Crossing], opened: datetime) -> None:
    """One batch for each booth; its name is the partition key, so that a booth's events stay in order."""
    by_booth = groupby(sorted(crossings, key=lambda crossing: crossing.booth), lambda crossing: crossing.booth)
    for booth, of_booth in by_booth:
        batch = producer.create_batch(partition_key=booth)
        for crossing in of_booth:
            batch.add(EventData(crossing.body(opened)))
        producer.send_batch(batch)


def _seconds_since(moment: datetime) -> float:
    return (datetime.now(UTC) - moment).total_seconds()


# -- 3. and 4. the job -------------------------------------------------------------------------------------------------


def _run(folder: Path, name: str, connection_string: str, master: str, *, max_events_per_step: int, show: bool) -> None:
    """Write the job's file and run it, as `tidegate job run --until-caught-up` does."""
    path = folder / f"{name}.toml"
    text = JOB.format(file=path, name=name, query=QUERY, connection_string=connection_string, results=f"{name}.jsonl")
    path.write_text(text, encoding="utf-8")
    table = _ResultTable() if show else None
    with console.status("   Spark is starting …") as status:

        def on_step(report: StepReport) -> None:
            status.update(f"   step {report.number}, watermark {_clock(report.step.watermark)}")
            if table is not None:
                table.add(report)

        summary = run_job_on_spark(
            load_job(path),
            spark=SparkSettings(placement=WhereRun.SPARK),
            master=master,
            until_caught_up=True,
            max_events_per_step=max_events_per_step,
            on_step=on_step,
        )
    totals = summary.totals
    console.print(
        f"   {totals['Input Sources Received']:,} events in {summary.steps} steps of at most {max_events_per_step}, "
        f"{totals['Output Events']} results; {totals['Input Deserialization Errors']} events could not be read"
    )


class _ResultTable:
    """Prints each result as it comes out, with where the watermark was and what had been counted by then."""

    def __init__(self) -> None:
        console.print(
            "\n   [bold]window_end  booth   cars  avg_speed[/bold]   [dim]watermark     early  late  out of order[/dim]"
        )

    def add(self, report: StepReport) -> None:
        counted = [report.totals[f"{kind} Events"] for kind in ("Early Input", "Late Input", "Out-of-Order")]
        beside = "{:<12}  {:>5}  {:>4}  {:>12}".format(_clock(report.step.watermark), *counted)
        for rows in report.step.rows:
            for row in rows.to_dicts():
                console.print(
                    f"   {row['window_end'][11:19]:<10}  {row['booth']:<6}  {row['cars']:>4}  {row['avg_speed']:>9.2f}"
                    f"   [dim]{beside}[/dim]"
                )


def _clock(ticks: int) -> str:
    """The time of day to the millisecond, in UTC."""
    return format_time(ticks)[11:23]


def _compare(first: Path, second: Path) -> None:
    """Say that two outputs are the same bytes.

    Raises:
        JobError: they are not; the message says where.
    """
    one, other = first.read_bytes(), second.read_bytes()
    if one == other and one:
        console.print(
            f"   [bold green]identical byte for byte[/bold green]: {first} and {second}, "
            f"{len(one):,} bytes, {one.count(10)} results"
        )
        return
    lines, other_lines = one.splitlines(), other.splitlines()
    pairs = enumerate(zip(lines, other_lines, strict=False), start=1)
    at = next((number for number, (a, b) in pairs if a != b), min(len(lines), len(other_lines)) + 1)
    shown = [of[at - 1].decode() if at <= len(of) else "(ends before)" for of in (lines, other_lines)]
    raise JobError(
        f"the two outputs differ at line {at}:\n  {first}: {shown[0]}\n  {second}: {shown[1]}"
        if one or other
        else f"{first} and {second} are both empty"
    )


# -- 5. the picture ----------------------------------------------------------------------------------------------------


def _draw(folder: Path) -> None:
    """Draw the log with each event's fate and each partition's watermark, as `tidegate job picture` does."""
    with open_replay_source(folder / "tolls.toml") as source:
        svg = stretch_svg(source, title="Toll road: what became of each event, and the watermark of each partition")
    path = folder / "watermark.svg"
    path.write_text(svg, encoding="utf-8")
    console.print(f"   {path}")


# -- how it looks and how it ends --------------------------------------------------------------------------------------


def _heading(title: str, more: str) -> None:
    console.print(f"\n[bold]{title}[/bold] [dim]· {more}[/dim]")


def _indented(text: str) -> str:
    return "\n".join(f"   {line}" for line in text.splitlines())


@contextmanager
def _stop_on_sigterm() -> Iterator[None]:
    """SIGTERM ends the demo as Ctrl-C does: through every `finally`, so that nothing is left running."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
