"""What a run over recorded data could not use, or not unchanged: counts by reason, with the first sample of each.

A job has metrics and a log of data errors for this. A run that ends reports it at the end, too: a row that failed looks
exactly like one that the query did not select.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from tidegate.connectors.model.metrics import DATA_ERRORS_FILE, RUNTIME_ERROR, SPLIT_GROUP, DataError, DataErrorLog
from tidegate.engine import Problem
from tidegate.job.runtime.batch import PROBLEMS
from tidegate.job.runtime.step import Step
from tidegate.ordering import DATA_ERRORS, EARLY, INVALID_KEY, INVALID_TIMESTAMP, LATE, OUT_OF_ORDER, format_time

POLICY_KINDS = frozenset(DATA_ERRORS[reason] for reason in (EARLY, LATE, OUT_OF_ORDER))
"""What the event-ordering policy adjusts or drops, as it was asked to. All other kinds are errors."""
KINDS = (*dict.fromkeys(problem.data_error_type for problem in Problem), *DATA_ERRORS.values(), RUNTIME_ERROR)
"""Every kind of data error that a run without outputs can have."""
FEWEST_EVENTS = 1_000
"""A share of fewer events says little, unless they are all."""
LEFT_OUT = frozenset(
    [DATA_ERRORS[INVALID_TIMESTAMP], DATA_ERRORS[INVALID_KEY], *(kind for kind, _ in PROBLEMS.values())]
)
"""The kinds whose events are not among those that the metric `INPUT_EVENTS` counts."""
_LONGEST_EXAMPLE = 100
_SPELLED = {kind.lower(): kind for kind in KINDS}
_LONGEST_SAMPLE = 200
_MOST_SAMPLES = 100


@dataclass(frozen=True, slots=True)
class DataErrorCount:
    """How many events or rows there were of one kind and reason, and the first of them.

    ``input`` is "" for rows that failed after operators had combined events.
    """

    kind: str
    input: str
    count: int
    first: DataError

    @property
    def is_error(self) -> bool:
        """Return whether it is more than the event-ordering policy at work, or a group that was split."""
        return self.kind not in POLICY_KINDS and self.kind != SPLIT_GROUP

    def __str__(self) -> str:
        first = self.first
        where = f"input {self.input}" if self.input else "a row of several events"
        if first.partition:
            example = first.example if len(first.example) <= _LONGEST_SAMPLE else first.example[:_LONGEST_SAMPLE] + "…"
            sample = f"partition {first.partition}, event {first.sequence_number}: {' '.join(example.split())}"
        else:
            sample = f"at {format_time(first.arrival)}"
        return f"{self.kind} {self.count:,} ({where}): {first.message}; first: {sample}"

    def as_json(self) -> dict[str, Any]:
        """Return the object that `-o json` prints."""
        first = self.first
        sample: dict[str, Any] = {"timestamp": format_time(first.arrival)}
        if first.partition:
            sample = {
                "partition": first.partition,
                "sequenceNumber": first.sequence_number,
                "arrival": format_time(first.arrival),
                "body": first.example,
            }
        return {
            "type": self.kind,
            "input": self.input or None,
            "message": first.message,
            "count": self.count,
            "first": sample,
        }


class DataErrorTally:
    """The data errors of a run, counted step by step."""

    def __init__(self, *, keeps_samples: bool = True) -> None:
        """
        Args:
            keeps_samples: keep those that `write` writes; a live job writes its own.
        """
        self._keeps_samples = keeps_samples
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._first: dict[tuple[str, str, str], DataError] = {}
        self._samples: list[DataError] = []
        self._by_partition: Counter[tuple[str, str, str]] = Counter()

    def take(self, step: Step) -> None:
        """Count the data errors of a step."""
        self._counts.update(step.reasons)
        self._by_partition.update(step.data_error_counts)
        for error in step.data_errors:
            known = self._first.setdefault((error.kind, error.input, error.reason), error)
            if self._keeps_samples and (
                known is error or self._by_partition[error.kind, error.input, error.partition] <= _MOST_SAMPLES
            ):
                self._samples.append(error)

    def counts(self) -> list[DataErrorCount]:
        """Return the counts by kind, input and reason: errors first, in the order in which each was first met."""
        found = [
            DataErrorCount(kind, name, count, self._first[kind, name, reason])
            for (kind, name, reason), count in self._counts.items()
        ]
        return sorted(found, key=lambda one: not one.is_error)

    def by_kind(self) -> dict[str, int]:
        """Return how many there were of each kind."""
        kinds: Counter[str] = Counter()
        for (kind, _, _), count in self._counts.items():
            kinds[kind] += count
        return dict(kinds)

    def summary(self) -> str:
        """Return the counts by kind in a few words; "" if there are none."""
        return ", ".join(f"{kind} {count:,}" for kind, count in self.by_kind().items())

    def report(self) -> list[str]:
        """Return the counts for people, a line each below a heading; no line if there are none."""
        counts = self.counts()
        errors = sum(one.count for one in counts if one.is_error)
        policy = sum(one.count for one in counts if one.kind in POLICY_KINDS)
        split = sum(one.count for one in counts if one.kind == SPLIT_GROUP)
        heads = []
        if errors:
            heads.append(f"{errors:,} {'events or rows' if errors > 1 else 'event or row'} could not be used")
        if policy:
            heads.append(f"{policy:,} time{'s' if policy > 1 else ''} the event-ordering policy applied")
        if split:
            heads.append(f"{split:,} event{'s' if split > 1 else ''} in another group than numbers of the same value")
        return [f"{' and '.join(heads)}:", *(f"  {one}" for one in counts)] if heads else []

    def write(self, folder: Path) -> Path | None:
        """Write samples to ``data-errors.jsonl`` in a folder, as a live job does; None if there are none.

        A file of an earlier run is replaced or, if there is nothing to write, removed.

        Raises:
            UnavailableError, OSError: it cannot be written.
        """
        path = folder / DATA_ERRORS_FILE
        path.unlink(missing_ok=True)
        if not self._samples:
            return None
        folder.mkdir(parents=True, exist_ok=True)
        log = DataErrorLog(folder)
        log.take(self._samples, self._by_partition)
        log.flush()
        return log.path


def kind_problem(declared: Mapping[str, int]) -> str | None:
    """Return what is wrong with the kinds that a test declares; None if all exist."""
    for kind in declared:
        if kind.lower() not in _SPELLED:
            near = get_close_matches(kind, KINDS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"kinds are {', '.join(KINDS)}"
            return f"{kind} is no kind of data error; {hint}"
    return None


def undeclared(counts: Sequence[DataErrorCount], declared: Mapping[str, int]) -> list[str]:
    """Return how data errors differ from those that a test declares, a line each.

    Args:
        declared: how many of each kind there must be; names match without case. What the event-ordering policy does
            need not be declared.
    """
    declared = {_SPELLED.get(kind.lower(), kind): count for kind, count in declared.items()}
    found = []
    for kind in dict.fromkeys([*declared, *(one.kind for one in counts if one.is_error)]):
        of_kind = [one for one in counts if one.kind == kind]
        count, expected = sum(one.count for one in of_kind), declared.get(kind, 0)
        if count == expected:
            continue
        if not of_kind:
            found.append(f"data errors: expected {kind} {expected:,}, got none")
        found += [f"data errors: expected {kind} {expected:,}, got {one}" for one in of_kind]
    return found


def share_of_events(where: str, kind: str, count: int, events: int, sample: DataError | None) -> str:
    """Return a sentence, without its full stop, about a kind of data error that concerns many events.

    Args:
        where: the input, and the partition if only its events are counted.
        count: of the events with the error, among ``events``.
    """
    what = kind if sample is None else f"{kind} ({sample.message})"
    example = "" if sample is None else " ".join(sample.example.split())
    if len(example) > _LONGEST_EXAMPLE:
        example = f"{example[:_LONGEST_EXAMPLE]}…"
    shown = f"; for example event {sample.sequence_number}: {example}" if sample is not None and example else ""
    percent = 100 * count // max(1, events)
    return f"{where}: {count:,} of {events:,} events ({percent} %) were adjusted or rejected: {what}{shown}"
