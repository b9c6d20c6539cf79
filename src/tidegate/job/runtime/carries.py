"""How carries of many substreams travel between the driver and its tasks.

A carry with a million substreams has tens of megabytes, of which a step changes little. So both sides keep it. The
driver names the versions of a timeline's carry; a task is sent the name of a version, and returns what it has changed.
A worker without that version (it is new, or other workers did the last steps) rebuilds it from the last whole carry,
the *base*, and the changes since, which the driver has published to all workers. Once the changes are half as large as
the base, the driver publishes a new base.

A version is the result of one attempt at a task, and is named by it. If an attempt's result is not used, because the
task was repeated elsewhere or the step failed, new substreams may have other codes in it, so no later step builds on
it. What a worker keeps may be lost at any moment without changing a row.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from tidegate.connectors.model.events import Int64Array
from tidegate.engine import Program
from tidegate.job.runtime.batch import RangeResult, RangeTask, Task
from tidegate.job.runtime.emission import AnyCarry
from tidegate.job.runtime.task import run_task
from tidegate.ordering import Keys, Policy, SubstreamCarry

WHOLE_BELOW = 16_384
"""Carries of fewer substreams are sent whole."""

_MOST_CHANGES = 64

Timeline = tuple[str, str]


class Broadcast(Protocol):
    """A value that every worker can fetch."""

    @property
    def value(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class CarryChanges:
    """The difference between one version of a carry and the next.

    Attributes:
        version: the name of the next version.
        keys, new_times: new substreams with their largest times.
        codes, times: other substreams whose largest times have changed.
        arrival: the latest arrival known.
    """

    version: str
    keys: Keys
    new_times: Int64Array
    codes: Int64Array
    times: Int64Array
    arrival: int

    @classmethod
    def between(cls, before: SubstreamCarry, after: SubstreamCarry) -> CarryChanges | None:
        """Return the changes between two versions; None if codes changed because substreams were forgotten."""
        if after.keys.generation != before.keys.generation:
            return None
        first, count = len(before.max_times), len(after.max_times)
        codes = np.flatnonzero(after.max_times[:first] != before.max_times)
        new = after.keys.keys().take(np.arange(first, count))
        return cls(uuid.uuid4().hex, new, after.max_times[first:], codes, after.max_times[codes], after.arrival)

    def apply(self, carry: SubstreamCarry) -> SubstreamCarry:
        """Return the next version; ``carry`` has only the keys of its own version.

        Raises:
            ValueError: ``carry`` is another version than the one before.
        """
        first = len(carry.max_times)
        if not np.array_equal(carry.keys.codes(self.keys), first + np.arange(len(self.keys))):
            raise ValueError("these are the changes of another version of the carry")
        max_times = np.concatenate([carry.max_times, self.new_times])
        max_times[self.codes] = self.times
        return SubstreamCarry(carry.keys, max_times, carry.arrival).advance(self.arrival)

    def __len__(self) -> int:
        return len(self.codes) + 2 * len(self.keys)


@dataclass(frozen=True, slots=True)
class CarryVersion:
    """A carry by name.

    Attributes:
        versions: by name, from its base on, the number under which the base, or the changes since the version before,
            are published.
    """

    run: str
    timeline: Timeline
    versions: dict[str, int]
    arrival: int


# On the driver --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Sent:
    carry: SubstreamCarry
    versions: dict[str, int]
    changed: int = 0


@dataclass(slots=True)
class SentCarries:
    """The driver's side of the carries that workers keep.

    Attributes:
        publish: makes a value available to all workers.
        withdraw: ends that once no task refers to the value.
    """

    publish: Callable[[object], Broadcast]
    withdraw: Callable[[Any], None]
    published: dict[int, Broadcast] = field(default_factory=dict)
    _run: str = field(default_factory=lambda: uuid.uuid4().hex)
    _sent: dict[Timeline, _Sent] = field(default_factory=dict)
    _count: int = 0

    def sent(self, task: Task) -> Task:
        """Return the task with versions in place of its large carries."""
        return replace(task, ranges=[self._of_range(one) for one in task.ranges])

    def received(self, results: Sequence[RangeResult], tasks: Sequence[Task]) -> None:
        """Replace the changes in the results of tasks with the carries that follow from them."""
        ranges = {(one.input, one.partition): one for task in tasks for one in task.ranges}
        for result in results:
            if isinstance(changes := result.carry, CarryChanges):
                self._note(result, changes, ranges[result.input, result.partition])

    def close(self) -> None:
        """Withdraw everything; no task is sent any more."""
        for number in list(self.published):
            self.withdraw(self.published.pop(number))
        self._sent.clear()

    def _note(self, result: RangeResult, changes: CarryChanges, task_range: RangeTask) -> None:
        timeline = (task_range.input, task_range.partition)
        sent = self._sent[timeline]
        result.carry = sent.carry = changes.apply(sent.carry)
        sent.versions[changes.version] = self._publish(changes)
        sent.changed += len(changes)

    def _of_range(self, task_range: RangeTask) -> RangeTask:
        carry = task_range.carry
        if not isinstance(carry, SubstreamCarry) or len(carry.max_times) < WHOLE_BELOW:
            return task_range
        timeline = (task_range.input, task_range.partition)
        sent = self._sent.get(timeline)
        if sent is None or sent.carry.max_times is not carry.max_times or self._worn(sent):
            for number in sent.versions.values() if sent is not None else ():
                self.withdraw(self.published.pop(number))
            sent = self._sent[timeline] = _Sent(carry, {uuid.uuid4().hex: self._publish(carry)})
        # The clock may have advanced since.
        sent.carry = carry
        version: Any = CarryVersion(self._run, timeline, dict(sent.versions), carry.arrival)
        return replace(task_range, carry=version)

    @staticmethod
    def _worn(sent: _Sent) -> bool:
        return 2 * sent.changed > len(sent.carry.max_times) or len(sent.versions) > _MOST_CHANGES

    def _publish(self, value: object) -> int:
        self._count += 1
        self.published[self._count] = self.publish(value)
        return self._count


# On a worker ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class KeptCarries:
    """The carries that a worker keeps: for one run, by timeline, the version and the carry."""

    run: str = ""
    carries: dict[Timeline, tuple[str, SubstreamCarry]] = field(default_factory=dict)

    def task(self, task: Task, published: dict[int, Broadcast]) -> Task:
        """Return the task with its carries in place of their versions."""
        return replace(task, ranges=[replace(one, carry=self._carry(one.carry, published)) for one in task.ranges])

    def results(self, results: list[RangeResult], sent: Task, task: Task) -> list[RangeResult]:
        """Return the results with changes in place of carries that were sent as versions."""
        for result, version, task_range in zip(results, sent.ranges, task.ranges, strict=True):
            if isinstance(version.carry, CarryVersion):
                self._keep(result, version.carry, task_range.carry)
        return results

    def _carry(self, carry: AnyCarry | CarryVersion, published: dict[int, Broadcast]) -> AnyCarry:
        if not isinstance(carry, CarryVersion):
            return carry
        if self.run != carry.run:
            self.run, self.carries = carry.run, {}
        names = list(carry.versions)
        name, known = self.carries.get(carry.timeline, ("", None))
        if known is None or name not in carry.versions:
            name, known = names[0], published[carry.versions[names[0]]].value
        if len(known.keys) > len(known.max_times):
            # Drop the keys of an attempt whose result was not used.
            known = replace(known, keys=known.keys.first(len(known.max_times)))
        for later in names[names.index(name) + 1 :]:
            known = published[carry.versions[later]].value.apply(known)
        self.carries[carry.timeline] = (names[-1], known)
        return known.advance(carry.arrival)

    def _keep(self, result: RangeResult, version: CarryVersion, before: AnyCarry) -> None:
        after = result.carry
        assert isinstance(before, SubstreamCarry)
        assert isinstance(after, SubstreamCarry)
        changes: Any = CarryChanges.between(before, after)
        if changes is None:
            self.carries.pop(version.timeline)
        else:
            self.carries[version.timeline] = (changes.version, after)
            result.carry = changes


_KEPT = KeptCarries()
"""The carries that this process keeps."""


def run_sent_task(task: Task, published: dict[int, Broadcast], program: Program, policy: Policy) -> list[RangeResult]:
    """Run a task that `SentCarries` has sent, on a worker.

    Raises:
        InputError: a range cannot be read.
    """
    whole = _KEPT.task(task, published)
    return _KEPT.results(run_task(whole, program, policy), task, whole)
