"""Samples: the last events of a job's inputs, read in place, as a log that ends; and testing a query on them.

A test takes the job's own steps, with the rows kept in place of outputs.
"""

from __future__ import annotations

import base64
import itertools
import json
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tidegate import outbound
from tidegate.connectors.inputs.protobuf import message_reader
from tidegate.connectors.inputs.recorded import RecordedEvent, RecordedLine, RecordedLog, recorded_events
from tidegate.connectors.inputs.schema_registry import message_path
from tidegate.connectors.model.errors import InputError, JobError
from tidegate.connectors.model.events import Events, InputLog, LogRange, PartitionEnd
from tidegate.connectors.model.metrics import COUNTERS, OUTPUT_EVENTS, add
from tidegate.engine import DEFAULT_LIMITS, Unreadable, ValueReader, read_container
from tidegate.job.config.definition import definition_of
from tidegate.job.prepare.loading import Job, prepare_job
from tidegate.job.prepare.opening import close_logs, open_logs
from tidegate.job.runtime.data_error_tally import DataErrorTally
from tidegate.job.runtime.placement import DriverPlacement
from tidegate.job.runtime.step import Stepper, StepSettings
from tidegate.ordering import END_OF_TIME, Policy, format_ticks, format_time

DEFAULT_EVENTS = 1000
MAX_EVENTS = 100_000
SHOWN_EVENTS = 20
SHOWN_RECORDS = 1000
_BATCH_EVENTS = 4096
_RECORDED = frozenset(field.encode_name for field in msgspec.structs.fields(RecordedLine))


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The last events of each partition of a log, after which nothing follows: an `InputLog`."""

    log: InputLog
    begins: Mapping[str, tuple[int, int]]

    @classmethod
    def of(cls, log: InputLog, events: int) -> LogEnd:
        """Return the last events of a log: so many, shared among the partitions that have any.

        Raises:
            InputError: the log cannot be reached.
        """
        ends = log.ends()
        used = [end for end in ends.values() if end.end > end.begin]
        each = max(1, events // max(1, len(used)))
        return cls(log, {name: (max(end.begin, end.end - each), end.end) for name, end in ends.items()})

    def ends(self) -> dict[str, PartitionEnd]:
        return {
            name: PartitionEnd(begin, end, END_OF_TIME, complete=True) for name, (begin, end) in self.begins.items()
        }

    def first_at(self, partition: str, arrival: int) -> int:
        begin, end = self.begins[partition]
        return min(max(self.log.first_at(partition, arrival), begin), end)

    def range(self, partition: str, start: int, end: int) -> LogRange:
        return self.log.range(partition, start, end)

    def close(self) -> None:
        """Do nothing: the log's opener closes it."""


def job_of(definition: Mapping[str, Any], **changes: Any) -> Job:
    """Return a prepared job. Raises JobError."""
    content = {**definition, **changes}
    missing = [part for part in ("query", "inputs") if not content.get(part) and not content.get(f"{part}_file")]
    if missing:
        raise JobError(f"the job is incomplete: it has no {' and no '.join(missing)}")
    where = f"job '{content.get('name')}'"
    for name, section in content["inputs"].items() if isinstance(content["inputs"], Mapping) else ():
        try:
            outbound.check_settings(section)
        except outbound.AddressRefused as error:
            raise JobError(f"input '{name}': {error}") from None
    return prepare_job(definition_of(content, Path(where)), where)


@contextmanager
def log_ends(job: Job, events: int) -> Iterator[dict[str, InputLog]]:
    """Yield the last events of each stream that a job's query reads. Raises InputError."""
    logs, _ = open_logs(job.definition, job.program, job.policy)
    try:
        yield {name: LogEnd.of(log, events) for name, log in logs.items()}
    finally:
        close_logs(logs)


def uploaded_log(name: str, text: str) -> tuple[RecordedLog, bool]:
    """Return an uploaded file as a log, and whether its events say when they arrived.

    A line, or an element of an array, is a body, or an object with `body`, and `partition` and `arrival` if it says.
    A body that has the columns which Event Hubs adds (EventEnqueuedUtcTime, PartitionId) says both itself.

    Raises:
        JobError: it is neither JSON lines nor an array.
    """
    try:
        values = json.loads(text) if text.lstrip().startswith("[") else _lines(text)
    except (ValueError, RecursionError) as error:
        raise JobError(f"the events of {name} are neither lines of JSON nor an array: {error}") from None
    lines, is_timed = [], bool(values)
    for number, value in enumerate(values, start=1):
        is_wrapped = isinstance(value, dict) and "body" in value and set(value) <= _RECORDED
        entry = value if is_wrapped else {"body": value, "partition": _partition(value), "arrival": _enqueued(value)}
        try:
            line = msgspec.convert({**entry, "body": msgspec.Raw(msgspec.json.encode(entry["body"]))}, RecordedLine)
        except msgspec.ValidationError as error:
            raise JobError(f"{name}, event {number}: {error}") from None
        is_timed = is_timed and (line.arrival or line.enqueued_time) is not None
        lines.append((f"{name}, event {number}", line))
    return RecordedLog(_in_order(recorded_events(lines))), is_timed


def _lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def _enqueued(value: Any) -> str | None:
    """Return the arrival that a sample downloaded from the portal, or from Azure's, says."""
    if not isinstance(value, dict):
        return None
    found = value.get("EventEnqueuedUtcTime") or value.get("enqueuedTime")
    return found if isinstance(found, str) else None


def _partition(value: Any) -> int | str:
    """Return the partition that a sample says: the first one if it says none."""
    found = value.get("PartitionId", 0) if isinstance(value, dict) else 0
    return found if isinstance(found, str) or (isinstance(found, int) and not isinstance(found, bool)) else 0


def _in_order(events: Iterator[RecordedEvent]) -> Iterator[RecordedEvent]:
    yield from sorted(events, key=lambda event: event.arrival)


def sampled(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the last events of one input, as people read them. Raises JobError."""
    name = str(question["input"]).replace("]", "]]")
    job = job_of(question["definition"], query=f"SELECT * INTO [output] FROM [{name}]", early_results=None)
    with log_ends(job, SHOWN_EVENTS) as logs:
        (log,) = logs.values()
        events = [event for partition in log.ends() for event in _events(log, partition)]
    events.sort(key=lambda event: str(event["arrival"]))
    return {"events": events[-SHOWN_EVENTS:]}


def _events(log: InputLog, partition: str) -> Iterator[dict[str, Any]]:
    end = log.ends()[partition]
    if end.end > end.begin:
        for batch in log.range(partition, end.begin, end.end).read_events(_BATCH_EVENTS):
            yield from _shown(partition, batch)


def _shown(partition: str, batch: Events) -> Iterator[dict[str, Any]]:
    columns = (batch.sequence_numbers.tolist(), batch.arrivals.tolist(), batch.bodies)
    for number, arrival, body in zip(*columns, strict=True):
        yield {
            "partition": partition,
            "sequenceNumber": number,
            "arrival": format_time(arrival),
            "body": body[:4096].decode("utf-8", "replace"),
        }


def decoded(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the records of a `body`, given in base64: how many, and the first ones as JSON has them.

    It is a container of Avro, or one value of a `schema`, which may use the types of those that are `imported`. With
    the `format` protobuf it is a message as Kafka's serializers write it after the schema's number, and what is
    imported has names.

    Raises:
        InputError: it cannot be read.
    """
    if question.get("format") == "protobuf":
        return _message(base64.b64decode(question["body"]), question["schema"], question["imported"])
    body, schema, limits = base64.b64decode(question["body"]), question.get("schema"), DEFAULT_LIMITS.of_event()
    try:
        if schema is None:
            records = read_container(body, limits)
        else:
            records = [ValueReader(schema, question.get("imported") or (), limits).read(body)]
    except Unreadable as error:
        what = "a readable Avro container" if schema is None else "of its schema"
        raise InputError(f"the body is not {what}: {error}") from None
    return {"count": len(records), "records": [_plain(one) for one in records[:SHOWN_RECORDS]]}


def _message(framed: bytes, schema: str, imported: Mapping[str, str]) -> dict[str, Any]:
    try:
        path, content = message_path(framed)
        read = message_reader(schema, imported.items(), path)
        if read is None:
            raise ValueError("the schema has no message at " + ".".join(map(str, path)))
        records = list(read(content))
    except InputError:
        raise
    except Exception as error:  # google.protobuf's, which is an extra
        raise InputError(f"the body is not of its schema: {error}") from None
    return {"count": len(records), "records": [_plain(one) for one in records]}


def _plain(value: Any) -> Any:
    """Return a value of Avro as JSON has it: bytes in base64, and times and decimals as texts."""
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


MAX_ROWS = 500
NOT_TIMED = (
    "The uploaded events do not say when they arrived, so the event-ordering policy was not applied. "
    'Lines of {"arrival": …, "partition": …, "body": …} say it.'
)


def tested(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rows that a query gives for samples.

    The question has the `definition` with the query to test, how many `events` to sample of each input, and by input
    the text of a file `uploaded` in its place. It may say how many `rows` of each output to return, and that the
    events are taken in the order of their arrival, whatever the policy says (`unordered`).

    Raises:
        JobError: the query cannot run, or an input cannot be read.
    """
    began = time.monotonic()
    job = job_of(question["definition"])
    events = min(int(question.get("events") or DEFAULT_EVENTS), MAX_EVENTS)
    uploaded = {name.lower(): text for name, text in (question.get("uploaded") or {}).items() if text}
    read = {name: job.program.source_of(name).lower() for name in job.program.input_names}
    given = {name: uploaded_log(name, uploaded[source]) for name, source in read.items() if source in uploaded}
    policy, notes = Policy.none() if question.get("unordered") else job.policy, []
    if any(not is_timed for _, is_timed in given.values()):
        policy = Policy.none()
        notes.append(NOT_TIMED)
    most_rows = int(question.get("rows") or MAX_ROWS)
    logs: dict[str, InputLog] = {name: log for name, (log, _) in given.items()}
    if len(given) == len(read):
        return {**_run(job, policy, logs, most_rows, began), "notes": notes}
    with log_ends(job, events) as ends:
        return {**_run(job, policy, {**ends, **logs}, most_rows, began), "notes": notes}


def _run(job: Job, policy: Policy, logs: Mapping[str, InputLog], most_rows: int, began: float) -> dict[str, Any]:
    placement = DriverPlacement(job.program, policy)
    stepper = Stepper(job.program, policy, logs, placement, settings=StepSettings(MAX_EVENTS))
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in job.program.output_names}
    counts = dict.fromkeys(rows, 0)
    metrics: dict[str, int] = {}
    errors = DataErrorTally()
    complete = False
    while not complete:
        step = stepper.step()
        complete = step.complete
        errors.take(step)
        add(metrics, {name: count for name, count in step.counters.items() if name in COUNTERS})
        for left in step.rows:
            counts[left.output] = counts.get(left.output, 0) + len(left.timestamps)
            kept = rows.setdefault(left.output, [])
            room = most_rows - len(kept)
            times = format_ticks(left.timestamps[:room]) if room > 0 else []
            kept += [
                {"time": at, "row": row}
                for at, row in itertools.islice(zip(times, left.to_dicts(), strict=False), room)
            ]
    metrics.pop(OUTPUT_EVENTS, None)
    read = {
        name: {partition: end.end - end.begin for partition, end in log.ends().items()} for name, log in logs.items()
    }
    return {
        "outputs": [{"name": name, "rows": kept, "count": counts[name]} for name, kept in rows.items()],
        "events": {name: sum(events.values()) for name, events in read.items()},
        "partitions": read,
        "metrics": metrics,
        "policy": policy.describe(),
        "errors": [str(one) for one in errors.counts()],
        "dataErrors": [one.as_json() for one in errors.counts()],
        "milliseconds": round((time.monotonic() - began) * 1000),
    }
