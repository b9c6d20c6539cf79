"""The output of a job that hands each step to Spark: the same rows under the same number, whatever is killed.

Theory. A job gives an output one sequence of rows, which is the same in every run
(`tidegate.connectors.outputs.output`), but a run that resumes may cut it elsewhere. A sink that recognizes a step by
its number needs the same cut. Therefore a *plan* is made durable before a step is handed over: its number, the number
of its first row, and the files with its rows. The journal is committed after the hand-over. A run that finds a plan
beyond its mark hands the planned step over again, and leaves out its rows from what it computes. It may end before it
has computed them all, so the mark counts both: the rows that the job has computed, and those that have been handed
over.

Steps are numbered from 0 without gaps; a step without rows has no number.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from tidegate.connectors.model.encoded_rows import EncodedRows, Encoder, Piece
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.model.state_file import DamagedStateError, read_state, write_state
from tidegate.connectors.outputs import Mark, OutputOpening, OutputSection, OutputUnavailableError, RejectedRow
from tidegate.engine import ResultRows
from tidegate.spark.streaming.parts import ArrowEncoder, Part, decoded, encoded, write_durably
from tidegate.spark.streaming.result_tables import SCHEMA_FILE, OutputTable

KIND = "spark"
_VERSION = 1
_PLAN = "plan.json"

HandOver = Callable[[Sequence[Part], int], None]
"""Gives the rows of a step, and its number, to a sink; returns once the sink has them durably."""


@dataclass(slots=True)
class Handed:
    """What an output has handed over in this run.

    Attributes:
        step: the number of the last step; -1 before the first of all.
        rows: how many rows this run has handed over.
        took_s: how long the last hand-over took, in seconds.
    """

    step: int = -1
    rows: int = 0
    took_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Delivery:
    """How results become steps.

    Attributes:
        table, hand_over: what the rows become, and where they go; None if nobody wants them, and they are counted.
        handed: what has been handed over, for progress.
    """

    table: OutputTable | None = None
    hand_over: HandOver | None = None
    handed: Handed = field(default_factory=Handed)


class StepSection(OutputSection):
    """The section of an output whose steps are handed to Spark; no job file has it."""

    type: Literal["spark"] = "spark"
    delivery: Any

    def open_at(self, opening: OutputOpening) -> StepOutput:
        return StepOutput(self.delivery, opening)

    def encoder(self) -> Encoder | None:
        delivery: Delivery = self.delivery
        if delivery.table is None:
            return _no_bytes
        return None if delivery.table.as_table is None else ArrowEncoder(delivery.table.as_table)


@dataclass(frozen=True, slots=True)
class Plan:
    """A step that is about to be handed over: its number, its first row's, how many rows it has, and where they are."""

    step: int
    first: int
    rows: int
    parts: tuple[Part, ...]


class StepOutput:
    """An output whose steps are handed over.

    Its mark has in ``rows`` how many rows the job has computed, in ``handed`` and ``steps`` how many rows and steps
    have been handed over.
    """

    def __init__(self, delivery: Delivery, opening: OutputOpening) -> None:
        """Open the output at its mark.

        Raises:
            OutputError: the plan does not belong to the journal, or a file cannot be read.
        """
        assert opening.folder is not None
        self._delivery = delivery
        self._identity = opening.identity
        self._folder = opening.folder / "steps" / opening.identity.output.lower()
        self._mark = dict(opening.mark or {"type": KIND, "rows": 0, "dropped": 0, "handed": 0, "steps": 0})
        try:
            self._folder.mkdir(0o750, parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"cannot use {self._folder}: {error.strerror}") from error
        # The plans of steps that the journal may not have, and how many of those have been handed over by this run.
        self._plans = self._read_plans()
        self._handed_over = 0
        self._returned = False
        delivery.handed.step = self._mark["steps"] - 1
        self._left_out = self._held_rows() - self._mark["rows"]
        self._computed = 0
        self._waiting: list[pa.Table | Part] = []
        self._waiting_rows = 0
        self._delete_unplanned()

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
            self._waiting.append(Part(own[piece.path], piece.offset, piece.length))
        self._waiting_rows += len(rows) - decoded_rows

    def commit(self) -> Mark:
        """Hand the accepted rows over as a step; an interrupted one first. See ``Output.commit``."""
        if self._returned:
            # The mark that was returned then is in the journal.
            self._plans, self._handed_over, self._returned = [], 0, False
        self._hand_over_planned()
        if self._waiting_rows:
            self._plan_step()
            self._hand_over_planned()
        self._returned = True
        self._mark["rows"] += self._computed
        self._computed = 0
        if self._delivery.table is None:
            self._mark["handed"] = max(self._mark["handed"], self._mark["rows"])
        return dict(self._mark)

    def continue_after_held_rows(self) -> None:
        """See ``Output.continue_after_held_rows``: planned steps are still handed over, as the sink may have them."""
        self._left_out = 0
        self._mark["rows"] = self._held_rows()

    def drain_rejected_rows(self) -> list[RejectedRow]:
        return []

    def close(self) -> None:
        """See ``Output.close``."""

    def _accept(self, table: pa.Table) -> None:
        """Accept the rows of a table that are not in the planned step."""
        left_out = min(self._left_out, table.num_rows)
        self._left_out -= left_out
        if left_out < table.num_rows:
            self._waiting.append(table.slice(left_out))
            self._waiting_rows += table.num_rows - left_out

    def _kept(self, path: Path) -> Path:
        """Keep a file of executors, which is deleted with the step that wrote it."""
        kept = self._folder / f"{uuid.uuid4().hex}.part"
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
            parts = self._durable_parts()
        except OSError as error:
            raise OutputUnavailableError(f"cannot write {self._folder}: {error.strerror}") from error
        plan = Plan(self._mark["steps"], self._mark["handed"], self._waiting_rows, parts)
        plans = [*self._plans, plan]
        described = [
            {
                "step": one.step,
                "first": one.first,
                "rows": one.rows,
                "parts": [[part.path.name, part.offset, part.length] for part in one.parts],
            }
            for one in plans
        ]
        content = {"version": _VERSION, "journal": self._identity.journal, "plans": described}
        write_state(self._folder / _PLAN, content)
        self._plans = plans
        self._waiting, self._waiting_rows = [], 0
        self._delete_unplanned()

    def _durable_parts(self) -> tuple[Part, ...]:
        """Return the accepted rows in files, those of neighbouring tables in one stream."""
        parts: list[Part] = []
        tables: list[pa.Table] = []
        for one in (*self._waiting, None):
            if isinstance(one, pa.Table):
                tables.append(one)
                continue
            if tables:
                path = self._folder / f"{uuid.uuid4().hex}.rows"
                content = encoded(pa.concat_tables(tables))
                write_durably(path, content)
                parts.append(Part(path, 0, content.size))
                tables = []
            if one is not None:
                parts.append(one)
        for path in {part.path for part in parts if part.path.suffix == ".part"}:
            with path.open("rb+") as file:
                os.fsync(file.fileno())
        return tuple(parts)

    def _hand_over_planned(self) -> None:
        """Hand over the planned steps that this run has not handed over."""
        hand_over, handed = self._delivery.hand_over, self._delivery.handed
        for plan in self._plans[self._handed_over :]:
            began = time.monotonic()
            if hand_over is not None:
                hand_over(plan.parts, plan.step)
            handed.step, handed.rows, handed.took_s = plan.step, handed.rows + plan.rows, time.monotonic() - began
            self._mark["handed"], self._mark["steps"] = plan.first + plan.rows, plan.step + 1
            self._handed_over += 1

    def _held_rows(self) -> int:
        """Return how many rows the sink has, or gets from plans."""
        held: int = self._mark["handed"]
        return held if not self._plans else max(held, self._plans[-1].first + self._plans[-1].rows)

    def _read_plans(self) -> list[Plan]:
        """Return the plans of steps that the journal does not have."""
        path = self._folder / _PLAN
        content = read_state(path, _VERSION)
        if content is None:
            return []
        if content["journal"] != self._identity.journal:
            raise OutputError(
                f"{path} belongs to another journal than that of {path.parents[2]}; restore that folder as a whole, or "
                "choose another checkpoint location"
            )
        plans = []
        rows, steps = self._mark["handed"], self._mark["steps"]
        for one in content["plans"]:
            parts = tuple(Part(self._folder / name, offset, length) for name, offset, length in one["parts"])
            plan = Plan(one["step"], one["first"], one["rows"], parts)
            if plan.step < self._mark["steps"]:
                continue
            if (plan.step, plan.first) != (steps, rows):
                raise DamagedStateError(
                    path, f"expected step {steps} with row {rows}, got step {plan.step} with row {plan.first}"
                )
            missing = [part.path.name for part in parts if not part.path.exists()]
            if missing:
                raise DamagedStateError(path, f"the rows of step {plan.step} are missing: {', '.join(missing)}")
            plans.append(plan)
            rows, steps = rows + plan.rows, steps + 1
        return plans

    def _delete_unplanned(self) -> None:
        kept = {_PLAN, SCHEMA_FILE, *(part.path.name for plan in self._plans for part in plan.parts)}
        for path in self._folder.iterdir():
            if path.name not in kept:
                path.unlink(missing_ok=True)


def _content(piece: Piece) -> pa.Table:
    if piece.path is None:
        return decoded(piece.content)
    return Part(piece.path, piece.offset, piece.length).read()


def _no_bytes(rows: ResultRows) -> bytes:
    return b""
