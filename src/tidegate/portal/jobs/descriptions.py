"""What the pages say of jobs: state, definition without secrets, metrics, and what holds the watermark back and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tidegate.service import JobResource, Jobs, JobState

FAILING = (JobState.FAILED, JobState.DEGRADED)
BEHIND_EVENTS = 10_000
BEHIND_S = 60.0


def iso(when: datetime | None) -> str | None:
    """Return a time in ISO 8601, None for none."""
    return None if when is None else when.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class JobRows:
    """The jobs as rows of the overview."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    def rows(self) -> Sequence[Mapping[str, Any]]:
        """Return a row for each job."""
        return [self._row(job) for job in self._jobs.list()]

    def _row(self, job: JobResource) -> dict[str, Any]:
        is_active = job.state in (JobState.RUNNING, JobState.DEGRADED)
        metrics = self._jobs.metrics(job.name) if is_active else {}
        delay_s = metrics.get("Watermark Delay")
        backlog = metrics.get("Backlogged Input Events") or 0
        is_behind = is_active and backlog > BEHIND_EVENTS
        return {
            "name": job.name,
            "state": job.state.value,
            "detail": job.reason or (f"{backlog:,.0f} events wait to be read" if is_behind else ""),
            "isFailing": job.state in FAILING,
            "isBehind": is_behind,
            "inputEvents": None if not metrics else int(metrics.get("Input Events") or 0),
            "watermarkDelay": None if delay_s is None else seconds(delay_s),
            "lastOutputTime": iso(job.last_output),
        }


def described(job: JobResource) -> dict[str, Any]:
    """Return a job as its pages show it; secrets are null in what the service gives out."""
    return {
        "name": job.name,
        "state": job.state.value,
        "reason": job.reason,
        "etag": job.etag,
        "canStart": job.state in (JobState.CREATED, JobState.STOPPED, JobState.FAILED),
        "canStop": job.state in (JobState.STARTING, JobState.RUNNING, JobState.DEGRADED),
        "hasRun": job.started is not None,
        "createdAt": iso(job.created),
        "changedAt": iso(job.changed),
        "stateSince": iso(job.state_since),
        "startedAt": iso(job.started),
        "startMode": None if job.start_mode is None else job.start_mode.value,
        "outputStartTime": iso(job.output_start),
        "lastOutputTime": iso(job.last_output),
        "restarts": job.restarts,
        "streamingUnits": job.scale.streaming_units,
        "query": job.query or "",
        "compatibilityLevel": job.definition.get("compatibility_level", "1.2"),
        "eventOrdering": dict(job.event_ordering),
        "inputs": [{"name": name, "settings": _plain(one)} for name, one in job.inputs.items()],
        "outputs": [{"name": name, "settings": _plain(one)} for name, one in job.outputs.items()],
        "functions": [{"name": name, "settings": _plain(one)} for name, one in job.functions.items()],
        "versions": [
            {
                "since": one.since,
                "query": one.query,
                "resultsFrom": one.results_from,
                "resultsBefore": one.results_before,
            }
            for one in reversed(job.versions)
        ],
    }


def _plain(section: Mapping[str, Any]) -> dict[str, Any]:
    return {name: "(hidden)" if value is None else value for name, value in section.items()}


def seconds(value: float) -> str:
    """Return a duration for people: two units at most."""
    if value < 60:
        return f"{value:.1f} s"
    whole = round(value)
    for size, unit, smaller, small in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit}" + (f" {rest} {small}" if rest else "")
    return f"{whole} s"


def watermark_rows(
    status: Mapping[str, Any] | None, ordering: Mapping[str, Any], now: datetime
) -> list[dict[str, Any]]:
    """Return each timeline with the delay of its watermark, taken apart into its causes.

    The delay is the clock minus the watermark. Its parts, in seconds, add up to it:

    - `backlog`: the clock minus the latest arrival that was read, while events wait to be read;
    - `idle`: the same while none wait: nothing has come, and the hub's clock has not been heard of since;
    - `tolerance`: how far the watermark is kept behind what was read by the policy's tolerances;
    - `eventTime`: how far event times themselves are behind their arrivals, beyond the tolerances.
    """
    if status is None:
        return []
    updated = parsed(status.get("updated")) or now
    held = {(one["input"], one["partition"]) for one in status.get("heldBackBy", ())}
    return [_watermark_row(one, ordering, updated, held) for one in status.get("timelines", ())]


def _watermark_row(
    one: Mapping[str, Any], ordering: Mapping[str, Any], updated: datetime, held: set[tuple[str, str]]
) -> dict[str, Any]:
    arrival, latest, watermark = (parsed(one.get(key)) for key in ("latestArrival", "latestTime", "watermark"))
    causes: dict[str, float] = {}
    delay: float | None = None
    if watermark is not None:
        delay = max(0.0, (updated - watermark).total_seconds())
        behind = min(delay, 0.0 if arrival is None else max(0.0, (updated - arrival).total_seconds()))
        rest = delay - behind
        causes["backlog" if one.get("backlog") else "idle"] = behind
        out_of_order = float(ordering.get("out_of_order_tolerance_s") or 0)
        late = float(ordering.get("late_arrival_tolerance_s") or 0)
        is_by_event = latest is not None and abs((latest - watermark).total_seconds() - out_of_order) < 0.001
        tolerance = min(rest, out_of_order if is_by_event else max(late, 0.0))
        causes["tolerance"] = tolerance
        causes["eventTime"] = rest - tolerance
    return {
        **{key: one.get(key) for key in ("input", "partition", "watermark", "latestArrival", "latestTime", "since")},
        "backlog": one.get("backlog", 0),
        "delaySeconds": None if delay is None else round(delay, 3),
        "causes": {name: round(value, 3) for name, value in causes.items()},
        "isBlocking": (one["input"], one["partition"]) in held,
        "release": one.get("release", ""),
        "substreams": list(one.get("substreams", ())),
    }


def parsed(text: Any) -> datetime | None:
    """Return a time as the status writes it, with up to seven decimals; None for none."""
    if not isinstance(text, str) or "T" not in text:
        return None
    moment, _, decimals = text.removesuffix("Z").partition(".")
    try:
        when = datetime.fromisoformat(moment).replace(tzinfo=UTC)
    except ValueError:
        return None
    return when.replace(microsecond=int((decimals + "000000")[:6]) if decimals.isdecimal() else 0)
