"""`tidegate job tune`: what other tolerances would have done, and which would suffice."""

from __future__ import annotations

import json
from pathlib import Path

import click

from tidegate.cli.job.options import FROM_TIME, REPLAY_SOURCE, TEXT_OR_JSON, TO_TIME, optional_time
from tidegate.cli.output import table
from tidegate.job.analysis.replay_source import open_replay_source
from tidegate.job.analysis.tuning import Tuning, tuned
from tidegate.job.analysis.tuning_picture import tuning_svg
from tidegate.ordering import TICKS_PER_SECOND, TuningOutcome, format_duration


@click.command()
@REPLAY_SOURCE
@FROM_TIME
@TO_TIME
@click.option(
    "--keep",
    default=0.999,
    show_default=True,
    type=click.FloatRange(0, 1),
    help="Share of all events to leave untouched.",
)
@click.option("--late", "lates", metavar="S,…", help="Late tolerances to try, in seconds; default: from the log.")
@click.option("--out-of-order", "orders", metavar="S,…", help="Out-of-order tolerances to try; default: from the log.")
@click.option("--picture", type=click.Path(path_type=Path, dir_okay=False), help="Draw the trade-off to this SVG file.")
@click.option(
    "-o", "output", type=TEXT_OR_JSON, default="text", show_default=True, help="Tables for people, or one JSON object."
)
def tune(
    path: Path,
    from_time: str | None,
    to_time: str | None,
    keep: float,
    lates: str | None,
    orders: str | None,
    picture: Path | None,
    output: str,
) -> None:
    """Find the tolerances that suit a log.

    Computed from the log in one pass: how many events each pair of tolerances would affect, how far the watermark would
    be behind, and the smallest tolerances that leave the stated share untouched. JOB is a job file or a case file.

    \b
    Example:
      tidegate job tune tolls.toml --keep 0.999 --picture tolerances.svg
      tidegate job tune tolls.toml --late 5,30,120 --out-of-order 0,2,10
    """
    first, stop = optional_time("--from", from_time), optional_time("--to", to_time)
    with open_replay_source(path) as source:
        tuning = tuned(
            source,
            from_ticks=first,
            to_ticks=stop,
            keep=keep,
            late_ticks=_tolerances("--late", lates),
            out_of_order_ticks=_tolerances("--out-of-order", orders),
        )
        name, policy, adjusts = source.name, source.policy.describe(), source.policy.adjusts
    if picture is not None:
        svg = tuning_svg(
            tuning.grid,
            title=f"{name}: what tolerances would do",
            subtitle=f"{_stretch(tuning)}; a ring: the tolerances in force",
            keep=keep,
            current=tuning.current,
        )
        picture.write_text(svg, encoding="utf-8")
    if output == "json":
        click.echo(json.dumps(tuning.as_json()))
        return
    click.echo(f"{name}: {policy}\n{_stretch(tuning)}")
    click.echo(f"\nshare of events {'adjusted' if adjusts else 'dropped'} or lost\n{_grid(tuning)}")
    click.echo(f"\nin force, and the smallest that leave {100 * keep:.6g}% untouched\n{_pairs(tuning, adjusts)}")
    if not tuning.smallest:
        click.echo(f"no tolerances leave {100 * keep:.6g}% untouched: early and unreadable events alone are too many")
    if picture is not None:
        click.echo(f"picture: {picture}")


def _stretch(tuning: Tuning) -> str:
    return (
        f"{tuning.events:,} events of {tuning.partitions} partition{'s' if tuning.partitions != 1 else ''}; "
        f"beyond any tolerance: {tuning.early:,} early, {tuning.unreadable:,} without a readable time or key"
    )


def _grid(tuning: Tuning) -> str:
    """Format the share of affected events for each pair."""
    heading = ["late \\ order", *(_length(ticks) for ticks in tuning.out_of_order_ticks)]
    rows = [
        [_length(late), *(_share(1 - outcome.share_untouched) for outcome in row)]
        for late, row in zip(tuning.late_ticks, tuning.grid, strict=True)
    ]
    return table([heading, *rows])


def _pairs(tuning: Tuning, adjusts: bool) -> str:
    """Format the tolerances in force, and the smallest that suffice."""
    heading = ["", "late", "order", "untouched", "late events", "out of order", "delay median", "p95"]
    outcomes = [("in force", tuning.current), *(("smallest", outcome) for outcome in tuning.smallest)]
    return table([heading, *([name, *_cells(outcome, adjusts)] for name, outcome in outcomes)])


def _cells(outcome: TuningOutcome, adjusts: bool) -> list[str]:
    return [
        _length(outcome.late_ticks, "for ever"),
        _length(outcome.out_of_order_ticks, "any"),
        f"{outcome.share_untouched:.4%}",
        f"{outcome.late:,}",
        f"{outcome.out_of_order if adjusts else outcome.out_of_order_dropping:,}",
        _length(_rounded(outcome.watermark_delay_median_ticks), "never"),
        _length(_rounded(outcome.watermark_delay_p95_ticks), "never"),
    ]


def _rounded(ticks: int | None) -> int | None:
    """Round a delay to three figures."""
    if ticks is None:
        return None
    unit = TICKS_PER_SECOND if abs(ticks) >= 100 * TICKS_PER_SECOND else TICKS_PER_SECOND // 100
    return round(ticks / unit) * unit


def _length(ticks: int | None, otherwise: str = "") -> str:
    """Format a duration for a narrow column: 5s, 2min26s."""
    return otherwise if ticks is None else format_duration(ticks).replace(" ", "")


def _share(share: float) -> str:
    if share <= 0:
        return "0"
    return f"{share:.0%}" if share >= 0.1 else f"{share:.1%}" if share >= 0.01 else _small(share)


def _small(share: float) -> str:
    return f"{share:.2%}" if share >= 0.0001 else "<0.01%"


def _tolerances(option: str, text: str | None) -> list[int]:
    try:
        seconds = [] if text is None else [float(part) for part in text.split(",")]
    except ValueError:
        seconds = [-1.0]
    if any(not 0 <= value < 1e10 for value in seconds):
        raise click.BadParameter(f"expected seconds such as 0,2,10, got {text!r}", param_hint=option)
    return [round(value * TICKS_PER_SECOND) for value in seconds]
