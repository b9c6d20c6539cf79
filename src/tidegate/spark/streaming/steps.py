"""The output of a job whose steps a stream of Spark reads: the same rows under the same number, whatever is killed.

A job gives an output one sequence of rows, which is the same in every run (`tidegate.connectors.outputs.output`), but a
run that resumes may cut it elsewhere. A batch of Spark that is repeated needs the same cut. Therefore a step becomes a
durable plan (`step_source` has the theory), and the journal is committed after it. A run that finds plans beyond its
mark leaves out their rows from what it computes. It may end before it has computed them all, so the mark counts both:
the rows that the job has computed, and the steps that are planned.

Steps are numbered from 0 without gaps; a step without rows has no number.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from tidegate.connectors.model.encoded_rows import EncodedPiece, EncodedRows, Encoder
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.model.state_file import DamagedStateError
from tidegate.connectors.outputs import Mark, OutputOpening, OutputSection, OutputUnavailableError, RejectedRow
from tidegate.durable_files import Files, replace_file
from tidegate.engine import ResultRows
from tidegate.spark.queries.frame_runs import decoded, encoded
from tidegate.spark.streaming.parts import ArrowEncoder, write_durably
from tidegate.spark.streaming.result_tables import OutputTable
from tidegate.spark.streaming.step_source import TASK_BYTES, Plan, StepFolder, StepPart, StepState

KIND = "spark"
_MOST_WAITING_BYTES = 64 << 20
_MOST_WAITING_STEPS = 1_000
# A part of a checkpoint that is restored alone is refused.
_ADVICE = (
    "restore the checkpoint as a whole from a backup, or choose another checkpointLocation, which computes all results "
    "again"
)


def folder_of(state: Path, output: str) -> Path:
    """Return where the steps of an output are, in the state folder of a query."""
    return state / "steps" / output.lower()


@dataclass(slots=True)
class StepDelivery:
    """How the results of an output become steps.

    Attributes:
        table: what the rows become; None if nobody wants them, and they are counted.
        run: the name of the run, which no other has.
        state: where it is, once the output is open.
    """

    table: OutputTable | None = None
    run: str = ""
    state: StepState | None = None
    _folder: StepFolder | None = None
    _awaiting: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _waiting: deque[tuple[int, int]] = field(default_factory=deque)
    _bytes: int = 0

    def is_full(self) -> bool:
        """Return whether so much waits for Spark that the evaluation should not get further ahead."""
        if self._folder is None or (len(self._waiting) < _MOST_WAITING_STEPS and self._bytes < _MOST_WAITING_BYTES):
            return False
        taken = self._folder.taken()
        while self._waiting and self._waiting[0][0] < taken:
            self._bytes -= self._waiting.popleft()[1]
        return len(self._waiting) >= _MOST_WAITING_STEPS or self._bytes >= _MOST_WAITING_BYTES

    def open(self, folder: StepFolder, journal: str, steps: int) -> None:
        """Note that the output is open, and that so many steps are durable."""
        self._folder = folder
        self._note(lambda: StepState(self.run, journal, steps))

    def planned(self, plan: Plan) -> None:
        """Note a step that waits for Spark."""
        size = sum(part.length for part in plan.parts)
        self._waiting.append((plan.step, size))
        self._bytes += size
        self._note(lambda: StepState(self.run, plan.journal, plan.step + 1))

    @contextlib.contextmanager
    def awaited(self) -> Iterator[None]:
        """Keep Spark from waiting for steps within a block, in which somebody waits until it has written them all."""
        self._await(1)
        try:
            yield
        finally:
            self._await(-1)

    def _await(self, more: int) -> None:
        with self._lock:
            self._awaiting += more
        # Spark only takes longer without the hint. The folder may be gone, as the query may have ended.
        with contextlib.suppress(OSError):
            if self.state is not None:
                self._note(lambda: self.state or StepState(self.run, "", 0))

    def end(self, folder: StepFolder, failure: str = "") -> None:
        """Note that the run has ended, and why if it has failed; it may have failed before the output was open.

        Raises:
            OSError: the folder cannot be written.
        """
        folder.path.mkdir(0o750, parents=True, exist_ok=True)
        self._folder = folder
        self._note(lambda: replace(self.state or StepState(self.run, "", 0), ended=True, failure=failure))

    def _note(self, state: Callable[[], StepState]) -> None:
        """Note where the run is; threads that wait note that they do."""
        assert self._folder is not None
        with self._lock:
            noted = replace(state(), awaited=self._awaiting > 0)
            self._folder.note(noted)
            self.state = noted


class StepSection(OutputSection):
    """The section of an output whose steps Spark reads; no job file has it."""

    type: Literal["spark"] = "spark"
    delivery: Any

    def open_at(self, opening: OutputOpening) -> StepOutput:
        return StepOutput(self.delivery, opening)

    def encoder(self) -> Encoder | None:
        delivery: StepDelivery = self.delivery
        if delivery.table is None:
            return _no_bytes
        return None if delivery.table.as_table is None else ArrowEncoder(delivery.table.as_table)


class StepOutput:
    """An output whose steps Spark reads.

    Its mark has in ``rows`` how many rows the job has computed, and in ``steps`` how many steps are planned.
    """

    def __init__(self, delivery: StepDelivery, opening: OutputOpening) -> None:
        """Open the output at its mark.

        Raises:
            OutputError: the plans do not belong to the journal, or the folder cannot be used.
            DamagedStateError: plans are missing.
        """
        assert opening.folder is not None
        self._delivery = delivery
        self._identity = opening.identity
        self._folder = StepFolder(folder_of(opening.folder, opening.identity.output))
        self._mark = dict(opening.mark or {"type": KIND, "rows": 0, "dropped": 0, "steps": 0})
        # How many steps there are, and how many rows they have.
        self._steps, self._rows = 0, 0
        try:
            self._folder.path.mkdir(0o750, parents=True, exist_ok=True)
            self._resume()
            delivery.open(self._folder, self._identity.journal, self._steps)
        except OSError as error:
            raise OutputError(f"cannot use {self._folder.path}: {error.strerror}") from error
        self._left_out = self._rows - self._mark["rows"]
        self._computed = 0
        self._waiting: list[pa.Table | StepPart] = []
        self._waiting_rows = 0

    def write(self, rows: ResultRows) -> None:
        self._computed += len(rows)
        if self._delivery.table is not None:
            self._accept(self._delivery.table.of(rows))

    def write_encoded(self, rows: EncodedRows) -> None:
        """Accept rows that executors have encoded; their files may hold rows of other outputs, too."""
        self._computed += len(rows)
        if self._delivery.table is None:
            return
        if self._left_out:
            for piece in rows.pieces:
                self._accept(_content(piece))
            return
        own: dict[Path, Path] = {}
        decoded_rows = 0
        for piece in rows.pieces:
            if piece.path is None:
                table = decoded(piece.content)
                decoded_rows += table.num_rows
                self._accept(table)
                continue
            if piece.path not in own:
                own[piece.path] = self._kept(piece.path)
            self._waiting.append(StepPart(own[piece.path], piece.offset, piece.length))
        self._waiting_rows += len(rows) - decoded_rows

    def commit(self) -> Mark:
        """Plan the accepted rows as a step. See ``Output.commit``."""
        if self._waiting_rows:
            self._plan_step()
        self._mark["rows"] += self._computed
        self._computed = 0
        self._mark["steps"] = self._steps
        if self._delivery.table is None:
            self._rows = max(self._rows, self._mark["rows"])
        return dict(self._mark)

    def continue_after_held_rows(self) -> None:
        """Go on after the last planned step, which Spark still reads."""
        self._left_out = 0
        self._mark["rows"] = self._rows

    def drain_rejected_rows(self) -> list[RejectedRow]:
        return []

    def close(self) -> None:
        """Spark still reads the planned steps."""

    def _resume(self) -> None:
        """Read where the newest plan ends, and delete what no plan names."""
        steps = self._folder.steps()
        if steps:
            try:
                newest = self._folder.plan(steps[-1])
            except ValueError as error:
                raise DamagedStateError(self._folder.plan_path(steps[-1]), str(error.__cause__), _ADVICE) from error
            if newest.journal != self._identity.journal:
                raise OutputError(
                    f"{self._folder.path} belongs to another journal than that of {self._folder.path.parents[1]}; "
                    "restore that folder as a whole, or choose another checkpoint location"
                )
            self._steps, self._rows = newest.step + 1, newest.first + newest.rows
            gaps = sorted({*range(steps[0], newest.step)} - {*steps})
            if gaps:
                raise DamagedStateError(self._folder.path, f"the plan of step {gaps[0]} is missing", _ADVICE)
        if self._steps < self._mark["steps"]:
            raise DamagedStateError(
                self._folder.path, f"the journal has {self._mark['steps']} steps, and {self._steps} are there", _ADVICE
            )
        # Rows that were computed while nobody wanted them are in no plan.
        self._rows = max(self._rows, self._mark["rows"])
        self._folder.delete_unplanned()
        # The last plan of a run that was killed may have been renamed and not be durable.
        Files().sync_directory(self._folder.path)

    def _accept(self, table: pa.Table) -> None:
        """Accept the rows of a table that are not in a planned step."""
        left_out = min(self._left_out, table.num_rows)
        self._left_out -= left_out
        if left_out < table.num_rows:
            self._waiting.append(table.slice(left_out))
            self._waiting_rows += table.num_rows - left_out

    def _kept(self, path: Path) -> Path:
        """Keep a file of executors, which is deleted with the step that wrote it."""
        kept = self._folder.new_path(self._steps, "part")
        try:
            os.link(path, kept)
        except OSError:
            # Not every shared folder has links.
            try:
                shutil.copyfile(path, kept)
            except OSError as error:
                raise OutputUnavailableError(f"cannot copy {path} to {kept}: {error.strerror}") from error
        return kept

    def _plan_step(self) -> None:
        """Plan a step with the accepted rows, and return when the plan is durable."""
        try:
            plan = Plan(self._steps, self._identity.journal, self._rows, self._waiting_rows, self._durable_parts())
            replace_file(self._folder.plan_path(plan.step), plan.encoded())
            self._delivery.planned(plan)
        except OSError as error:
            raise OutputUnavailableError(f"cannot write {self._folder.path}: {error.strerror}") from error
        self._steps, self._rows = plan.step + 1, plan.first + plan.rows
        self._waiting, self._waiting_rows = [], 0

    def _durable_parts(self) -> tuple[StepPart, ...]:
        """Return the accepted rows in files, those of neighbouring tables in one stream."""
        parts: list[StepPart] = []
        tables: list[pa.Table] = []
        for one in (*self._waiting, None):
            if isinstance(one, pa.Table):
                tables.append(one)
                continue
            if tables:
                parts += self._written(pa.concat_tables(tables))
                tables = []
            if one is not None:
                parts.append(one)
        for path in {part.path for part in parts if part.path.suffix == ".part"}:
            with path.open("rb+") as file:
                os.fsync(file.fileno())
        return tuple(parts)

    def _written(self, table: pa.Table) -> list[StepPart]:
        """Write rows to a file durably, in parts that are worth a task each."""
        path = self._folder.new_path(self._steps, "rows")
        count = max(1, -(-table.nbytes // TASK_BYTES))
        rows = -(-table.num_rows // count)
        contents = [encoded(table.slice(first, rows)) for first in range(0, table.num_rows, rows)]
        write_durably(path, b"".join(contents))
        ends = [*accumulate(content.size for content in contents)]
        return [StepPart(path, end - content.size, content.size) for content, end in zip(contents, ends, strict=True)]


def _content(piece: EncodedPiece) -> pa.Table:
    if piece.path is None:
        return decoded(piece.content)
    return StepPart(piece.path, piece.offset, piece.length).read()


def _no_bytes(rows: ResultRows) -> bytes:
    return b""
