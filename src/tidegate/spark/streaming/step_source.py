"""A stream of Spark whose rows are the planned steps of a query, in a folder that its machines share.

A query's evaluation writes steps (`steps`), and Spark reads them. Theory:

- A *plan* names the files with the rows of a step. Once it is there it is durable and never changes, and neither do its
  files. The offset of the stream is the number of steps before it, so Spark's offset log, which is written before a
  batch runs, fixes the rows of the batch for good: a batch that is repeated after a crash has the same ones.
- Spark's offsets and the journal of the evaluation both lie at or before the newest plan, and never learn of each
  other. A plan that the journal does not know, because the driver was killed between the two, is not written again:
  the evaluation leaves out its rows. A plan whose batch Spark has not committed is read again.
- Spark commits an offset once its batch is in the commit log, and never asks for earlier plans again. They are deleted
  then, by whoever plans the stream, all but the newest, which tells the evaluation where the rows end.
- So neither side can get ahead of the plans, unless a folder was restored in parts. Both notice: a plan that is missing
  is an error, and so is an offset beyond the newest plan, or one of another journal.

Two more files are hints, which need not survive a crash. ``state`` is written by the evaluation: which run it is, how
many steps are durable, and whether the run has ended, with the reason if it has failed. So an ``availableNow`` query
ends when all its results are out, and any query fails with its evaluation. It also says whether somebody waits until
everything is written, which Spark knows only once it has asked in vain. ``taken`` is written by the stream: how many
steps Spark has written, by which the evaluation limits how far it gets ahead.

The classes travel to Spark's processes by value: those need PySpark, PyArrow and the folder, and no Tidegate.
"""

from __future__ import annotations

import gc
import inspect
import json
import os
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tidegate.spark.streaming import read_limits
from tidegate.spark.streaming.read_limits import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

FORMAT = "tidegate-steps"
_PLAN = ".plan"
_STATE, _TAKEN = "state", "taken"
_FROZEN = "tidegate_froze_imports"
_LONGEST_WAIT_S = 0.2
# An idle stream looks less and less often; a look finds out whether the state was replaced, and reads it only then.
_FIRST_PAUSE_S, _PAUSE_GROWTH, _LONGEST_PAUSE_S = 0.002, 1.05, 0.025
TASK_BYTES = 4 << 20
"""So many bytes are worth a task of their own."""

_by_value: Any = cloudpickle
for _module in (sys.modules[__name__], read_limits):
    _by_value.register_pickle_by_value(_module)

Offset = dict[str, Any]
"""``steps``: how many steps lie before it; ``journal``: whose they are, left out where there are none."""


class StepsLost(Exception):
    """Spark's checkpoint and the planned steps do not belong together."""


@dataclass(frozen=True, slots=True)
class StepPart:
    """Rows of a step: an Arrow stream of ``length`` bytes in a file, from ``offset`` on."""

    path: Path
    offset: int
    length: int

    def read(self) -> pa.Table:
        """Return the rows.

        Raises:
            OSError: the file cannot be read, or ends too early.
            pa.ArrowInvalid: its content is not what was written.
        """
        with pa.memory_map(str(self.path)) as file:
            if file.size() < self.offset + self.length:
                raise OSError(f"{self.path} has {file.size():,} bytes, expected {self.offset + self.length:,}")
            file.seek(self.offset)
            with pa.ipc.open_stream(file.read_buffer(self.length)) as reader:
                return reader.read_all()


@dataclass(frozen=True, slots=True)
class Plan:
    """A step: its number, whose journal knows it, the number of its first row, its rows, and where those are."""

    step: int
    journal: str
    first: int
    rows: int
    parts: tuple[StepPart, ...]

    def encoded(self) -> bytes:
        """Return the content of the plan's file."""
        parts = [[part.path.name, part.offset, part.length] for part in self.parts]
        return json.dumps({"journal": self.journal, "first": self.first, "rows": self.rows, "parts": parts}).encode()


@dataclass(frozen=True, slots=True)
class StepState:
    """Where a run of the evaluation is.

    Attributes:
        steps: how many are durable.
        ended: whether the run has ended. failure: the reason, if it has failed.
        awaited: whether somebody waits until Spark has written all steps.
    """

    run: str
    journal: str
    steps: int
    ended: bool = False
    failure: str = ""
    awaited: bool = False


class StepFolder:
    """The folder with the plans of one output, and the files with their rows, whose names begin with the step."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def plan_path(self, step: int) -> Path:
        """Return where the plan of a step is."""
        return self.path / f"{step:012d}{_PLAN}"

    def new_path(self, step: int, ending: str) -> Path:
        """Return the name of a new file for rows of a step."""
        return self.path / f"{step:012d}-{uuid.uuid4().hex}.{ending}"

    def steps(self) -> list[int]:
        """Return the numbers of the planned steps, in order."""
        return sorted(int(name.removesuffix(_PLAN)) for name in self._names() if name.endswith(_PLAN))

    def plan(self, step: int) -> Plan:
        """Return the plan of a step.

        Raises:
            FileNotFoundError: there is none.
            ValueError: its file is damaged.
        """
        path = self.plan_path(step)
        try:
            content = json.loads(path.read_bytes())
            parts = tuple(StepPart(self.path / name, offset, length) for name, offset, length in content["parts"])
            return Plan(step, content["journal"], content["first"], content["rows"], parts)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is damaged: {error}; restore the checkpoint from a backup") from error

    def delete_before(self, step: int) -> None:
        """Delete the plans of earlier steps, and their rows; the newest plan stays."""
        steps = self.steps()
        limit = min([step, *steps[-1:]])
        for name in self._names():
            number = name[:12]
            if number.isdecimal() and int(number) < limit:
                (self.path / name).unlink(missing_ok=True)

    def delete_unplanned(self) -> None:
        """Delete files with rows that no plan names."""
        planned = set(self.steps())
        for name in self._names():
            number = name[:12]
            if number.isdecimal() and int(number) not in planned:
                (self.path / name).unlink(missing_ok=True)

    def note_taken(self, steps: int) -> None:
        """Note that Spark has written so many steps."""
        self._write(_TAKEN, str(steps))

    def taken(self) -> int:
        """Return what was noted; 0 if nothing was."""
        return int(self._read(_TAKEN) or 0)

    def note(self, state: StepState) -> None:
        """Note where the evaluation is."""
        self._write(_STATE, json.dumps(asdict(state)))

    def state_version(self) -> tuple[int, ...]:
        """Return what is another after the state was replaced, in nearly all cases; empty if there is none."""
        try:
            # Opened, because a client of NFS asks its server again only then.
            file = os.open(self.path / _STATE, os.O_RDONLY)
        except FileNotFoundError:
            return ()
        try:
            status = os.fstat(file)
        finally:
            os.close(file)
        return (status.st_ino, status.st_mtime_ns, status.st_size)

    def state(self) -> StepState | None:
        """Return what was noted; None if nothing was, or a crash has damaged it."""
        try:
            return StepState(**json.loads(self._read(_STATE)))
        except (ValueError, TypeError):
            return None

    def _write(self, name: str, text: str) -> None:
        new = self.path / f"{name}-{uuid.uuid4().hex}"
        new.write_text(text, encoding="utf-8")
        new.replace(self.path / name)

    def _read(self, name: str) -> str:
        try:
            return (self.path / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    def _names(self) -> list[str]:
        return os.listdir(self.path)


class StepSource(DataSource):
    """The data source of the steps of one output.

    Its options: ``path``, the folder; ``run``, that of the evaluation; ``untilEnd``, whether the stream ends with the
    run; ``waits``, whether Spark may be kept waiting for a step for a moment; ``tasks``, how many read a batch at most.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(…)``."""
        return FORMAT

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader for ``spark.readStream``."""
        # Spark's options have no case.
        options = {key.lower(): value for key, value in self.options.items()}
        return StepStreamReader(
            StepFolder(Path(options["path"])),
            options["run"],
            schema,
            until_end=options["untilend"] == "true",
            waits=options["waits"] == "true",
            tasks=int(options["tasks"]),
        )


class PartsOfTask(InputPartition):
    """What one task reads."""

    def __init__(self, parts: Sequence[StepPart]) -> None:
        super().__init__(None)
        self.parts = parts


class StepStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads steps; see the module."""

    def __init__(
        self, folder: StepFolder, run: str, schema: StructType, *, until_end: bool, waits: bool, tasks: int
    ) -> None:
        self._folder = folder
        self._run = run
        self._schema = schema
        self._until_end = until_end
        self._waits = waits
        self._tasks = tasks
        self._planned = 0
        self._last: Offset = {"steps": 0}
        self._taken = -1
        self._pause_s = _FIRST_PAUSE_S

    def initialOffset(self) -> Offset:
        """Return the offset before the first step; Spark asks for it only if it has logged no offset.

        Raises:
            StepsLost: Spark has written steps before, so its log was deleted.
        """
        taken = self._folder.taken()
        if taken:
            # Spark would number its batches from 0 again, and a sink leaves out the numbers that it has seen.
            raise StepsLost(
                f"Spark has written {taken} steps of {self._folder.path}, and its checkpoint has no offsets; they were "
                "deleted: restore the checkpoint as a whole, or choose another checkpointLocation"
            )
        return {"steps": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return that there is no limit: the evaluation does not get far ahead."""
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """The end is that of the evaluation, which has fixed its own."""
        self._until_end = True

    def latestOffset(self, start: Offset | None = None, limit: ReadLimit | None = None) -> Offset:
        """Return the offset after the newest step, and wait a little for one; PySpark before 4.2 has no ``start``.

        Raises:
            StepsLost: the checkpoint is ahead of the steps, or of another journal.
            RuntimeError: the evaluation has failed.
        """
        begin = self._planned if start is None else int(start["steps"])
        # PySpark before 4.2 asks an availableNow query once.
        once = start is None and self._until_end
        began, parent = time.monotonic(), os.getppid()
        version: tuple[int, ...] | None = None
        read_at, awaited = began, False
        while True:
            now, before = time.monotonic(), version
            version = self._folder.state_version()
            # The version may be the same by chance.
            if version != before or now - read_at > _LONGEST_WAIT_S:
                read_at, state = now, self._folder.state()
                awaited = False
                if state is not None and state.run == self._run:
                    awaited = state.awaited
                    self._note_taken(begin)
                    if not state.failure or state.steps > begin:
                        self._check(begin, state, start)
                    if state.steps > begin and (state.ended or not once):
                        self._pause_s = _FIRST_PAUSE_S
                        return _after(state)
                    if state.failure:
                        raise RuntimeError(state.failure)
                    if state.ended:
                        break
            if not self._until_end and (awaited or not self._waits or now - began > _LONGEST_WAIT_S):
                break
            if os.getppid() != parent:
                raise RuntimeError("Spark has ended")
            time.sleep(self._pause_s)
            self._pause_s = min(self._pause_s * _PAUSE_GROWTH, _LONGEST_PAUSE_S)
        return start or self._last

    def reportLatestOffset(self) -> Offset:
        """Return the offset after the newest step, for the query's progress."""
        state = self._folder.state()
        return self._last if state is None else _after(state)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the files of the steps between two offsets, in groups of about the same size.

        Raises:
            StepsLost: a step is missing, or of another journal.
        """
        self._planned, self._last = int(end["steps"]), end
        parts: list[StepPart] = []
        for step in range(int(start["steps"]), self._planned):
            plan = self._read(step)
            if plan.journal != end.get("journal", plan.journal):
                raise self._of_another_journal()
            parts += plan.parts
        size = sum(part.length for part in parts)
        groups = in_groups(parts, max(1, min(self._tasks, -(-size // TASK_BYTES))))
        return [PartsOfTask(group) for group in groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task.

        Raises:
            StepsLost: they have columns that are not those of the stream.
        """
        if _FROZEN not in vars(gc):
            # PySpark collects garbage after every task; what was imported is not garbage. A variable of this module
            # would not outlive the task, and to count what is frozen takes as long as to collect it.
            setattr(gc, _FROZEN, True)
            gc.freeze()
        if not isinstance(partition, PartsOfTask):
            # If there is nothing to read, Spark passes a partition of its own making.
            return
        schema = _in_utc(self._schema)
        for part in partition.parts:
            yield from _with_columns(part.read(), schema).to_batches()

    def commit(self, end: Offset) -> None:
        """Delete the steps before an offset, which Spark does not ask for again."""
        self._folder.delete_before(int(end["steps"]))

    def _note_taken(self, steps: int) -> None:
        if steps != self._taken:
            self._folder.note_taken(steps)
            self._taken = steps

    def _check(self, begin: int, state: StepState, start: Offset | None) -> None:
        if start is not None and start.get("journal", state.journal) != state.journal:
            raise self._of_another_journal()
        if state.steps < begin:
            raise StepsLost(
                f"Spark's checkpoint has {begin} steps, and {self._folder.path} has {state.steps}: it is older; "
                "restore the checkpoint as a whole, or choose another checkpointLocation"
            )

    def _read(self, step: int) -> Plan:
        try:
            return self._folder.plan(step)
        except FileNotFoundError:
            raise StepsLost(
                f"step {step} is not in {self._folder.path}: Spark's checkpoint is older than the steps there, or its "
                "offsets were deleted; restore the checkpoint as a whole, or choose another checkpointLocation"
            ) from None

    def _of_another_journal(self) -> StepsLost:
        return StepsLost(
            f"the steps in {self._folder.path} are not those that Spark's checkpoint has read: their journal was "
            "replaced; restore the checkpoint as a whole, or choose another checkpointLocation"
        )


def _after(state: StepState) -> Offset:
    return {"steps": state.steps, "journal": state.journal} if state.steps else {"steps": 0}


def in_groups(parts: Sequence[StepPart], most: int) -> list[list[StepPart]]:
    """Cut parts, in order, into at most so many groups of about the same size."""
    whole, reached = sum(part.length for part in parts), 0
    groups: dict[int, list[StepPart]] = {}
    for part in parts:
        groups.setdefault(min(most - 1, reached * most // max(1, whole)), []).append(part)
        reached += part.length
    return [groups[number] for number in sorted(groups)]


def _in_utc(schema: StructType) -> pa.Schema:
    """Return the columns of a stream as Arrow has them, times in UTC."""
    # Before 4.2 PySpark has no such argument, and no other time zone.
    has_zone = "timezone" in inspect.signature(to_arrow_schema).parameters
    return to_arrow_schema(schema, timezone="UTC") if has_zone else to_arrow_schema(schema)


def _with_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with the columns of the stream; those of steps that an earlier query has left may differ."""
    if rows.schema.equals(schema):
        return rows
    try:
        columns = [
            rows[field.name].cast(field.type) if field.name in rows.column_names else pa.nulls(len(rows), field.type)
            for field in schema
        ]
        return pa.table(columns, schema=schema)
    except pa.ArrowException as error:
        raise StepsLost(
            f"a step that was planned before the query changed has the columns {rows.schema.to_string()!r}, which do "
            f"not become {schema.to_string()!r}: {error}; start the query as it was with availableNow, then change it"
        ) from error
