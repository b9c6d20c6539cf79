"""The metrics of a job, under the names that Stream Analytics documents, and a sampled log of its data errors.

Source: Azure Stream Analytics job metrics and data errors. Late and Out-of-Order count dropped and
adjusted events alike; an event that was both counts under both.
"""

from __future__ import annotations

import errno
import json
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate.connectors.model.errors import UnavailableError
from tidegate.engine import FunctionCalls
from tidegate.ordering import format_time

INPUT_EVENTS = "Input Events"
INPUT_SOURCES_RECEIVED = "Input Sources Received"
INPUT_EVENT_BYTES = "Input Event Bytes"
EARLY_INPUT_EVENTS = "Early Input Events"
LATE_INPUT_EVENTS = "Late Input Events"
OUT_OF_ORDER_EVENTS = "Out-of-Order Events"
INPUT_DESERIALIZATION_ERRORS = "Input Deserialization Errors"
RUNTIME_ERRORS = "Runtime Errors"
OUTPUT_EVENTS = "Output Events"
DATA_CONVERSION_ERRORS = "Data Conversion Errors"
FUNCTION_REQUESTS = "Function Requests"
FAILED_FUNCTION_REQUESTS = "Failed Function Requests"
FUNCTION_EVENTS = "Function Events"
BACKLOGGED_INPUT_EVENTS = "Backlogged Input Events"
WATERMARK_DELAY = "Watermark Delay"

COUNTERS = (
    INPUT_EVENTS,
    INPUT_SOURCES_RECEIVED,
    INPUT_EVENT_BYTES,
    EARLY_INPUT_EVENTS,
    LATE_INPUT_EVENTS,
    OUT_OF_ORDER_EVENTS,
    INPUT_DESERIALIZATION_ERRORS,
    RUNTIME_ERRORS,
    OUTPUT_EVENTS,
    DATA_CONVERSION_ERRORS,
    FUNCTION_REQUESTS,
    FAILED_FUNCTION_REQUESTS,
    FUNCTION_EVENTS,
)

# A person reads the log of errors: a few of each kind show what is wrong, and all of them would fill the disk.
SAMPLES_A_STEP = 5
RUNTIME_ERROR = "RuntimeError"
"""The kind of the data errors that `RUNTIME_ERRORS` counts."""
SPLIT_GROUP = "SplitGroup"
"""The kind of those that no metric counts: nothing is lost, but events of one thing may be in two groups."""
DATA_ERRORS_FILE = "data-errors.jsonl"
_WRITE_EVERY_S = 5.0
_LONGEST_FILE_BYTES = 8 << 20

Group = tuple[str, str, str]
"""Kind, input and partition of data errors; for an output, the output's name and no partition."""


@dataclass(frozen=True, slots=True)
class DataError:
    """One event that could not be used unchanged, and its place in the log. ``arrival`` in ticks.

    For a row that an output rejected, ``input`` is the output, ``partition`` is "", ``sequence_number`` is the row's
    number among those for the output, and ``arrival`` is its System.Timestamp. For a row that failed after operators
    had combined events, ``input`` and ``partition`` are "" and ``arrival`` is its System.Timestamp too.

    ``reason`` is the message without what differs from event to event; "" if it is all of it.
    """

    kind: str
    input: str
    partition: str
    sequence_number: int
    arrival: int
    message: str
    example: str
    reason: str = ""


def add(totals: dict[str, int], counts: Mapping[str, int]) -> None:
    """Add ``counts`` to ``totals`` in place."""
    for name, count in counts.items():
        totals[name] = totals.get(name, 0) + count


def function_counts(calls: FunctionCalls) -> dict[str, int]:
    """Return the calls of registered functions by metric name; those that are 0 are left out."""
    counted = {
        FUNCTION_REQUESTS: calls.requests,
        FAILED_FUNCTION_REQUESTS: calls.failed,
        FUNCTION_EVENTS: calls.events,
    }
    return {name: count for name, count in counted.items() if count}


class DataErrorLog:
    """``data-errors.jsonl`` in a job's state folder: samples of data errors, grouped by kind, input and partition.

    A stream that is always late would fill the disk with reports, so a group is written at most every few seconds, with
    the count of all errors since, and the file is rotated when it has grown.
    """

    def __init__(self, folder: Path, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self.path = folder / DATA_ERRORS_FILE
        self._monotonic_s = monotonic_s
        self._written_at_s: dict[Group, float] = {}
        self._samples: dict[Group, list[DataError]] = {}
        self._counts: Counter[Group] = Counter()

    def take(self, errors: Iterable[DataError], counts: Mapping[Group, int]) -> None:
        """Collect data errors for `write_due` to write.

        Args:
            errors: samples.
            counts: how many there were, by kind, input and partition.
        """
        for error in errors:
            samples = self._samples.setdefault((error.kind, error.input, error.partition), [])
            if len(samples) < SAMPLES_A_STEP or error.reason not in {sample.reason for sample in samples}:
                samples.append(error)
        self._counts.update(counts)

    def write_due(self) -> None:
        """Write collected errors that are due; after a failure, call it again.

        Raises:
            UnavailableError: the disk refuses the write.
        """
        now_s = self._monotonic_s()
        due = [group for group in self._samples if now_s - self._written_at_s.get(group, -math.inf) >= _WRITE_EVERY_S]
        self._write(due, now_s)

    def flush(self) -> None:
        """Write all collected errors.

        Raises:
            UnavailableError: the disk refuses the write.
        """
        self._write(list(self._samples), self._monotonic_s())

    def _write(self, groups: list[Group], now_s: float) -> None:
        if not groups:
            return
        try:
            if self.path.exists() and self.path.stat().st_size > _LONGEST_FILE_BYTES:
                self.path.replace(self.path.with_suffix(".jsonl.1"))
            records = [_record(self._samples[group], self._counts[group]) for group in groups]
            lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
            _append(self.path, lines.encode())
        except OSError as error:
            raise UnavailableError(f"cannot write {self.path}: {error.strerror}") from error
        for group in groups:
            del self._samples[group]
            self._counts.pop(group, None)
            self._written_at_s[group] = now_s


def _append(path: Path, data: bytes) -> None:
    """Append all of the data or nothing."""
    with path.open("ab", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        try:
            if file.write(data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            file.truncate(end)
            raise


def _record(samples: list[DataError], count: int) -> dict[str, Any]:
    """Return one record, with the fields of the service's own diagnostic log."""
    first = samples[0]
    place = f"input {first.input}, partition {first.partition}" if first.partition else f"output {first.input}"
    if not first.input:
        place = "a row of several events"
    # One of each reason before a second one of any.
    again = [place for place, one in enumerate(samples) if one.reason in {before.reason for before in samples[:place]}]
    samples = [one for place, one in enumerate(samples) if place not in again] + [samples[place] for place in again]
    return {
        "Source": first.input,
        "Type": "DataError",
        "DataErrorType": first.kind,
        "BriefMessage": first.message,
        "Message": f"{first.message} ({place})",
        "ExampleEvents": [_example(sample, first) for sample in samples[:SAMPLES_A_STEP]],
        "FromTimestamp": format_time(min(sample.arrival for sample in samples)),
        "ToTimestamp": format_time(max(sample.arrival for sample in samples)),
        "EventCount": max(count, len(samples)),
    }


def _example(sample: DataError, first: DataError) -> dict[str, Any]:
    difference = {} if sample.reason == first.reason else {"message": sample.message}
    if sample.partition:
        return {
            "partition": sample.partition,
            "sequenceNumber": sample.sequence_number,
            "body": sample.example,
            **difference,
        }
    if not sample.input:
        return {"timestamp": format_time(sample.arrival), **difference}
    return {"row": sample.sequence_number, "result": sample.example, **difference}
