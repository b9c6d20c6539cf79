"""Microsoft.Insights: metrics of the namespace and of jobs under the service's names, and the log of changes.

Metrics of event hubs are computed from the logs themselves, so they reach back as far as retention; those of jobs come
from the history that the service keeps for a day.
"""

from __future__ import annotations

import itertools
import json
import logging
import re
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tidegate.azure.management.access.requests import (
    GROUP,
    SUBSCRIPTION,
    ArmAnswer,
    ArmRequest,
    Operation,
    bad_request,
    resource_not_found,
)
from tidegate.azure.management.manager.resource_groups import DEFAULT_GROUP, ResourceGroups, time_text
from tidegate.azure.management.manager.resource_manager import ResourceKind
from tidegate.hub.event_hub import EventHub
from tidegate.log import LogDamaged, PartitionStore
from tidegate.server.context.metrics import Activity, ErrorKind
from tidegate.server.http.routing import HttpContext
from tidegate.service import JobNotFound, Jobs, Resolution

_logger = logging.getLogger(__name__)

PROVIDER = "Microsoft.Insights"
_NAMESPACE = f"{GROUP}/providers/Microsoft.EventHub/namespaces/{{namespace}}"
_JOB = f"{GROUP}/providers/Microsoft.StreamAnalytics/streamingjobs/{{job}}"
_MOST_POINTS = 1500
_AGGREGATIONS = ("Average", "Minimum", "Maximum", "Total", "Count")
_INTERVALS = {
    "PT1M": 60,
    "PT5M": 300,
    "PT15M": 900,
    "PT30M": 1800,
    "PT1H": 3600,
    "PT6H": 21_600,
    "PT12H": 43_200,
    "P1D": 86_400,
}
_DEFAULT_SPAN = timedelta(hours=1)
_MINUTE_S = 60
_ACTIVE = "ActiveConnections"
_CONNECTIONS = (_ACTIVE, Activity.CONNECTIONS_OPENED, Activity.CONNECTIONS_CLOSED)
_COUNTED = (*ErrorKind, Activity.REQUESTS, Activity.CAPTURED_MESSAGES, Activity.CAPTURED_BYTES)
_ENTITY = re.compile(r"EntityName\s+eq\s+'([^']*)'", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric as the service names it.

    Attributes:
        name: what clients ask for.
        title: its display name.
        unit: Count, Bytes or Seconds.
        primary: the aggregation that is returned if none is asked for.
        source: its name in a job's report; empty for metrics of hubs.
    """

    name: str
    title: str
    unit: str = "Count"
    primary: str = "Total"
    source: str = ""

    @property
    def is_gauge(self) -> bool:
        """Whether it is a value of its moment, and not a count of what has happened."""
        return self.primary != "Total"


HUB_METRICS = (
    Metric("IncomingMessages", "Incoming Messages"),
    Metric("OutgoingMessages", "Outgoing Messages"),
    Metric("IncomingBytes", "Incoming Bytes.", "Bytes"),
    Metric("OutgoingBytes", "Outgoing Bytes.", "Bytes"),
    Metric(Activity.REQUESTS, "Incoming Requests."),
    Metric(ErrorKind.USER, "User Errors."),
    Metric(ErrorKind.SERVER, "Server Errors."),
    Metric(ErrorKind.THROTTLED, "Throttled Requests."),
    Metric(ErrorKind.QUOTA, "Quota Exceeded Errors."),
    Metric("Size", "Size", "Bytes", "Average"),
    Metric(Activity.CAPTURED_MESSAGES, "Captured Messages."),
    Metric(Activity.CAPTURED_BYTES, "Captured Bytes.", "Bytes"),
    Metric("CaptureBacklog", "Capture Backlog."),
    Metric(_ACTIVE, "ActiveConnections", primary="Average"),
    Metric(Activity.CONNECTIONS_OPENED, "Connections Opened.", primary="Average"),
    Metric(Activity.CONNECTIONS_CLOSED, "Connections Closed.", primary="Average"),
)
JOB_METRICS = (
    Metric("InputEvents", "Input Events", source="Input Events"),
    Metric("InputEventBytes", "Input Event Bytes", "Bytes", source="Input Event Bytes"),
    Metric("InputEventsSourcesPerSecond", "Input Sources Received", source="Input Sources Received"),
    Metric("OutputEvents", "Output Events", source="Output Events"),
    Metric("LateInputEvents", "Late Input Events", source="Late Input Events"),
    Metric("EarlyInputEvents", "Early Input Events", source="Early Input Events"),
    Metric("DroppedOrAdjustedEvents", "Out of order Events", source="Out-of-Order Events"),
    Metric("Errors", "Runtime Errors", source="Runtime Errors"),
    Metric("ConversionErrors", "Data Conversion Errors", source="Data Conversion Errors"),
    Metric("DeserializationError", "Input Deserialization Errors", source="Input Deserialization Errors"),
    Metric("AMLCalloutRequests", "Function Requests", source="Function Requests"),
    Metric("AMLCalloutFailedRequests", "Failed Function Requests", source="Failed Function Requests"),
    Metric("AMLCalloutInputEvents", "Function Events", source="Function Events"),
    Metric("OutputWatermarkDelaySeconds", "Watermark Delay", "Seconds", "Maximum", "Watermark Delay"),
    Metric("InputEventsSourcesBacklogged", "Backlogged Input Events", "Count", "Maximum", "Backlogged Input Events"),
)


@dataclass(frozen=True, slots=True)
class _Span:
    """Which stretch of time is asked for, in Unix seconds, and how long each part of it is."""

    begin_s: int
    end_s: int
    step_s: int
    interval: str

    @property
    def times(self) -> list[int]:
        """The beginnings of the parts."""
        return list(range(self.begin_s, self.end_s, self.step_s))


class Monitor:
    """The provider. `changes` is the log of what was changed through the API."""

    namespace = PROVIDER
    kinds: Sequence[ResourceKind] = (
        ResourceKind("metrics", ("2024-02-01", "2023-10-01", "2019-07-01", "2018-01-01")),
        ResourceKind("metricDefinitions", ("2024-02-01", "2023-10-01", "2018-01-01")),
        ResourceKind("eventtypes/management", ("2015-04-01",)),
    )

    def __init__(
        self, context: HttpContext, jobs: Jobs | None, resource_groups: ResourceGroups, changes: ActivityLog
    ) -> None:
        self._context = context
        self._jobs = jobs
        self._resource_groups = resource_groups
        self._changes = changes

    def operations(self) -> Sequence[Operation]:
        """Return what it serves."""
        insights = f"providers/{PROVIDER}"
        return [
            Operation("GET", f"{_NAMESPACE}/{insights}/metrics", self._hub_metrics),
            Operation("GET", f"{_NAMESPACE}/{insights}/metricDefinitions", self._hub_definitions),
            Operation("GET", f"{_NAMESPACE}/{insights}/metricNamespaces", self._namespaces),
            Operation("GET", f"{_JOB}/{insights}/metrics", self._job_metrics),
            Operation("GET", f"{_JOB}/{insights}/metricDefinitions", self._job_definitions),
            Operation("GET", f"{_JOB}/{insights}/metricNamespaces", self._namespaces),
            Operation("GET", f"{SUBSCRIPTION}/{insights}/eventtypes/management/values", self._activity),
        ]

    def top_level(self, subscription: str, group: str) -> Sequence[dict[str, Any]]:
        """It has no resources of its own."""
        return []

    def delete_group(self, group: str) -> None:
        """There is nothing to delete."""

    # -- metrics

    def _hubs(self, request: ArmRequest) -> list[EventHub]:
        """Return the hubs of the namespace that a request names. Raises ArmError."""
        namespace = self._context.hub.namespace
        if request.names["namespace"].lower() != namespace.name.lower():
            raise resource_not_found("Microsoft.EventHub/namespaces", request.names["namespace"], request.group)
        return list(namespace.event_hubs.values())

    def _hub_metrics(self, request: ArmRequest) -> ArmAnswer:
        hubs, span, condition = self._hubs(request), _span(request), request.query.get("$filter", "")
        wanted = [name for name in _ENTITY.findall(condition) if name != "*"]
        if wanted:
            hubs = [hub for hub in hubs if hub.name.lower() in map(str.lower, wanted)]
        groups = [[hub] for hub in hubs] if _ENTITY.search(condition) else [hubs]

        def series(metric: Metric) -> list[dict[str, Any]]:
            found: list[tuple[list[list[float]], dict[str, Any]]] = []
            for group in groups:
                is_whole = not _ENTITY.search(condition)
                labels = [] if is_whole else [("entityname", group[0].name)]
                values = self._hub_values(metric, group, span, is_whole=is_whole)
                found.append((values, _series(labels, span, values, _aggregations(request, metric))))
            return _first_of(request, found)

        return _answer(request, span, "Microsoft.EventHub/namespaces", HUB_METRICS, series)

    def _hub_values(
        self, metric: Metric, hubs: Sequence[EventHub], span: _Span, *, is_whole: bool
    ) -> list[list[float]]:
        """Return the values of a metric in each part of a span.

        `is_whole` is whether they are of the namespace: refused requests that name no hub count then, too.
        """
        times, now_s = span.times, time.time()
        logs = [partition.log for hub in hubs for partition in hub.partitions]
        if metric.name == "IncomingMessages":
            moments = [*times, span.end_s]
            numbers = [[log.sequence_at_time(at * 1000, inclusive=True) for log in logs] for at in moments]
            totals = [sum(row) for row in numbers]
            return [[float(after - before)] for before, after in itertools.pairwise(totals)]
        if metric.name == "IncomingBytes":
            sizes = [_sizes_before(log, [*times, span.end_s]) for log in logs]
            totals = [sum(row) for row in zip(*sizes, strict=True)] or [0] * (len(times) + 1)
            # Retention may delete events meanwhile.
            return [[float(max(0, after - before))] for before, after in itertools.pairwise(totals)]
        deliveries, counts = self._context.hub.metrics.deliveries, self._context.hub.metrics.counts
        stretch = span.begin_s, span.step_s, len(times)
        if metric.name in ("OutgoingMessages", "OutgoingBytes"):
            series = deliveries.series if metric.name == "OutgoingMessages" else deliveries.sizes
            return _summed([series(hub.name, *stretch) for hub in hubs], len(times))
        if metric.name in _CONNECTIONS:
            return self._connections(metric.name, span, now_s) if is_whole else [[] for _ in times]
        if metric.name in _COUNTED:
            named = [hub.name for hub in hubs] + ([""] if is_whole else [])
            return _summed([counts.of((metric.name, name), *stretch) for name in named], len(times))
        # Only the present value of these is known.
        writers = [(one, one.capture) for hub in hubs for one in hub.partitions]
        present = float(
            sum(log.size_bytes for log in logs)
            if metric.name == "Size"
            else sum(one.log.next_sequence_number - writer.keep_from for one, writer in writers if writer is not None)
        )
        return [[present] if at <= now_s < at + span.step_s else [] for at in times]

    def _connections(self, name: str, span: _Span, now_s: float) -> list[list[float]]:
        """Return how many connections were open, opened or closed in each minute of the last hour, in the span's parts.

        Connections are to the namespace: a client uses any number of hubs over one.
        """
        metrics, minutes = self._context.hub.metrics, range(span.begin_s, span.end_s, _MINUTE_S)
        opened, closed = (
            metrics.counts.of((one, ""), span.begin_s, _MINUTE_S, len(minutes))
            for one in (Activity.CONNECTIONS_OPENED, Activity.CONNECTIONS_CLOSED)
        )
        parts: list[list[float]] = [[] for _ in span.times]
        before = float(metrics.connections_open)
        after_s = max(span.end_s, int(now_s) // _MINUTE_S * _MINUTE_S + _MINUTE_S)
        missed = range(span.end_s, after_s, _MINUTE_S)
        for one, sign in ((Activity.CONNECTIONS_OPENED, -1), (Activity.CONNECTIONS_CLOSED, 1)):
            before += sign * sum(n or 0 for n in metrics.counts.of((one, ""), span.end_s, _MINUTE_S, len(missed)))
        # From the present backwards: what was open at a minute's end is what was open later, less what has come since.
        for at_s, connected, disconnected in reversed(list(zip(minutes, opened, closed, strict=True))):
            if connected is None or disconnected is None or at_s > now_s:
                continue
            value = before if name == _ACTIVE else connected if name == Activity.CONNECTIONS_OPENED else disconnected
            parts[(at_s - span.begin_s) // span.step_s].insert(0, float(value))
            before += disconnected - connected
        return parts

    def _job_name(self, request: ArmRequest) -> tuple[Jobs, str]:
        jobs, name = self._jobs, request.names["job"]
        key = f"microsoft.streamanalytics/streamingjobs/{name}".lower()
        try:
            if jobs is not None and self._resource_groups.is_in(key, request.group):
                return jobs, jobs.show(name).name
        except JobNotFound:
            pass
        raise resource_not_found("Microsoft.StreamAnalytics/streamingjobs", name, request.group)

    def _job_metrics(self, request: ArmRequest) -> ArmAnswer:
        (jobs, name), span = self._job_name(request), _span(request)
        is_recent = span.begin_s > time.time() - Resolution.SECOND.rows
        resolution = Resolution.SECOND if is_recent else Resolution.MINUTE
        samples = jobs.history(name, resolution, span.begin_s - 2.0 * resolution.seconds)

        def series(metric: Metric) -> list[dict[str, Any]]:
            values: list[list[float]] = [[] for _ in span.times]
            before: float | None = None
            for at_s, sample in samples:
                value = sample.get(metric.source)
                if value is None:
                    before = None
                    continue
                grown = value if metric.is_gauge else (None if before is None or value < before else value - before)
                before = value
                place = int(at_s - span.begin_s) // span.step_s
                if grown is not None and 0 <= place < len(values) and at_s < span.end_s:
                    values[place].append(grown)
            return [_series([], span, values, _aggregations(request, metric))]

        return _answer(request, span, "Microsoft.StreamAnalytics/streamingjobs", JOB_METRICS, series)

    def _hub_definitions(self, request: ArmRequest) -> ArmAnswer:
        self._hubs(request)
        return _definitions(request, "Microsoft.EventHub/namespaces", HUB_METRICS, ["EntityName"])

    def _job_definitions(self, request: ArmRequest) -> ArmAnswer:
        self._job_name(request)
        return _definitions(request, "Microsoft.StreamAnalytics/streamingjobs", JOB_METRICS, [])

    def _namespaces(self, request: ArmRequest) -> ArmAnswer:
        kind = "Microsoft.EventHub/namespaces" if "namespace" in request.names else None
        kind = kind or "Microsoft.StreamAnalytics/streamingjobs"
        found = {
            "id": f"{request.path}/{kind}",
            "type": f"{PROVIDER}/metricNamespaces",
            "name": kind,
            "classification": "Platform",
            "properties": {"metricNamespaceName": kind},
        }
        return ArmAnswer(body={"value": [found]})

    # -- the log of changes

    def _activity(self, request: ArmRequest) -> ArmAnswer:
        condition = request.query.get("$filter", "")
        begin, end = (_time_in(condition, which) for which in ("ge", "le"))
        fields = {
            name.lower(): value.lower()
            for name, value in re.findall(r"(resourceGroupName|resourceUri|resourceId)\s+eq\s+'([^']*)'", condition)
        }
        found = [
            {**one, "subscriptionId": request.subscription}
            for one in self._changes.entries(begin, end)
            if fields.get("resourcegroupname", "") in ("", one["resourceGroupName"].lower())
            and fields.get("resourceuri", fields.get("resourceid", "")) in ("", one["resourceId"].lower())
        ]
        return ArmAnswer(body={"value": found})


def _summed(counts: Sequence[Sequence[int | None]], length: int) -> list[list[float]]:
    """Return the sums of several series; a part of which none is known has no value."""
    known = [[one for one in row if one is not None] for row in zip(*counts, strict=True)]
    return [[float(sum(row))] if row else [] for row in known] or [[] for _ in range(length)]


def _sizes_before(log: PartitionStore, times_s: Sequence[int]) -> list[int]:
    """Return how many bytes of a partition arrived before each time, since its first event. Raises LogError."""
    numbers = [log.sequence_at_time(at * 1000, inclusive=True) for at in times_s]
    offsets = {number: _offset_of(log, number) for number in set(numbers)}
    return [offsets[number] for number in numbers]


def _offset_of(log: PartitionStore, number: int) -> int:
    """Return the offset of the last event before one, or of the first that is kept; 0 for none. Raises LogError."""
    if number >= log.next_sequence_number:
        return log.last_offset if number else 0
    if number == 0:
        return 0
    try:
        batches = log.read_batches(max(number - 1, log.begin_sequence_number), max_bytes=1, max_events=1)
    except LogDamaged:
        return log.last_offset
    return batches[0].offsets[0] if batches else log.last_offset


class ActivityLog:
    """What was changed through the API, the newest last: kept in a file, of which the last changes are answered."""

    MOST = 2000

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._entries: deque[dict[str, Any]] = deque(maxlen=self.MOST)
        self._written = 0
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            lines = []
        except OSError as error:
            _logger.warning("the log of changes cannot be read: %s", error)
            lines = []
        for line in lines:
            try:
                self._entries.append(json.loads(line))
            except ValueError:
                continue  # cut off by a crash
        self._written = len(lines)

    def note(self, action: str, path: str, method: str, who: str, status: int, correlation: str) -> None:
        """Remember a change; that it cannot be written is logged, and does not undo it."""
        segments = path.strip("/").split("/")
        group = segments[3] if len(segments) > 3 and segments[2].lower() == "resourcegroups" else DEFAULT_GROUP
        provider = action.partition("/")[0]
        result = "Succeeded" if status < 400 else "Failed"
        when = time_text(datetime.now(UTC))
        entry = {
            "id": f"{path}/events/{uuid.uuid4()}",
            "eventDataId": str(uuid.uuid4()),
            "correlationId": correlation,
            "operationId": correlation,
            "eventTimestamp": when,
            "submissionTimestamp": when,
            "caller": who,
            "level": "Informational" if status < 400 else "Error",
            "channels": "Operation",
            "category": {"value": "Administrative", "localizedValue": "Administrative"},
            "operationName": {"value": action, "localizedValue": action},
            "resourceGroupName": group,
            "resourceProviderName": {"value": provider, "localizedValue": provider},
            "resourceId": path,
            "status": {"value": result, "localizedValue": result},
            "subStatus": {"value": str(status), "localizedValue": str(status)},
            "httpRequest": {"method": method, "clientRequestId": correlation},
            "properties": {},
        }
        with self._lock:
            self._entries.append(entry)
            try:
                self._write(entry)
            except OSError as error:
                _logger.warning("a change could not be written to the log of changes: %s", error)

    def _write(self, entry: dict[str, Any]) -> None:
        if self._written >= 2 * self.MOST:
            text = "".join(json.dumps(one) + "\n" for one in self._entries)
            self._path.write_text(text, encoding="utf-8")
            self._written = len(self._entries)
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
        self._written += 1

    def entries(self, begin: datetime | None = None, end: datetime | None = None) -> list[dict[str, Any]]:
        """Return the changes of a stretch of time, the newest first."""
        with self._lock:
            found = list(self._entries)
        return [
            one
            for one in reversed(found)
            if (begin is None or _parsed(one["eventTimestamp"]) >= begin)
            and (end is None or _parsed(one["eventTimestamp"]) <= end)
        ]


def _parsed(text: str) -> datetime:
    """Return a time of a query. Raises ArmError."""
    try:
        found = datetime.fromisoformat(text.strip().replace(" ", "+"))
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise bad_request(f"'{text[:40]}' is not a time, such as 2026-01-31T12:00:00Z", "BadRequest") from None


def _time_in(condition: str, comparison: str) -> datetime | None:
    found = re.search(rf"eventTimestamp\s+{comparison}\s+'?([^'\s]+)", condition, re.IGNORECASE)
    return None if found is None else _parsed(found[1])


def _span(request: ArmRequest) -> _Span:
    """Return the stretch of time of a request, aligned to its interval. Raises ArmError."""
    text = unquote(request.query.get("timespan", ""))  # the Azure CLI encodes it twice
    if text:
        first, separator, last = text.partition("/")
        if not separator:
            raise bad_request("timespan: expected two times with a slash between them")
        begin, end = _parsed(first), _parsed(last)
    else:
        end = datetime.now(UTC)
        begin = end - _DEFAULT_SPAN
    interval = request.query.get("interval", "PT1M").upper()
    if interval == "FULL":
        step_s = max(60, int((end - begin).total_seconds()))
    elif interval in _INTERVALS:
        step_s = _INTERVALS[interval]
    else:
        raise bad_request(f"interval: expected one of {', '.join(_INTERVALS)}, got '{interval[:20]}'")
    first_s = int(begin.timestamp()) // 60 * 60
    last_s = max(first_s + step_s, -(-int(end.timestamp()) // 60) * 60)
    if (last_s - first_s) // step_s > _MOST_POINTS:
        raise bad_request(f"timespan and interval give more than {_MOST_POINTS:,} points: choose a longer interval")
    return _Span(first_s, last_s, step_s, interval)


def _aggregations(request: ArmRequest, metric: Metric) -> list[str]:
    """Return the aggregations that a request asks for. Raises ArmError."""
    asked = [one.strip().capitalize() for one in request.query.get("aggregation", "").split(",") if one.strip()]
    unknown = [one for one in asked if one not in _AGGREGATIONS]
    if unknown:
        raise bad_request(f"aggregation: expected {', '.join(_AGGREGATIONS)}, got '{unknown[0][:20]}'")
    return asked or [metric.primary]


_COMPUTED: Mapping[str, Callable[[Sequence[float]], float]] = {
    "average": lambda row: sum(row) / len(row),
    "minimum": min,
    "maximum": max,
    "total": sum,
    "count": len,
}


def _first_of(request: ArmRequest, found: list[tuple[list[list[float]], dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the series of a metric by `orderby`, at most `top` of them. Raises ArmError."""
    order, top = request.query.get("orderby", "").split(), request.query.get("top", "")
    if order:
        by = order[0].lower()
        by = {"sum": "total", "avg": "average", "min": "minimum", "max": "maximum"}.get(by, by)
        direction = order[1].lower() if len(order) == 2 else "asc"
        if by not in _COMPUTED or direction not in ("asc", "desc") or len(order) > 2:
            raise bad_request(f"orderby: expected an aggregation and asc or desc, got '{' '.join(order)[:40]}'")

        def key(one: tuple[list[list[float]], dict[str, Any]]) -> float:
            values = [value for row in one[0] for value in row]
            return _COMPUTED[by](values) if values else 0.0

        found = sorted(found, key=key, reverse=direction == "desc")
    if top and not (top.isdecimal() and 0 < len(top) < 10 and int(top)):
        raise bad_request(f"top: expected a number from 1, got '{top[:20]}'")
    return [series for _, series in found[: int(top) if top else None]]


def _series(
    labels: Sequence[tuple[str, str]], span: _Span, values: Sequence[Sequence[float]], aggregations: Sequence[str]
) -> dict[str, Any]:
    data = []
    for at, row in zip(span.times, values, strict=True):
        point: dict[str, Any] = {"timeStamp": datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
        if row:
            point |= {name.lower(): _COMPUTED[name.lower()](row) for name in aggregations}
        data.append(point)
    metadata = [{"name": {"value": name, "localizedValue": name}, "value": value} for name, value in labels]
    return {"metadatavalues": metadata, "data": data}


def _answer(
    request: ArmRequest,
    span: _Span,
    kind: str,
    metrics: Sequence[Metric],
    series: Callable[[Metric], list[dict[str, Any]]],
) -> ArmAnswer:
    """Return the metrics that a request names, the first of them if it names none. Raises ArmError."""
    known = {metric.name.lower(): metric for metric in metrics}
    names = [name.strip() for name in request.query.get("metricnames", "").split(",") if name.strip()]
    unknown = [name for name in names if name.lower() not in known]
    if unknown:
        valid = ", ".join(metric.name for metric in metrics)
        raise bad_request(f"Failed to find metric configuration for '{unknown[0][:60]}'; known: {valid}")
    chosen = [known[name.lower()] for name in names] or [metrics[0]]
    begin, end = (datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for at in (span.begin_s, span.end_s))
    value = [
        {
            "id": f"{request.path}/{metric.name}",
            "type": f"{PROVIDER}/metrics",
            "name": {"value": metric.name, "localizedValue": metric.title},
            "displayDescription": metric.title,
            "unit": metric.unit,
            "timeseries": series(metric),
            "errorCode": "Success",
        }
        for metric in chosen
    ]
    body = {"cost": 0, "timespan": f"{begin}/{end}", "interval": span.interval, "namespace": kind, "value": value}
    return ArmAnswer(body={**body, "resourceregion": "local"})


def _definitions(request: ArmRequest, kind: str, metrics: Sequence[Metric], dimensions: Sequence[str]) -> ArmAnswer:
    resource = request.path[: request.path.lower().rindex("/providers/")]
    value = [
        {
            "id": f"{request.path}/{metric.name}",
            "resourceId": resource,
            "namespace": kind,
            "name": {"value": metric.name, "localizedValue": metric.title},
            "displayDescription": metric.title,
            "unit": metric.unit,
            "isDimensionRequired": False,
            "primaryAggregationType": metric.primary,
            "supportedAggregationTypes": list(_AGGREGATIONS),
            "dimensions": [{"value": name, "localizedValue": name} for name in dimensions],
            "metricAvailabilities": [{"timeGrain": name, "retention": "P1D"} for name in _INTERVALS],
        }
        for metric in metrics
    ]
    return ArmAnswer(body={"value": value})
