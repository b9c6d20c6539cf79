"""`tidegate job explain`: what happened to one event, and why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click

from tidegate.cli.job.options import FROM_TIME, REPLAY_SOURCE, TEXT_OR_JSON, TO_TIME, optional_time
from tidegate.job.analysis.event_explanation import ExplainedEvent, explain_events, sample
from tidegate.job.analysis.replay_source import ReplaySource, open_replay_source
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
            click.echo(json.dumps(event.as_json(), ensure_ascii=False) if output == "json" else "\n" + _told(event))
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


def _told(event: ExplainedEvent) -> str:
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
