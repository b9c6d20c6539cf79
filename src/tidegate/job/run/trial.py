"""Finds the events that end a job's process, by evaluating suspects in a process that may die: `culprits`.

Such a process (`main`) says before each batch which events it has. If it dies, the next one tries the last of these in
smaller ones, down to single events, and goes on behind it. It begins with an empty state, so what only a large state
makes too large is not found, and then nothing is set aside.
"""

from __future__ import annotations

import contextlib
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate.connectors.model.events import HeldRange, InputLog, LogRange
from tidegate.connectors.model.set_aside import SetAside
from tidegate.engine import KeyedSide, Program
from tidegate.job.run.deaths import EventRange
from tidegate.job.runtime.batch import RangeTask, Task
from tidegate.job.runtime.task import run_task
from tidegate.ordering import NO_TIME, Policy

_BATCHES = (65_536, 1_024, 32, 1)
_MOST = 100
_LONGEST_S = 600.0
# A status that code of the user's hardly ends its process with.
_OUT_OF_MEMORY = 213
_FIRST_TO_KILL = "1000"


@dataclass(frozen=True, slots=True)
class _Death:
    """The end of a process within a batch: ``start`` ≤ sequence number < ``end``, and how."""

    start: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Events up to ``end``, exclusive, and the index in `_BATCHES` of how many are tried at once."""

    end: int
    level: int


def culprits(
    program: Program,
    policy: Policy,
    logs: Mapping[str, InputLog],
    suspects: Sequence[EventRange],
    longest_s: float = _LONGEST_S,
) -> list[SetAside]:
    """Return the events that end a process each by itself, a hundred at most; none that take too long to find.

    Raises:
        InputError: a log cannot be read.
    """
    search = _Search(program, policy, logs, time.monotonic() + longest_s)
    found: list[SetAside] = []
    for stretch in suspects:
        if stretch.input not in logs:
            continue
        end = logs[stretch.input].ends().get(stretch.partition)
        if end is not None:
            for death in search.deaths(stretch, max(stretch.start, end.begin), min(stretch.end, end.end)):
                name = program.source_of(stretch.input).lower()
                found.append(SetAside(name, stretch.partition, death.start, end.log_id, death.reason))
                if len(found) >= _MOST:
                    return found
    return found


class _Search:
    """A search for culprits."""

    def __init__(self, program: Program, policy: Policy, logs: Mapping[str, InputLog], until_s: float) -> None:
        self._program = program
        self._policy = policy
        self._logs = logs
        self._until_s = until_s

    def deaths(self, of: EventRange, start: int, end: int) -> Iterator[_Death]:
        """Yield the deaths by a single event, in order.

        A batch that a process died in is tried again in smaller ones, and what follows it as it was.
        """
        stretches = [_Stretch(end, _level(end - start))] if start < end else []
        while stretches:
            death = self._try(of, start, stretches)
            if death is None:
                return
            start = death.start
            _drop_those_before(start, stretches)
            if stretches[-1].level + 1 < len(_BATCHES):
                stretches.append(_Stretch(death.end, _level(death.end - start, stretches[-1].level + 1)))
            else:
                yield death
                start = death.end
                _drop_those_before(start, stretches)

    def _try(self, of: EventRange, start: int, stretches: Sequence[_Stretch]) -> _Death | None:
        """Evaluate events in a process of its own; return in which batch it died, if it did."""
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            return None
        orders: list[tuple[RangeTask, int]] = []
        for stretch in reversed(stretches):
            log_range = self._logs[of.input].range(of.partition, start, stretch.end)
            carry = self._program.new_carry(of.input)
            task = RangeTask(of.input, of.partition, log_range, carry, count_from=stretch.end)
            orders.append((task, _BATCHES[stretch.level]))
            start = stretch.end
        order = pickle.dumps((self._program, self._policy, orders), protocol=5)
        with tempfile.TemporaryDirectory(prefix="tidegate-trial-") as folder:
            report = Path(folder) / "batches"
            command = [sys.executable, "-m", "tidegate.job.run.trial", str(report)]
            try:
                ended = subprocess.run(
                    command,
                    input=order,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    timeout=left_s,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return None
            lines = report.read_text().splitlines() if report.exists() else []
        if ended.returncode == 0 or not lines:
            return None
        first, last = map(int, lines[-1].split())
        return _Death(first, last + 1, _how(ended.returncode))


def _level(events: int, least: int = 0) -> int:
    """Return which size of batch so many events are tried in next: one that parts them, if there is any."""
    return next((level for level in range(least, len(_BATCHES)) if _BATCHES[level] < events), len(_BATCHES) - 1)


def _drop_those_before(start: int, stretches: list[_Stretch]) -> None:
    while stretches and stretches[-1].end <= start:
        stretches.pop()


def _how(returncode: int) -> str:
    if returncode == _OUT_OF_MEMORY:
        return "it needs more memory than there is"
    if returncode < 0:
        with contextlib.suppress(ValueError):
            return f"it ends the process ({signal.Signals(-returncode).name})"
    return f"it ends the process (exit code {returncode})"


# In the process that may die ------------------------------------------------------------------------------------------


def main() -> None:
    """Evaluate the order on standard input, and say before each batch which events it has."""
    _limit()
    program, policy, orders = pickle.load(sys.stdin.buffer)
    with Path(sys.argv[1]).open("w", buffering=1) as report:
        for task_range, batch_events in orders:
            for events in task_range.log_range.read_events(batch_events):
                read = HeldRange([events])
                report.write(f"{read.start} {read.end - 1}\n")
                try:
                    _evaluate(program, policy, task_range, read)
                except MemoryError:
                    sys.exit(_OUT_OF_MEMORY)
                except Exception:
                    # It would end the run with its reason, which is not the death of a process.
                    continue


def _evaluate(program: Program, policy: Policy, task_range: RangeTask, read: LogRange) -> None:
    """Evaluate events as a step would that begins with them and whose results are all complete."""
    carry = program.new_carry(task_range.input)
    task = Task([RangeTask(task_range.input, task_range.partition, read, carry, count_from=read.end)], sys.maxsize)
    (result,) = run_task(task, program, policy)
    keyed = KeyedSide(program, policy.late_ticks)
    keyed.know_timelines([(task_range.input, "" if policy.merged else task_range.partition)])
    keyed.absorb(result.partials)
    keyed.preview(NO_TIME)


def _limit() -> None:
    """Be the first to go where memory runs out, and take at most half of what the job may use."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_KILL)
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        most, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if most != resource.RLIM_INFINITY:
            # A service lets a process have more than twice what it may use, and counts this one with the job's.
            resource.setrlimit(resource.RLIMIT_DATA, (most // 4, hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main()
