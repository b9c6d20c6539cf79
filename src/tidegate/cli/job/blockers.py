"""`tidegate job blockers`: what blocks the watermark, and with it the results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from tidegate.cli.job.options import REPLAY_SOURCE, TEXT_OR_JSON
from tidegate.cli.job.table import table
from tidegate.job.analysis.replay import fresh_look
from tidegate.job.analysis.replay_source import is_case, open_replay_source
from tidegate.job.config.definition import read_definition
from tidegate.job.run.status import read_status

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
    click.echo(json.dumps(status, ensure_ascii=False) if output == "json" else _told(status))


def _running(path: Path) -> dict[str, Any] | None:
    if is_case(path):
        return None
    folder = read_definition(path).state_dir
    assert folder is not None
    status = read_status(folder)
    return None if status is None else {"running": True, **status}


def _told(status: dict[str, Any]) -> str:
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
    if placement["where"] == "driver":
        return "in its own process"
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
