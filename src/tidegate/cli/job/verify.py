"""`tidegate job verify`: the same results, however they are computed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from tidegate.cli.job.options import (
    REPLAY_SOURCE,
    SPARK_CONF,
    SPARK_UI,
    TEXT_OR_JSON,
    optional_time,
    placements,
    spark_settings,
)
from tidegate.job.analysis.replay_source import ReplaySource, open_replay_source
from tidegate.job.analysis.verification import Attempt, Verification, verify
from tidegate.job.run.run_log import shown_time
from tidegate.ordering import END_OF_TIME, NO_TIME


@click.command("verify")
@REPLAY_SOURCE
@click.option("--from", "from_time", metavar="TIME", help="First output time of the stretch; default: the beginning.")
@click.option("--until", metavar="TIME", help="Only results before this time; default: all that can be emitted now.")
@click.option("--starts", default=3, show_default=True, type=click.IntRange(0), help="Later start times to try.")
@click.option("--cuts", default=3, show_default=True, type=click.IntRange(0), help="Other step sizes to try.")
@click.option("--seed", default=0, show_default=True, type=int, help="Seed of the attempts.")
@click.option("--master", metavar="URL", help="Spark master URL to run the tasks on; default: in this process.")
@SPARK_CONF
@SPARK_UI
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
    spark_conf: dict[str, str],
    spark_ui: bool,
    output: str,
) -> None:
    """Prove that a job's results do not depend on how they are computed.

    Computes the results of a stretch of the log once, then again with other step sizes and start times; every result
    must be the same, byte for byte. Events that arrive in the meantime are ignored. The job's outputs and state are not
    affected, so it may keep running. JOB is a job file or a case file. Exit code 0: identical; 1: not, and the first
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

    spark = spark_settings(master, spark_ui, spark_conf)
    with open_replay_source(path) as source, placements(spark, "tidegate job verify") as place:
        found = verify(
            source,
            place,
            start=NO_TIME if start is None else start,
            until=END_OF_TIME if end is None else end,
            starts=starts,
            cuts=cuts,
            seed=seed,
            on_attempt=said,
        )
        for line in found.data_errors.report():
            click.echo(line, err=True)
        click.echo(_as_json(found, seed) if output == "json" else _verification_text(found, source, seed))
    if found.difference is not None:
        sys.exit(1)


def _verification_text(found: Verification, source: ReplaySource, seed: int) -> str:
    difference = found.difference
    if difference is None:
        return (
            f"identical: {found.rows:,} results ({found.output_bytes:,} bytes) of {found.events:,} events up to "
            f"{shown_time(found.watermark) or 'no time yet'}, in all {len(found.attempts)} reruns"
        )
    ended = "(no such line)"
    return "\n".join(
        [
            f"{source.name}: output {difference.output} differs at line {difference.line}",
            f"  first run:  {difference.expected or ended}",
            f"  this rerun: {difference.got or ended}",
            f"  this rerun: {difference.attempt.describe()}",
            f"to repeat the same reruns: --seed {seed}",
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
            "dataErrors": [one.as_json() for one in found.data_errors.counts()],
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
