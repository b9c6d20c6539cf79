"""The metrics of a job over time as columns for charts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.portal.jobs.descriptions import parsed
from tidegate.portal.web.rendering import natural
from tidegate.service import EVENTS_READ, Jobs, QueryPeriod, Resolution, Sample, Thinning

_DELAY = "Watermark Delay"
GAUGES = frozenset({_DELAY, "Backlogged Input Events"})
"""Metrics that are values of their moment; all others count, and charts show how fast."""
_LONGEST_GAP_S = 15.0


@dataclass(frozen=True, slots=True)
class Range:
    """How far back a chart goes, and by which resolutions: of the job, and of its partitions.

    `every_s` is how far apart the samples that are shown are: no chart has more pixels than an hour has of them.
    """

    length_s: int
    resolution: Resolution
    of_partitions: Resolution
    every_s: int


RANGES: Mapping[str, Range] = {
    "5m": Range(300, Resolution.SECOND, Resolution.TEN_SECONDS, 1),
    "1h": Range(3600, Resolution.SECOND, Resolution.TEN_SECONDS, 5),
    "24h": Range(86_400, Resolution.MINUTE, Resolution.MINUTE, 60),
}


def series(jobs: Jobs, name: str, range_name: str, after_s: float, now_s: float) -> dict[str, Any]:
    """Return the samples of a range after a time: `times`, `metrics` (gauges) and `rates` (counters, by the second).

    `restarts` are the times of the first samples after the job's process began again.

    Raises:
        JobNotFound: there is no such job.
    """
    wanted = RANGES[range_name]
    begin_s = max(after_s, now_s - wanted.length_s)
    gap_s = max(_LONGEST_GAP_S, 3.0 * wanted.resolution.seconds)
    thinning = Thinning(wanted.every_s, GAUGES)
    # the rate of the first sample needs the one before
    samples = jobs.history(name, wanted.resolution, begin_s - gap_s, thinning=thinning)
    names = sorted({name for _, metrics in samples for name in metrics})
    first = next((at for at, (time_s, _) in enumerate(samples) if time_s > begin_s), len(samples))
    return {
        "range": range_name,
        "seconds": wanted.length_s,
        "resolution": wanted.every_s,
        "times": [at for at, _ in samples[first:]],
        "metrics": _columns(GAUGES.intersection(names), lambda one: [kept.get(one) for _, kept in samples[first:]]),
        "rates": _columns(set(names) - GAUGES, lambda one: _rates(one, samples, gap_s)[first:]),
        "restarts": [at_s for at_s in _restarts(samples, gap_s) if at_s > begin_s],
    }


_SPARK_METRIC = "Input Events"
_SPARK_S = 300


def input_rates(jobs: Jobs, name: str, now_s: float) -> list[float | None]:
    """Return how many events a second a job read during the last minutes, for a sparkline. Raises JobNotFound."""
    samples = jobs.history(name, Resolution.SECOND, now_s - _SPARK_S, (_SPARK_METRIC,))
    return _rates(_SPARK_METRIC, samples, _LONGEST_GAP_S)


def partition_series(jobs: Jobs, name: str, range_name: str, after_s: float, now_s: float) -> dict[str, Any]:
    """Return the samples of each partition after a time: `times`, and by INPUT/PARTITION `delays` and `rates`.

    Delays are the watermark's, in seconds; rates are the events that the job read in a second.

    Raises:
        JobNotFound: there is no such job.
    """
    wanted = RANGES[range_name]
    begin_s = max(after_s, now_s - wanted.length_s)
    gap_s = 3.0 * wanted.of_partitions.seconds
    samples = jobs.partition_history(name, wanted.of_partitions, begin_s - gap_s)
    first = next((at for at, (time_s, _) in enumerate(samples) if time_s > begin_s), len(samples))
    prefix = f"{EVENTS_READ} "
    named = {key.removeprefix(prefix) for _, kept in samples for key in kept if key.startswith(prefix)}
    partitions = sorted(named, key=natural)
    return {
        "range": range_name,
        "seconds": wanted.length_s,
        "resolution": wanted.of_partitions.seconds,
        "times": [at for at, _ in samples[first:]],
        "delays": {one: [kept.get(f"{_DELAY} {one}") for _, kept in samples[first:]] for one in partitions},
        "rates": {one: _rates(f"{prefix}{one}", samples, gap_s)[first:] for one in partitions},
    }


def query_changes(versions: Sequence[QueryPeriod], after_s: float) -> list[float]:
    """Return when a job's query was replaced, in Unix seconds; its first query replaced nothing."""
    changes = [when.timestamp() for one in versions[1:] if (when := parsed(one.since)) is not None]
    return [at_s for at_s in changes if at_s > after_s]


def _restarts(samples: Sequence[Sample], gap_s: float) -> Iterator[float]:
    """Yield when samples begin again after a gap, or with smaller counters than before."""
    for (before_s, before), (after_s, after) in itertools.pairwise(samples):
        shrunk = any((after.get(name) or 0) < (count or 0) for name, count in before.items() if name not in GAUGES)
        if shrunk or after_s - before_s > gap_s:
            yield after_s


def _columns(names: Sequence[str] | set[str] | frozenset[str], of: Callable[[str], list[Any]]) -> dict[str, list[Any]]:
    return {name: of(name) for name in sorted(names)}


def _rates(name: str, samples: Sequence[Sample], gap_s: float) -> list[float | None]:
    """Return how much a counter grew a second since the sample before; None where it is not known."""
    rates: list[float | None] = [None] if samples else []
    for (before_s, before), (after_s, after) in itertools.pairwise(samples):
        first, last = before.get(name), after.get(name)
        if first is None or last is None or last < first or not 0 < after_s - before_s <= gap_s:
            rates.append(None)  # it was started again, or did not run, in between
        else:
            rates.append(round((last - first) / (after_s - before_s), 3))
    return rates
