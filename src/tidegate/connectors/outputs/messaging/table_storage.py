"""Writes results as entities of a table of Azure Table storage, by its REST contract.

Each result is inserted or replaces the entity with the same two keys, so writing it again changes nothing: results that
a killed run had written since its last commit are written again, and every entity is there once, as the last result
with its keys has it. Results with one partition key go in batches of up to a hundred, each of which is carried out
whole or not at all, and in order; different partition keys are written in parallel.

Source: "Performing entity group transactions" and "Table service error codes".
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal
from urllib.parse import quote

from pydantic import Field

from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.model.section import Public, Secret
from tidegate.connectors.outputs.kinds import OUTPUTS, OutputOpening, OutputSection
from tidegate.connectors.outputs.messaging.http_client import HttpClient, Reply
from tidegate.connectors.outputs.messaging.lanes import Lanes, Outcome, Refused
from tidegate.connectors.outputs.messaging.message_rows import MessageRows, row_at
from tidegate.connectors.outputs.messaging.storage_account import StorageAccount
from tidegate.connectors.outputs.messaging.table_entities import Entity, EntityColumns, NoEntity
from tidegate.connectors.outputs.output import (
    COLUMN_NAME_INVALID,
    RECORD_EXCEEDED_SIZE_LIMIT,
    TYPE_CONVERSION_ERROR,
    Mark,
    Output,
    OutputUnavailableError,
    RejectedRow,
    new_mark,
)
from tidegate.engine import ResultRows

_VERSION = "2019-02-02"
_TIMEOUT_S = 60.0
_MOST_ENTITIES = 100
# A batch may have 4 MiB; this leaves room for what surrounds each entity.
_MOST_BYTES = 3 << 20
_REFUSALS = {
    "EntityTooLarge": RECORD_EXCEEDED_SIZE_LIMIT,
    "KeyValueTooLarge": RECORD_EXCEEDED_SIZE_LIMIT,
    "PropertyValueTooLarge": RECORD_EXCEEDED_SIZE_LIMIT,
    "RequestBodyTooLarge": RECORD_EXCEEDED_SIZE_LIMIT,
    "PropertyNameInvalid": COLUMN_NAME_INVALID,
    "PropertyNameTooLong": COLUMN_NAME_INVALID,
    "TooManyProperties": COLUMN_NAME_INVALID,
}
_STATUS = re.compile(rb"^HTTP/1\.1 (\d{3})", re.MULTILINE)
_ERROR = re.compile(rb"\{.*\}", re.DOTALL)
_PLACE = re.compile(r"^(\d+):")


@OUTPUTS.register
class TableStorageOutput(OutputSection):
    """A table of a storage account: an entity for each result, written by its two keys."""

    other_words: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("table", "tables", "azuretable"), 'write type = "tablestorage"'
    )

    type: Literal["tablestorage"]
    connection_string: Secret = Field(
        description="of the storage account: AccountName=…;AccountKey=…;EndpointSuffix=…, or TableEndpoint=…; with a "
        "key or SharedAccessSignature=…; UseDevelopmentStorage=true is the emulator"
    )
    table: Public = Field(pattern=r"^[A-Za-z][A-Za-z0-9]{2,62}$", description="its name; a missing table is created")
    partition_key: Public = Field(description="the column with an entity's partition key")
    row_key: Public = Field(
        description="the column with an entity's row key; a later result with the same two keys replaces it"
    )
    columns_to_remove: tuple[Public, ...] = Field(default=(), description="columns that are left out of the entity")
    batch_size: int = Field(default=_MOST_ENTITIES, ge=1, le=_MOST_ENTITIES, description="entities in a transaction")
    parallel_requests: int = Field(default=4, ge=1, le=64, description="how many requests are open at a time")

    def open_at(self, opening: OutputOpening) -> Output:
        return StorageTable(self, opening)


@dataclass(slots=True)
class _Transaction:
    """Entities of one partition key that are written together; no two have one row key."""

    entities: list[Entity] = field(default_factory=list)
    row_keys: set[str] = field(default_factory=set)
    size: int = 0

    def takes(self, entity: Entity, most: int) -> bool:
        return (
            len(self.entities) < most
            and entity.row_key not in self.row_keys
            and (not self.entities or self.size + len(entity.body) <= _MOST_BYTES)
        )

    def add(self, entity: Entity) -> None:
        self.entities.append(entity)
        self.row_keys.add(entity.row_key)
        self.size += len(entity.body)


class StorageTable:
    """A table; its mark counts rows."""

    def __init__(self, settings: TableStorageOutput, opening: OutputOpening) -> None:
        """
        Raises:
            OutputError: the account cannot be reached or refuses, or the query lacks a column.
        """
        identity = opening.identity
        self._account = StorageAccount.parse(settings.connection_string, identity.output)
        headers = {"x-ms-version": _VERSION, "DataServiceVersion": "3.0", "Accept": "application/json"}
        self._client = HttpClient(self._account.endpoint, headers, _TIMEOUT_S)
        self._table = settings.table
        self._batch_size = settings.batch_size
        keys = {"partition key": settings.partition_key, "row key": settings.row_key}
        self._rows = MessageRows(None, identity, opening.shape, system=keys, drop=opening.drop)
        removed = frozenset(name.lower() for name in settings.columns_to_remove)
        self._columns = EntityColumns(settings.partition_key.lower(), settings.row_key.lower(), removed)
        self._lanes: Lanes[Sequence[Entity]] = Lanes(settings.parallel_requests, self._deliver)
        self._mark: Mark = new_mark("tablestorage") if opening.mark is None else dict(opening.mark)
        self._taken = 0
        self._open: dict[str, _Transaction] = {}
        try:
            self._create_table()
        except BaseException:
            self.close()
            raise

    # The table --------------------------------------------------------------------------------------------------------

    def _create_table(self) -> None:
        body = json.dumps({"TableName": self._table}).encode()
        headers = {**self._account.headers("Tables"), "Prefer": "return-no-content"}
        reply = self._client.post(body, headers, self._account.target("Tables"))
        code = _said(reply.body)[0] or reply.headers.get("x-ms-error-code", "")
        # A signature may allow writing entities and no more: then the first of them shows whether the table exists.
        is_limited = self._account.signature is not None and reply.status == 403
        if reply.is_success or code == "TableAlreadyExists" or is_limited:
            return
        said = f"{self._client.place} answered {reply.status} {code}: {_message(reply)}"
        raise OutputError(said) if reply.status in (400, 401, 403, 404) else OutputUnavailableError(said)

    # Rows -------------------------------------------------------------------------------------------------------------

    def write(self, rows: ResultRows) -> None:
        first = self._mark["rows"] + self._taken
        for one in self._columns.entities(rows, first):
            if isinstance(one, NoEntity):
                self._rows.reject(one.kind, one.message, one.number, one.time, row_at(rows, one.number - first))
                continue
            open_ = self._open.get(one.partition_key)
            if open_ is None or not open_.takes(one, self._batch_size):
                if open_ is not None:
                    self._lanes.add(self._lanes.lane_of(one.partition_key, 0), open_.entities)
                open_ = self._open[one.partition_key] = _Transaction()
            open_.add(one)
        self._taken += len(rows)

    def commit(self) -> Mark:
        if self._taken:
            for key, transaction in self._open.items():
                self._lanes.add(self._lanes.lane_of(key, 0), transaction.entities)
            self._open.clear()
            for row in self._lanes.deliver():
                self._rows.reject(row.kind, row.message, row.number, row.time, json.loads(row.row))
            self._mark["rows"] += self._taken
            self._mark["dropped"] += self._rows.dropped
            self._taken = self._rows.dropped = 0
        return dict(self._mark)

    def _deliver(self, entities: Sequence[Entity]) -> Outcome[Sequence[Entity]]:
        """Write entities as one transaction; see `Lanes`."""
        boundary = uuid.uuid4().hex
        headers = {**self._account.headers("$batch"), "Content-Type": f"multipart/mixed; boundary=batch_{boundary}"}
        reply = self._client.post(self._batch(entities, boundary), headers, self._account.target("$batch"))
        status, code, place = _outcome(reply)
        if 200 <= status < 300:
            return Outcome()
        if status == 413 and len(entities) > 1:
            middle = len(entities) // 2
            return Outcome([entities[:middle], entities[middle:]])
        said = f"the table {self._table} of {self._client.place} answered {status} {code}: {_message(reply)}"
        if status not in (400, 413):
            raise OutputUnavailableError(said)
        if len(entities) == 1:
            place = 0
        if place is None or place >= len(entities):
            # The answer does not say which entity it is about: each is tried by itself.
            return Outcome([[entity] for entity in entities])
        wrong = entities[place]
        kind = _REFUSALS.get(code, TYPE_CONVERSION_ERROR)
        rest = [*entities[:place], *entities[place + 1 :]]
        return Outcome([rest] if rest else [], [Refused(wrong.number, wrong.time, kind, said, wrong.body)])

    def _batch(self, entities: Sequence[Entity], boundary: str) -> bytes:
        """Return a change set of entities that are inserted or replace those with their keys."""
        opening = (
            f"--changeset_{boundary}\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
            f"PUT {self._account.endpoint}/{self._table}"
        )
        parts = [f"--batch_{boundary}\r\nContent-Type: multipart/mixed; boundary=changeset_{boundary}\r\n\r\n".encode()]
        for entity in entities:
            keys = f"(PartitionKey='{_quoted(entity.partition_key)}',RowKey='{_quoted(entity.row_key)}')"
            header = (
                f"{opening}{keys} HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {len(entity.body)}\r\n"
                "Accept: application/json;odata=minimalmetadata\r\nDataServiceVersion: 3.0\r\n\r\n"
            )
            parts += [header.encode(), entity.body, b"\r\n"]
        parts.append(f"--changeset_{boundary}--\r\n--batch_{boundary}--\r\n".encode())
        return b"".join(parts)

    def continue_after_held_rows(self) -> None:
        """See ``Output.continue_after_held_rows``: rows beyond the mark are unknown."""

    def drain_rejected_rows(self) -> list[RejectedRow]:
        return self._rows.drain_rejected_rows()

    def close(self) -> None:
        self._lanes.close()
        self._client.close()


def _quoted(key: str) -> str:
    return quote(key.replace("'", "''"), safe="")


def _outcome(reply: Reply) -> tuple[int, str, int | None]:
    """Return the status of a transaction, its error, and the place of the entity that the error is about."""
    code, message = _said(reply.body)
    if not reply.is_success:
        return reply.status, code, None
    worst = max((int(status) for status in _STATUS.findall(reply.body)), default=reply.status)
    place = _PLACE.match(message)
    return worst, code, None if place is None else int(place[1])


def _said(body: bytes) -> tuple[str, str]:
    """Return the code and the message of an error in an answer; both are empty if it has none."""
    found = _ERROR.search(body)
    try:
        error = json.loads(found[0])["odata.error"] if found is not None else {}
        return str(error.get("code", "")), str(error.get("message", {}).get("value", ""))
    except (ValueError, KeyError, AttributeError, TypeError):
        return "", ""


def _message(reply: Reply) -> str:
    """Return what the account says, for people."""
    return " ".join((_said(reply.body)[1] or reply.text).split())[:300]
