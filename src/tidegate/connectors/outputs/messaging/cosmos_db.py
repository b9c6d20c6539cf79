"""Writes results as documents of a container of Cosmos DB, by its REST contract.

Each result is an upsert by its id: the text of the column `document_id`, or else a name made of the output's identity
and the row's number. Writing a document again changes nothing, so results that a killed run had written since its last
commit are written again, and every document is there once. Documents of one id are written in their order.

Source: "Create a document" and "Access control" of the Azure Cosmos DB REST API reference. Answers: 429 and 449 are
tried again when the answer says, 413 is a result that is too large, 409 a unique key that is taken, 400 one that is
refused.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from itertools import count
from typing import Any, ClassVar, Literal
from urllib.parse import quote

from pydantic import Field

from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.model.section import Public, Secret
from tidegate.connectors.outputs import values
from tidegate.connectors.outputs.kinds import OUTPUTS, OutputOpening, OutputSection
from tidegate.connectors.outputs.messaging.http_client import HttpClient, Reply
from tidegate.connectors.outputs.messaging.lanes import BatchOutcome, LaneOutput, RefusedRow
from tidegate.connectors.outputs.messaging.message_rows import MessageRows
from tidegate.connectors.outputs.output import (
    DUPLICATE_KEY,
    RECORD_EXCEEDED_SIZE_LIMIT,
    TYPE_CONVERSION_ERROR,
    Output,
    OutputUnavailableError,
)
from tidegate.engine import ResultRows
from tidegate.retrying import BackOff

_VERSION = "2018-12-31"
_TIMEOUT_S = 60.0
_LONGEST_ID_BYTES = 1_023
_NOT_IN_AN_ID = frozenset("/\\?#")
_REFUSALS = {400: TYPE_CONVERSION_ERROR, 409: DUPLICATE_KEY, 413: RECORD_EXCEEDED_SIZE_LIMIT}
_LONGEST_WAIT_S = 10.0
_BACK_OFF = BackOff(0.05, 1.0)


@OUTPUTS.register
class CosmosDbOutput(OutputSection):
    """A container of Cosmos DB (the API for NoSQL): a document for each result, written by its id."""

    other_words: ClassVar[Mapping[str, str]] = dict.fromkeys(("cosmos", "documentdb"), 'write type = "cosmosdb"')

    type: Literal["cosmosdb"]
    connection_string: Secret = Field(description="AccountEndpoint=https://…;AccountKey=…;")
    database: Public = Field(description="the name of the database, which exists")
    container: Public = Field(description="the name of the container, which exists")
    document_id: Public | None = Field(
        default=None,
        description="the column with a document's id: a later result with the same replaces it; without it, each "
        "result is a document of its own",
    )
    parallel_requests: int = Field(default=8, ge=1, le=64, description="how many requests are open at a time")

    def open_at(self, opening: OutputOpening) -> Output:
        return CosmosContainer(self, opening)


@dataclass(frozen=True, slots=True)
class CosmosDocument:
    """A document as it is written: the row's number and time, the value of its partition key as JSON, its text."""

    number: int
    time: int
    partition_key: str
    body: bytes


class CosmosContainer(LaneOutput[CosmosDocument]):
    """A container; its mark counts rows."""

    def __init__(self, settings: CosmosDbOutput, opening: OutputOpening) -> None:
        """
        Raises:
            OutputError: the account cannot be reached or refuses, or there is no such container.
        """
        identity = opening.identity
        endpoint, self._key = _account(settings.connection_string, identity.output)
        client = HttpClient(endpoint, {}, _TIMEOUT_S)
        self._resource = f"dbs/{settings.database}/colls/{settings.container}"
        self._id_column = None if settings.document_id is None else settings.document_id.lower()
        self._name = identity.digest
        rows = MessageRows(None, identity, opening.shape, key=settings.document_id, drop=opening.drop)
        super().__init__("cosmosdb", opening, client, rows, settings.parallel_requests)
        try:
            self._partition_key = self._read_partition_key()
        except BaseException:
            self.close()
            raise

    # The account ------------------------------------------------------------------------------------------------------

    def _headers(self, verb: str, kind: str) -> dict[str, str]:
        """Return the headers that sign a request by the account's key."""
        date = formatdate(usegmt=True)
        token = authorization(self._key, verb, kind, self._resource, date)
        return {"Authorization": token, "x-ms-date": date, "x-ms-version": _VERSION, "Accept": "application/json"}

    def _read_partition_key(self) -> Sequence[str]:
        """Return the path of the container's partition key; it is empty if it has none."""
        reply = self._client.request("GET", f"/{self._resource}", b"", self._headers("GET", "colls"))
        if not reply.is_success:
            raise _error(reply, self._resource)
        paths = json.loads(reply.body).get("partitionKey", {}).get("paths", [])
        if len(paths) > 1:
            raise OutputError(f"{self._resource} has a partition key of {len(paths)} paths; one is supported")
        return tuple(part.strip('"') for part in paths[0].strip("/").split("/")) if paths else ()

    # Rows -------------------------------------------------------------------------------------------------------------

    def write(self, rows: ResultRows) -> None:
        for document, key in self._documents(rows):
            self._pending[self._lane_of(key, document.number)].append(document)
        self._taken += len(rows)

    def _documents(self, rows: ResultRows) -> Iterator[tuple[CosmosDocument, str]]:
        for message in self._rows.messages(rows, self._next):
            row = json.loads(message.body)
            own = next((name for name in row if name.lower() == "id"), None)
            given = message.key if self._id_column is not None else None if own is None else row[own]
            try:
                row = {name: value for name, value in row.items() if name.lower() != "id"}
                key = _document_id(f"{self._name}-{message.number}" if given is None else given)
                if self._id_column is not None and given is None:
                    raise ValueError(f"column '{self._id_column}': a document needs an id, got NULL")
            except ValueError as error:
                self._rows.reject(TYPE_CONVERSION_ERROR, str(error), message.number, message.time, row)
                continue
            row["id"] = key
            partition_key = values.json_text([_at(row, self._partition_key)] if self._partition_key else [])
            body = values.json_text(row).encode()
            yield CosmosDocument(message.number, message.time, _ascii(partition_key), body), key

    def _deliver(self, document: CosmosDocument) -> BatchOutcome[CosmosDocument]:
        """Write a document, waiting where the account asks for it."""
        headers = {"x-ms-documentdb-is-upsert": "True"}
        if self._partition_key:
            headers["x-ms-documentdb-partitionkey"] = document.partition_key
        began = time.monotonic()
        for failures in count(1):
            signed = {**self._headers("POST", "docs"), **headers}
            reply = self._client.post(document.body, signed, f"/{self._resource}/docs")
            if reply.is_success:
                return BatchOutcome()
            if reply.status in _REFUSALS:
                said = f"{self._resource} answered {reply.status}: {_message(reply)}"
                refused = RefusedRow(document.number, document.time, _REFUSALS[reply.status], said, document.body)
                return BatchOutcome(refused=[refused])
            # A 403 may pass: an account that moves to another region has one.
            if reply.status in (401, 404):
                raise _error(reply, self._resource)
            if reply.status not in (429, 449) or time.monotonic() - began > _LONGEST_WAIT_S:
                raise OutputUnavailableError(f"{self._resource} answered {reply.status}: {_message(reply)}")
            time.sleep(min(reply.retry_after_s() or _BACK_OFF.after(failures), _LONGEST_WAIT_S))
        raise AssertionError("unreachable")


def authorization(key: bytes, verb: str, kind: str, link: str, date: str) -> str:
    """Return the header that signs a request by the account's key.

    Args:
        kind: of the resource: dbs, colls, docs. link: the path of the resource, or of what it is created in.
        date: the header ``x-ms-date``.
    """
    signed = f"{verb.lower()}\n{kind}\n{link}\n{date.lower()}\n\n"
    digest = base64.b64encode(hmac.new(key, signed.encode(), hashlib.sha256).digest()).decode()
    return quote(f"type=master&ver=1.0&sig={digest}", safe="")


def _account(connection_string: str, output: str) -> tuple[str, bytes]:
    """Return the endpoint and the key of an account; the message of an error does not repeat the string."""
    parts = dict(part.strip().partition("=")[::2] for part in connection_string.split(";") if part.strip())
    named = {name.lower(): value for name, value in parts.items()}
    try:
        return named["accountendpoint"], base64.b64decode(named["accountkey"], validate=True)
    except (KeyError, binascii.Error) as error:
        raise OutputError(
            f"output '{output}': expected AccountEndpoint=https://…;AccountKey=…; with a key in base64"
        ) from error


def _document_id(value: Any) -> str:
    text = values.text(value)
    if not text or len(text.encode()) > _LONGEST_ID_BYTES or _NOT_IN_AN_ID & set(text):
        raise ValueError(
            f"a document's id has 1 to {_LONGEST_ID_BYTES:,} bytes and none of / \\ ? #, got {text[:40]!r}"
        )
    return text


def _at(row: Mapping[str, Any], path: Sequence[str]) -> Any:
    """Return the value at a path; an empty object, as the contract has it, if there is none."""
    value: Any = row
    for name in path:
        if not isinstance(value, dict) or name not in value:
            return {}
        value = value[name]
    return value


def _ascii(text: str) -> str:
    """Return JSON with other characters than ASCII escaped, as a header has to be."""
    return json.dumps(json.loads(text), separators=(",", ":"))


def _message(reply: Reply) -> str:
    """Return what the account says of a request, for people."""
    try:
        return " ".join(str(json.loads(reply.body)["message"]).split())[:300]
    except (ValueError, KeyError, TypeError):
        return reply.text


def _error(reply: Reply, resource: str) -> OutputError:
    said = f"{resource} answered {reply.status}: {_message(reply)}"
    if reply.status == 404:
        return OutputError(f"{said}; create the database and the container, or correct their names")
    return OutputError(said) if reply.status in (400, 401, 403) else OutputUnavailableError(said)
