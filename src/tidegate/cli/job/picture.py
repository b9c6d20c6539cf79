"""`tidegate job picture`: draw the watermark over a stretch of a log."""

from __future__ import annotations

from pathlib import Path

import click

from tidegate.cli.job.options import FROM_TIME, REPLAY_SOURCE, TO_TIME, optional_time
from tidegate.job.analysis.replay_source import open_replay_source
from tidegate.job.analysis.stretch_picture import stretch_svg


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
