"""`tidegate job verify`: the same results, however they are computed."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path

import click

from tidegate.cli.job.options import REPLAY_SOURCE, TEXT_OR_JSON, optional_time, shown_time
from tidegate.job.analysis.replay_source import ReplaySource, open_replay_source
from tidegate.job.analysis.verification import Attempt, Verification, verify
from tidegate.job.runtime.step import Runner
from tidegate.ordering import END_OF_TIME, NO_TIME
from tidegate.spark import SparkRunner, spark_context


@click.command("verify")
@REPLAY_SOURCE
@click.option("--from", "from_time", metavar="TIME", help="First output time of the stretch; default: the log's begin.")
@click.option("--until", metavar="TIME", help="Results before this time only; default: all that can leave now.")
@click.option("--starts", default=3, show_default=True, type=click.IntRange(0), help="Later start times to try.")
@click.option("--cuts", default=3, show_default=True, type=click.IntRange(0), help="Other cuts into steps to try.")
@click.option("--seed", default=0, show_default=True, type=int, help="Attempts are drawn from this number.")
@click.option("--master", metavar="URL", help="Spark master URL to run the tasks on; default: in this process.")
@click.option(
    "-o", "output", type=TEXT_OR_JSON, default="text", show_default=True, help="Text for people, or one JSON object."
)
def verify_job(
    path: Path,
    from_time: str | None,
    until: str | None,
    starts: int,
    cuts: int,
    seed: int,
    master: str | None,
    output: str,
) -> None:
    """Prove that a job's results do not depend on how they are computed.

    Computes a stretch of the log once, and again in other cuts and from other start times; every result must be the
    same, byte for byte. The log is held as it stands at the beginning. The job's outputs and state are not touched,
    so it may go on running. JOB is a job file or a case file. Exit code 0: identical; 1: not, and the first
    difference is shown.

    \b
    Example:
      tidegate job verify tolls.toml
      tidegate job verify tolls.toml --from 2026-01-31T12:00:00Z --starts 10 --cuts 10 --seed 7
    """
    start, end = optional_time("--from", from_time), optional_time("--until", until)

    def said(number: int, attempt: Attempt, same: bool) -> None:
        outcome = "identical" if same else "NOT the same"
        click.echo(f"{number} of {starts + cuts}: {attempt.describe()}: {outcome}", err=True)

    with (
        open_replay_source(path) as source,
        nullcontext() if master is None else spark_context(master, "tidegate job verify") as context,
    ):
        runner: Runner = source.run_here if context is None else SparkRunner(context, source.program, source.policy)
        found = verify(
            source,
            runner,
            start=NO_TIME if start is None else start,
            until=END_OF_TIME if end is None else end,
            starts=starts,
            cuts=cuts,
            seed=seed,
            on_attempt=said,
        )
        click.echo(_as_json(found, seed) if output == "json" else _told(found, source, seed))
    if found.difference is not None:
        sys.exit(1)


def _told(found: Verification, source: ReplaySource, seed: int) -> str:
    difference = found.difference
    if difference is None:
        return (
            f"identical: {found.rows:,} results ({found.output_bytes:,} bytes) of {found.events:,} events up to "
            f"{shown_time(found.watermark) or 'no time yet'}, {len(found.attempts)} times again"
        )
    ended = "(ends before)"
    return "\n".join(
        [
            f"{source.name}: output {difference.output} differs at line {difference.line}",
            f"  in one go:  {difference.expected or ended}",
            f"  this time:  {difference.got or ended}",
            f"  this time:  {difference.attempt.describe()}",
            f"the same attempts again: --seed {seed}",
        ]
    )


def _as_json(found: Verification, seed: int) -> str:
    difference = found.difference
    return json.dumps(
        {
            "identical": difference is None,
            "events": found.events,
            "results": found.rows,
            "bytes": found.output_bytes,
            "watermark": shown_time(found.watermark),
            "seed": seed,
            "attempts": [attempt.as_json() for attempt in found.attempts],
            "difference": None
            if difference is None
            else {
                "output": difference.output,
                "line": difference.line,
                "expected": difference.expected,
                "got": difference.got,
            },
        },
        ensure_ascii=False,
    )
