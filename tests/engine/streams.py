"""A small driver for tests: events in, lines out, over any cut of the log and any order of taking up what tasks
computed."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tidegate.engine import CATALOG, JSON, Format, KeyedSide, Partial, Program, Stamped, TableVersion, TaskSide
from tidegate.ordering import (
    DROPPED,
    END_OF_TIME,
    NO_TIME,
    Carry,
    Policy,
    SubstreamCarry,
    parse_time,
    scan,
    scan_arrival,
    scan_substreams,
)
from tidegate.sql import compile_query

SECOND = 10_000_000
START = parse_time("2026-01-01T00:00:00Z")


@dataclass
class Events:
    """m events of one partition, as a job hands them to the engine."""

    sequence_numbers: np.ndarray
    arrivals: np.ndarray
    bodies: list[bytes]
    offsets: list[str] = field(default_factory=list)
    publishers: list[str | None] = field(default_factory=list)
    partition_keys: list[str | None] = field(default_factory=list)
    user_properties: list[dict[str, str]] = field(default_factory=list)
    format: Format = JSON
    added_columns: tuple[str, ...] = ()
    set_aside: tuple[int, ...] = ()

    @classmethod
    def of(cls, bodies: Iterable[Any], arrivals: Sequence[int] | None = None, first: int = 0) -> Events:
        """Bodies (bytes, or anything that becomes JSON), a second after one another unless arrivals are given."""
        encoded = [body if isinstance(body, bytes) else json.dumps(body).encode() for body in bodies]
        if arrivals is None:
            arrivals = [START + (first + place + 1) * SECOND for place in range(len(encoded))]
        numbers = np.arange(first, first + len(encoded))
        return cls(numbers, np.array(arrivals, dtype=np.int64), encoded)

    def __len__(self) -> int:
        return len(self.bodies)

    def part(self, start: int, stop: int) -> Events:
        return Events(self.sequence_numbers[start:stop], self.arrivals[start:stop], self.bodies[start:stop])


def program(
    sql: str,
    *,
    reference: dict[str, list[Any]] | None = None,
    functions: dict[str, Callable[..., Any]] | None = None,
    **options: Any,
) -> Program:
    """A query, prepared; reference data are rows."""
    query = compile_query(sql, catalog=CATALOG, reference_inputs=list(reference or {}), **options)
    tables = {
        name: [TableVersion(tuple(json.dumps(row).encode() for row in rows))]
        for name, rows in (reference or {}).items()
    }
    return Program.prepare(query, tables, functions)


def task(
    of: Program, name: str, partition: str, events: Events, policy: Policy, carry: Carry | SubstreamCarry
) -> tuple[Partial, Carry | SubstreamCarry]:
    """What a task does with a batch."""
    batch = TaskSide(of).decode(name, partition, events)
    arrivals, times, substreams = batch.arrivals, batch.times, batch.substreams
    if times is None:
        assert isinstance(carry, Carry)
        stamps, carry = scan_arrival(arrivals, carry)
    elif isinstance(carry, SubstreamCarry):
        assert substreams is not None
        known = np.append(carry.keys.codes(substreams.keys), -1)
        stamps, carry = scan_substreams(times[0], arrivals, known[substreams.codes], carry, policy, times[1])
    else:
        stamps, carry = scan(times[0], arrivals, carry, policy, times[1])
    selected = np.flatnonzero(stamps.fate != DROPPED)
    return TaskSide(of).run(batch, Stamped(selected, stamps.system_timestamp[selected])), carry


def run(sql: str | Program, bodies: Iterable[Any], **options: Any) -> list[dict[str, Any]]:
    """The rows of a query with one input and one output over events of one partition, all at once."""
    of = sql if isinstance(sql, Program) else program(sql, **options)
    keyed = KeyedSide(of)
    partial, _ = task(of, of.input_names[0], "0", Events.of(bodies), Policy.none(), of.new_carry(of.input_names[0]))
    keyed.absorb([pickle.loads(pickle.dumps(partial))])
    return [row for result in keyed.emit(NO_TIME, END_OF_TIME) for row in result.to_dicts()]


def run_log(
    of: Program, log: dict[tuple[str, str], Events], policy: Policy
) -> dict[str, list[tuple[int, dict[str, Any]]]]:
    """The rows of each output over a whole log, with their times."""
    keyed = KeyedSide(of)
    for (name, partition), events in log.items():
        partial, _ = task(of, name, partition, events, policy, of.new_carry(name))
        keyed.absorb([pickle.loads(pickle.dumps(partial))])
    return {
        result.output: list(zip(result.timestamps.tolist(), result.to_dicts(), strict=True))
        for result in keyed.emit(NO_TIME, END_OF_TIME)
    }
