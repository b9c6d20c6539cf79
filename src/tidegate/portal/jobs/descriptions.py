"""What the pages say of jobs: state, definition without secrets, metrics, and what holds the watermark back and why."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from tidegate.hub.event_hub import EventHub
from tidegate.hub.namespace import Namespace
from tidegate.hub.partition import Partition
from tidegate.service import ErrorGroup, JobNotFound, JobResource, Jobs, JobState, JobSummary

_HUB_TYPES = ("eventhub", "iothub")
# In the order in which people name a place: what it is, then what that is in.
_NAMES = ("topic", "queue", "table", "container", "collection", "path", "folder", "pattern", "dataset")
_WITHIN = ("database", "database_name", "bootstrap_servers", "account", "account_name", "host", "url", "workspace")
_LONGEST = 80


@dataclass(frozen=True, slots=True)
class SectionAddress:
    """Where a section reads or writes: a text, and the page of the hub if it is one of this namespace."""

    text: str
    hub: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the place for a page."""
        return {"text": self.text, "hub": self.hub}


@dataclass(frozen=True, slots=True)
class SectionAddresses:
    """Describes sections. `endpoint` is the namespace's own, as its connection strings have it."""

    namespace: Namespace
    endpoint: Callable[[], str]
    rate: Callable[[Partition], float | None]

    def of(self, shown: Mapping[str, Any], section: Mapping[str, Any]) -> SectionAddress:
        """Describe a section.

        Args:
            shown: the section without its secrets.
            section: the same with them, for the hub that a connection string names.
        """
        if shown.get("type") in _HUB_TYPES:
            return self._hub(section)
        found = [str(shown[name]) for name in (*_NAMES, *_WITHIN) if isinstance(shown.get(name), str | int)]
        return SectionAddress(", ".join(_shortened(one) for one in found[:2]))

    def own_hub(self, section: Mapping[str, Any]) -> EventHub | None:
        """Return the hub of this namespace that a section names, None for any other place."""
        if section.get("type") not in _HUB_TYPES:
            return None
        parts = _parts(section.get("connection_string"))
        name = section.get("event_hub") or parts.get("entitypath", "")
        is_ours = parts.get("endpoint", "").rstrip("/").lower() == self.endpoint().rstrip("/").lower()
        return self.namespace.event_hubs.get(str(name).lower()) if is_ours else None

    def _hub(self, section: Mapping[str, Any]) -> SectionAddress:
        group = str(section.get("consumer_group") or "$Default")
        hub = self.own_hub(section)
        if hub is None:
            parts = _parts(section.get("connection_string"))
            name = section.get("event_hub") or parts.get("entitypath") or "an event hub"
            host = re.sub(r"^\w+://", "", parts.get("endpoint", "")).strip("/")
            return SectionAddress(f"{name} · {group}" + (f", at {host}" if host else ""))
        count = len(hub.partitions)
        rates = [rate for rate in map(self.rate, hub.partitions) if rate is not None]
        speed = f", {sum(rates):,.0f} events/s" if rates else ""
        return SectionAddress(f"{hub.name} · {group}, {count} partition{'' if count == 1 else 's'}{speed}", hub.name)


def _parts(connection_string: object) -> dict[str, str]:
    """Return the parts of a connection string that are no secrets, by their names in lower case."""
    found = {}
    for part in str(connection_string or "").split(";"):
        name, _, value = part.partition("=")
        if name.strip().lower() in ("endpoint", "entitypath"):
            found[name.strip().lower()] = value.strip()
    return found


def _shortened(text: str) -> str:
    """Return a name without what an address may hide in it: user, password and query."""
    text = re.sub(r"//[^/@]*@", "//", text).partition("?")[0]
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def event_link(hub: EventHub, partition: str, sequence_number: int) -> str:
    """Return the explorer's page that begins with an event."""
    begin = f"partition={quote(partition, safe='')}&from=sequence&value={sequence_number}"
    return f"/eventhubs/{quote(hub.name, safe='')}/explorer?{begin}"


MOST_ERROR_GROUPS = 100


def error_rows(groups: Sequence[ErrorGroup], hub_of: Callable[[str], EventHub | None]) -> list[dict[str, Any]]:
    """Return groups of errors as the page shows them, their events with links where they can be looked up.

    `hub_of` returns the hub of this namespace that an input reads, None for any other input.
    """
    return [
        {
            **{name: getattr(one, name) for name in ("kind", "source", "message", "count", "first", "last")},
            "examples": [_example(each, hub_of(one.source)) for each in one.examples],
        }
        for one in groups
    ]


def _example(example: Mapping[str, Any], hub: EventHub | None) -> dict[str, Any]:
    """Return an event that was refused, or a result that an output rejected, with a link to the event."""
    if "partition" not in example:
        place = f"at {example['timestamp']}" if "timestamp" in example else f"row {example.get('row')}"
        return {"place": place, "text": str(example.get("result") or example.get("message") or ""), "link": None}
    partition, number = str(example["partition"]), int(example.get("sequenceNumber") or 0)
    link = None if hub is None else event_link(hub, partition, number)
    return {"place": f"partition {partition}, event {number}", "text": str(example.get("body") or ""), "link": link}


FAILING = (JobState.FAILED, JobState.DEGRADED)
BEHIND_EVENTS = 10_000
CAUSES = {
    "tolerance": "Tolerance",
    "idle": "Idle",
    "backlog": "Backlog",
    "processing": "Processing",
    "blockedOutput": "Blocked output",
    "eventTime": "Event time",
}
_SILENT_S = 3.0
"""A job that works says about once a second how it is."""
_UNREACHABLE, _UNWRITABLE = " unreachable since ", " cannot be written since "


def iso(when: datetime | None) -> str | None:
    """Return a time in ISO 8601, None for none."""
    return None if when is None else when.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class JobRows:
    """The jobs as rows of the overview. `rates` returns the values of a job's sparkline."""

    def __init__(self, jobs: Jobs, rates: Callable[[str], Sequence[float | None]]) -> None:
        self._jobs = jobs
        self._rates = rates

    def rows(self) -> Sequence[Mapping[str, Any]]:
        """Return a row for each job. Reads no file: there may be many."""
        return [_row(job) for job in self._jobs.summaries()]

    def with_outputs(self, rows: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """Return rows that are shown with up to when their jobs' results have left."""
        return [{**row, "lastOutputTime": self._last_output(row["name"])} for row in rows]

    def sparklines(self, names: Sequence[str]) -> Mapping[str, Sequence[float | None]]:
        """Return by job how many events a second it read during the last minutes."""
        found = {}
        for name in names:
            with contextlib.suppress(JobNotFound):  # it was deleted just now
                found[name] = self._rates(name)
        return found

    def _last_output(self, name: str) -> str | None:
        try:
            return iso(self._jobs.last_output(name))
        except JobNotFound:
            return None  # it was deleted just now


def _row(job: JobSummary) -> dict[str, Any]:
    is_active = job.state in (JobState.RUNNING, JobState.DEGRADED)
    delay_s = job.metrics.get("Watermark Delay")
    backlog = job.metrics.get("Backlogged Input Events") or 0
    is_behind = is_active and backlog > BEHIND_EVENTS
    return {
        "name": job.name,
        "state": job.state.value,
        "detail": job.reason or (f"{backlog:,.0f} events wait to be read" if is_behind else ""),
        "isFailing": job.state in FAILING,
        "isBehind": is_behind,
        "inputEvents": int(job.metrics.get("Input Events") or 0) if job.metrics else None,
        "delaySeconds": delay_s,
        "watermarkDelay": None if delay_s is None else seconds(delay_s),
        "canStart": job.state in _STARTABLE,
        "canStop": job.state in _STOPPABLE,
    }


_STARTABLE = (JobState.CREATED, JobState.STOPPED, JobState.FAILED)
_STOPPABLE = (JobState.STARTING, JobState.RUNNING, JobState.DEGRADED)


def state_of(job: JobResource) -> dict[str, Any]:
    """Return what an open page of a job keeps current: its state, and what can be done with it."""
    return {
        "state": job.state.value,
        "reason": job.reason,
        "isFailing": job.state in FAILING,
        "canStart": job.state in _STARTABLE,
        "canStop": job.state in _STOPPABLE,
    }


def described(job: JobResource) -> dict[str, Any]:
    """Return a job as its pages show it; secrets are null in what the service gives out."""
    return {
        "name": job.name,
        **state_of(job),
        "etag": job.etag,
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
        "tags": dict(job.arm.get("tags") or {}),
        "inputs": [_section(name, one) for name, one in job.inputs.items()],
        "outputs": [_section(name, one) for name, one in job.outputs.items()],
        "functions": [_section(name, one) for name, one in job.functions.items()],
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


def _section(name: str, section: Mapping[str, Any]) -> dict[str, Any]:
    """Return an input, output or function: settings for people, and the names of those that are hidden."""
    return {
        "name": name,
        "settings": _plain(section),
        "hidden": [key for key, value in section.items() if value is None],
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


@dataclass(frozen=True, slots=True)
class LastStep:
    """What is known of a job's present step and the one before, to take delays apart.

    Attributes:
        compute_s: How long the last step computed.
        commit_s: How long it then wrote to the outputs and the journal.
        waits_for: Why the job makes no progress, None if nothing holds it up.
    """

    compute_s: float = 0.0
    commit_s: float = 0.0
    waits_for: str | None = None

    @classmethod
    def of(cls, job: JobResource, report: Mapping[str, Any]) -> LastStep:
        """Return what a job's process reported."""
        waits_for = job.reason if job.state is JobState.DEGRADED else None
        return cls(report.get("computeSeconds", 0.0), report.get("commitSeconds", 0.0), waits_for)


def watermark_rows(
    status: Mapping[str, Any] | None,
    ordering: Mapping[str, Any],
    now: datetime,
    step: LastStep | None = None,
    *,
    is_running: bool = False,
) -> list[dict[str, Any]]:
    """Return each timeline with the delay of its watermark, taken apart into its causes.

    The delay is the clock minus the watermark. Its parts, in seconds, add up to it:

    - `blockedOutput`: results were being written, or wait for an output that cannot be written;
    - `processing`: events that had been read were being computed;
    - `backlog`: the rest of the clock minus the latest arrival that was read, while events wait to be read;
    - `idle`: the same while none wait: nothing has come, and the hub's clock has not been heard of since;
    - `tolerance`: how far the watermark is kept behind what was read by the policy's tolerances;
    - `eventTime`: how far event times themselves are behind their arrivals, beyond the tolerances.

    Args:
        step: the last step's times; a job that has not said anything since has been in the next one ever since.
    """
    if status is None:
        return []
    updated = parsed(status.get("updated")) or now
    held = {(one["input"], one["partition"]) for one in status.get("heldBackBy", ())}
    silent_s = (now - updated).total_seconds() if is_running else 0.0
    silent_s = 0.0 if silent_s < _SILENT_S else silent_s
    return [
        _watermark_row(one, ordering, updated, held, step or LastStep(), silent_s)
        for one in status.get("timelines", ())
    ]


def _watermark_row(
    one: Mapping[str, Any],
    ordering: Mapping[str, Any],
    updated: datetime,
    held: set[tuple[str, str]],
    step: LastStep,
    silent_s: float,
) -> dict[str, Any]:
    arrival, latest, watermark = (parsed(one.get(key)) for key in ("latestArrival", "latestTime", "watermark"))
    causes: dict[str, float] = {}
    delay: float | None = None
    if watermark is not None:
        delay = max(0.0, (updated - watermark).total_seconds())
        behind = min(delay, 0.0 if arrival is None else max(0.0, (updated - arrival).total_seconds()))
        rest = delay - behind
        causes = _held_up(behind, step, silent_s, has_backlog=bool(one.get("backlog")))
        delay += silent_s
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


def _held_up(behind: float, step: LastStep, silent_s: float, *, has_backlog: bool) -> dict[str, float]:
    """Return the causes for which what has arrived is not in the watermark yet.

    A step reads what has arrived when it begins, so an arrival waits for the step's computation and for its writes.
    """
    output = min(behind, step.commit_s)
    processing = min(behind - output, step.compute_s)
    causes = {"blockedOutput": output, "processing": processing}
    causes["backlog" if has_backlog else "idle"] = behind - output - processing
    if silent_s:
        waits_for = step.waits_for or ""
        cause = "idle" if _UNREACHABLE in waits_for else "blockedOutput" if _UNWRITABLE in waits_for else "processing"
        causes[cause] = causes.get(cause, 0.0) + silent_s
    return causes


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
