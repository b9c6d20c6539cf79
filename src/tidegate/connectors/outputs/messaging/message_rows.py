"""Rows as messages: which columns are the body, the partition key, the properties and the system properties.

`MessageOutput` is what outputs that send messages have in common.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Field

from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.model.section import Public
from tidegate.connectors.outputs import values
from tidegate.connectors.outputs.kinds import OutputOpening
from tidegate.connectors.outputs.messaging.bodies import (
    BodySettings,
    Encoder,
    InvalidNameError,
    encoder_of,
    json_objects,
)
from tidegate.connectors.outputs.output import (
    COLUMN_NAME_INVALID,
    SAMPLES,
    TYPE_CONVERSION_ERROR,
    Identity,
    Mark,
    RejectedRow,
    example_of,
    new_mark,
    rejection_error,
)
from tidegate.connectors.outputs.shape import Shape
from tidegate.engine import ResultRows
from tidegate.engine.values.json_lines import dicts
from tidegate.engine.values.vectors import Datetime, Vector


class MessageSettings(BodySettings):
    """Settings common to outputs that send messages."""

    property_columns: tuple[Public, ...] = Field(
        default=(), description="columns that are sent as properties of the message and not in its body"
    )


@dataclass(frozen=True, slots=True)
class RowMessage:
    """One row as a message.

    Attributes:
        number: the row's among the job's rows for this output, from 0. time: its System.Timestamp in ticks.
        system: values of system properties, by their names.
    """

    number: int
    time: int
    body: bytes
    key: str | None
    properties: Mapping[str, Any] | None
    system: Mapping[str, Any] | None


class MessageRows:
    """Makes messages of rows, and keeps account of rows that cannot be one."""

    def __init__(
        self,
        settings: MessageSettings | None,
        identity: Identity,
        shape: Shape | None,
        *,
        key: str | None = None,
        system: Mapping[str, str] | None = None,
        drop: bool = False,
        encode: Encoder = json_objects,
    ) -> None:
        """
        Args:
            settings: of the bodies and properties; None for bodies that `encode` writes.
            key: the column that is the partition key; it stays in the body.
            system: by system property, the column with its value; it is not in the body.
            drop: leave rows out that cannot be sent; otherwise they are an error.

        Raises:
            OutputError: the query does not have one of the columns.
        """
        self._identity = identity
        self._key = None if key is None else key.lower()
        self._system = {column.lower(): name for name, column in (system or {}).items()}
        self._properties = set() if settings is None else {name.lower() for name in settings.property_columns}
        self._drop = drop
        self._apart = {*self._properties, *self._system}
        _check_columns(identity, shape, {*self._apart, *filter(None, (self._key,))})
        self._encode = encode if settings is None else encoder_of(settings, shape)
        self._rejected: list[RejectedRow] = []

    def messages(self, rows: ResultRows, first: int) -> Iterator[RowMessage]:
        """Yield the messages of rows, of which the first has the number ``first``.

        Raises:
            OutputError: a row cannot be a message, and such rows are not to be dropped.
        """
        bodies = self._encode(self._bodies_of(rows))
        keys = self._keys_of(rows)
        records = self._records_of(rows)
        times = rows.timestamps.tolist()
        for place, body in enumerate(bodies):
            number, time = first + place, times[place]
            try:
                if isinstance(body, ValueError):
                    raise body
                properties, system = (None, None) if records is None else self._split(records[place])
            except ValueError as error:
                kind = COLUMN_NAME_INVALID if isinstance(error, InvalidNameError) else TYPE_CONVERSION_ERROR
                self.reject(kind, str(error), number, time, row_at(rows, place))
                continue
            yield RowMessage(number, time, body, None if keys is None else keys[place], properties, system)

    def reject(self, kind: str, message: str, number: int, time: int, row: Mapping[str, Any]) -> None:
        """Count a row as dropped.

        Raises:
            OutputError: rows are not to be dropped.
        """
        rejected = RejectedRow(kind, message, number, time, example_of(row))
        if not self._drop:
            raise rejection_error(rejected, self._identity.output)
        self.dropped += 1
        self._rejected = [*self._rejected, rejected][:SAMPLES]

    def take_rejected(self, rows: Sequence[RejectedRow], dropped: int) -> None:
        """Count rows that executors have rejected; ``rows`` are samples of them.

        Raises:
            OutputError: rows are not to be dropped.
        """
        if rows and not self._drop:
            raise rejection_error(rows[0], self._identity.output)
        self.dropped += dropped
        self._rejected = [*self._rejected, *rows][:SAMPLES]

    dropped = 0
    """How many rows were dropped since this was last set to 0."""

    def drain_rejected_rows(self) -> list[RejectedRow]:
        rejected, self._rejected = self._rejected, []
        return rejected

    # Columns ----------------------------------------------------------------------------------------------------------

    def _bodies_of(self, rows: ResultRows) -> ResultRows:
        """Return rows without the columns that are sent apart from the body."""
        if not self._apart:
            return rows
        if None in rows.names:
            return _as_one_column(
                rows,
                [{name: one for name, one in row.items() if name.lower() not in self._apart} for row in _all(rows)],
            )
        kept = [place for place, name in enumerate(rows.names) if name is not None and name.lower() not in self._apart]
        if not kept:
            return _as_one_column(rows, [{} for _ in range(len(rows))])
        names, columns = tuple(rows.names[one] for one in kept), tuple(rows.columns[one] for one in kept)
        return ResultRows(rows.output, rows.timestamps, names, columns)

    def _keys_of(self, rows: ResultRows) -> list[str | None] | None:
        if self._key is None:
            return None
        return [None if value is None else values.text(value) for value in _column(rows, self._key)]

    def _records_of(self, rows: ResultRows) -> list[dict[str, Any]] | None:
        """Return the columns of each row that are sent apart from the body; None if there are none."""
        if not self._apart:
            return None
        if None in rows.names:
            return [{name: one for name, one in row.items() if name.lower() in self._apart} for row in _all(rows)]
        apart = [place for place, name in enumerate(rows.names) if name is not None and name.lower() in self._apart]
        return dicts([rows.names[one] for one in apart], [rows.columns[one] for one in apart], len(rows), plainly=False)

    def _split(self, record: Mapping[str, Any]) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        """Return the properties and the system properties of a row."""
        properties, system = {}, {}
        for name, value in record.items():
            if value is None:
                continue
            if isinstance(value, (dict, list)):
                raise ValueError(f"column '{name}': a {values.type_name(value)} cannot be a property of a message")
            if name.lower() in self._system:
                system[self._system[name.lower()]] = value
            if name.lower() in self._properties:
                properties[name] = values.text(value) if isinstance(value, Datetime) else value
        return properties or None, system or None


class MessageOutput(ABC):
    """An output that sends what it was given when it commits; its mark counts rows."""

    def __init__(self, kind: str, opening: OutputOpening, rows: MessageRows) -> None:
        """`kind` is the type of the output."""
        self._rows = rows
        self._mark: Mark = new_mark(kind) if opening.mark is None else dict(opening.mark)
        self._taken = 0
        """How many rows were written since the last commit."""

    @property
    def _next(self) -> int:
        """The number of the next row to be written."""
        return int(self._mark["rows"]) + self._taken

    @abstractmethod
    def _send(self) -> None:
        """Send what was written since the last commit; after OutputUnavailableError it is called again."""

    def commit(self) -> Mark:
        """Send every row; see `Output.commit`."""
        if self._taken:
            self._send()
            self._mark["rows"] += self._taken
            self._mark["dropped"] += self._rows.dropped
            self._taken = self._rows.dropped = 0
        return dict(self._mark)

    def continue_after_held_rows(self) -> None:
        """Rows beyond the mark are unknown."""
        return

    def drain_rejected_rows(self) -> list[RejectedRow]:
        """Return samples of the rows dropped since the last call."""
        return self._rows.drain_rejected_rows()


def _all(rows: ResultRows) -> list[dict[str, Any]]:
    return dicts(rows.names, rows.columns, len(rows), plainly=False)


def row_at(rows: ResultRows, place: int) -> dict[str, Any]:
    """Return one row, as JSON has it."""
    at = np.array([place])
    (row,) = dicts(rows.names, [column.take(at) for column in rows.columns], 1)
    return row


def _as_one_column(rows: ResultRows, records: Sequence[dict[str, Any]]) -> ResultRows:
    return ResultRows(rows.output, rows.timestamps, (None,), (Vector.of(list(records)),))


def _column(rows: ResultRows, name: str) -> list[Any]:
    """Return the values of a column by its name in lower case; None for rows that do not have it."""
    if None in rows.names:
        return [next((one for field, one in row.items() if field.lower() == name), None) for row in _all(rows)]
    found = next((place for place, one in enumerate(rows.names) if one is not None and one.lower() == name), None)
    return [None] * len(rows) if found is None else rows.columns[found].to_list()


def _check_columns(identity: Identity, shape: Shape | None, wanted: set[str]) -> None:
    missing = sorted(wanted - {column.name.lower() for column in shape}) if shape is not None else []
    if missing:
        raise OutputError(
            f"output '{identity.output}': the query has no column {', '.join(map(repr, missing))}, which the output's "
            "settings name; correct the query or the settings"
        )
