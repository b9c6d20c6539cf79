"""Answer questions about time: what became of an event, what holds results up, how the watermark moved."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from tidegate.cli.job.options import FROM_TIME, REPLAY_SOURCE, TEXT_OR_JSON, TO_TIME, optional_time
from tidegate.cli.output import table
from tidegate.job.analysis.event_explanation import ExplainedEvent, explain_events, sample
from tidegate.job.analysis.replay import fresh_look
from tidegate.job.analysis.replay_source import ReplaySource, is_case, open_replay_source
from tidegate.job.analysis.stretch_picture import stretch_svg
from tidegate.job.config.definition import read_definition
from tidegate.job.run.status import read_status
from tidegate.ordering import short_time

_MOST_OF_A_BODY = 200


@click.command()
@REPLAY_SOURCE
@click.option("--input", "input_name", metavar="NAME", help="The input; not needed where there is only one.")
@click.option("--partition", metavar="P", help="The partition; not needed where there is only one.")
@click.option(
    "--sequence-number", metavar="N", type=click.IntRange(0), help="The event, by its number in the partition."
)
@click.option(
    "--sample", "count", metavar="COUNT", type=click.IntRange(1), help="Events that a rule adjusted or dropped."
)
@FROM_TIME
@TO_TIME
@click.option(
    "-o", "output", type=TEXT_OR_JSON, default="text", show_default=True, help="Text for people, or a JSON line each."
)
def explain(
    path: Path,
    input_name: str | None,
    partition: str | None,
    sequence_number: int | None,
    count: int | None,
    from_time: str | None,
    to_time: str | None,
    output: str,
) -> None:
    """Explain what happened to an event, and why.

    Shows which rule affected it, its times before and after, where the watermark was, which windows it went to, or
    why it was lost. This is computed from the log as the job would; the job need not be running, and nothing is
    written. JOB is a job file or a case file.

    \b
    Example:
      tidegate job explain tolls.toml --partition 2 --sequence-number 1043
      tidegate job explain tolls.toml --sample 5
    """
    if (sequence_number is None) == (count is None):
        raise click.UsageError("give either --sequence-number (one event) or --sample (several events)")
    first, stop = optional_time("--from", from_time), optional_time("--to", to_time)
    shown = False
    with open_replay_source(path) as source:
        if output == "text":
            click.echo(f"{source.name}: {source.policy.describe()}")
        for event in _chosen(source, input_name, partition, sequence_number, count, first, stop):
            shown = True
            click.echo(
                json.dumps(event.as_json(), ensure_ascii=False) if output == "json" else "\n" + _event_text(event)
            )
    if not shown and output == "text":
        click.echo("no rule has affected an event here, and none was lost")


def _chosen(
    source: ReplaySource,
    input_name: str | None,
    partition: str | None,
    sequence_number: int | None,
    count: int | None,
    first: int | None,
    stop: int | None,
) -> Iterator[ExplainedEvent]:
    if sequence_number is None:
        assert count is not None
        return sample(source, count, first, stop)
    return explain_events(source, source.timeline(input_name, partition), [sequence_number])


def _event_text(event: ExplainedEvent) -> str:
    body = " ".join(event.body.decode("utf-8", errors="replace").split())
    body = body if len(body) <= _MOST_OF_A_BODY else body[:_MOST_OF_A_BODY] + "…"
    lines = [
        f"input {event.input}, partition {event.partition}, sequence number {event.sequence_number}, "
        f"arrived {short_time(event.arrival)}",
        f"  {body}",
    ]
    for number, row in enumerate(event.rows, start=1):
        if len(event.rows) > 1:
            lines.append(f"  row {number}:")
        lines += [f"  - {sentence}" for sentence in row.sentences]
    lines += [f"  - Lost: {reason}." for reason in event.lost]
    if not event.rows and not event.lost:
        lines.append("  - Its body has no rows.")
    lines += [f"  - {note}" for note in event.notes]
    return "\n".join(lines)


_SHOWN_DIGITS = len("2026-01-31T12:00:00.000")


@click.command()
@REPLAY_SOURCE
@click.option(
    "-o", "output", type=TEXT_OR_JSON, default="text", show_default=True, help="Text for people, or one JSON object."
)
def blockers(path: Path, output: str) -> None:
    """Show which partition blocks the watermark, and what would advance it.

    A result leaves when the slowest watermark has passed it. If the job is running, its current watermarks are shown;
    if not, those it would have after reading everything in the log. JOB is a job file or a case file.

    The command was formerly called 'holders', and still answers to that name.

    \b
    Example:
      tidegate job blockers tolls.toml
    """
    status = _running(path)
    if status is None:
        with open_replay_source(path) as source:
            status = {"running": False, **fresh_look(source).as_json()}
    click.echo(json.dumps(status, ensure_ascii=False) if output == "json" else _blocker_text(status))


def _running(path: Path) -> dict[str, Any] | None:
    if is_case(path):
        return None
    folder = read_definition(path).state_dir
    assert folder is not None
    status = read_status(folder)
    return None if status is None else {"running": True, **status}


def _blocker_text(status: dict[str, Any]) -> str:
    lines = [
        f"the job is running; this is its status of {_short(status['updated'])}"
        if status["running"]
        else "the job is not running; this is the log as it is now"
    ]
    if placement := status.get("placement"):
        lines.append(f"it runs {_where(placement)} since {_short(placement['since'])}: {placement['why']}")
    if waiting := status.get("waiting"):
        lines.append(waiting)
    timelines: list[dict[str, Any]] = status["timelines"]
    if status["watermark"] == "end":
        lines.append("nothing holds results back: every log has ended")
    elif status["watermark"] is None:
        lines.append("no result can leave yet: not every partition has a watermark")
    elif status.get("bySubstream"):
        lines.append(
            "results of a substream leave when every partition has passed them, by events of its own or else by the "
            f"clock; by the clock, those before {_short(status['watermark'])}"
        )
    else:
        lines.append(f"results before {_short(status['watermark'])} can leave")
    lines += _held_back(status)
    heading = ["input", "partition", "watermark", "latest time", "arrival clock", "backlog"]
    rows = [
        [
            one["input"],
            one["partition"],
            _short(one["watermark"]),
            _short(one["latestTime"]),
            _short(one["latestArrival"]),
            f"{one['backlog']:,}",
        ]
        for one in timelines
    ]
    lines.append("\n" + table([heading, *rows]))
    slowest = [
        [
            one["input"],
            one["partition"],
            substream["key"],
            _short(substream["watermark"]),
            _short(substream.get("since")) if status["running"] else "",
            _short(substream["releasedByEventAfter"]),
            _short(substream["releasedByClockAfter"]),
        ]
        for one in timelines
        for substream in one["substreams"]
    ]
    if slowest:
        heading = ["input", "partition", "key", "watermark", "since", "event after", "or clock past"]
        lines.append("\nthe slowest substreams, and what moves each\n" + table([heading, *slowest]))
    return "\n".join(lines)


def _where(placement: dict[str, Any]) -> str:
    if placement["where"] != "spark":
        return "in a child of its process" if placement.get("child") else "in its own process"
    shards = "1 shard" if placement["shards"] == 1 else f"{placement['shards']:,} shards"
    shared = ", shared with other jobs" if placement.get("shared") else ""
    return f"on Spark ({placement['master']}{shared}, {shards})"


def _held_back(status: dict[str, Any]) -> list[str]:
    """Return what holds results back, since when, and what would release it; equal answers are combined."""
    held = {(one["input"], one["partition"]) for one in status["heldBackBy"]}
    groups: dict[tuple[str, str, str], list[str]] = {}
    for one in status["timelines"]:
        if (one["input"], one["partition"]) in held:
            since = f", since {_short(one['since'])}" if one["since"] else ""
            release = one["release"].replace(f"partition {one['partition']} of {one['input']}", "each of them")
            groups.setdefault((one["input"], since, release), []).append(one["partition"])
    lines = []
    for (name, since, release), partitions in groups.items():
        if len(partitions) == 1:
            where = f"partition {partitions[0]} of {name}"
            release = release.replace("each of them", "it")
        else:
            where = f"partitions {', '.join(partitions)} of {name}"
        lines += [f"held back by {where}{since}", f"  released by {release}"]
    return lines


def _short(time: str | None) -> str:
    """Shorten a time to milliseconds for the table."""
    return "none yet" if time is None else time if time == "end" else time[:_SHOWN_DIGITS] + "Z"


@click.command()
@REPLAY_SOURCE
@FROM_TIME
@TO_TIME
@click.option("--title", help="The heading; default: the job's name.")
@click.option(
    "-o", "output", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False), help="SVG file; default: NAME.svg."
)
def picture(path: Path, from_time: str | None, to_time: str | None, title: str | None, output: Path | None) -> None:
    """Draw the watermark's progress as SVG.

    Event time against arrival: a dot for each event, by what happened to it, and the watermark of each partition or
    substream as a step line. JOB is a job file or a case file.

    \b
    Example:
      tidegate job picture tolls.toml --from 2026-01-31T12:00:00Z --to 2026-01-31T12:05:00Z -o tolls.svg
      tidegate job picture tests/cases/tp01-seed12-early.json
    """
    first, stop = optional_time("--from", from_time), optional_time("--to", to_time)
    with open_replay_source(path) as source:
        svg = stretch_svg(source, from_ticks=first, to_ticks=stop, title=title)
        file = output or Path(f"{source.name}.svg")
    file.write_text(svg, encoding="utf-8")
    click.echo(str(file))
