"""Writes results as entities of a table of Azure Table storage, by its REST contract.

Each result is inserted or replaces the entity with the same two keys, so writing it again changes nothing: results that
a killed run had written since its last commit are written again, and every entity is there once, as the last result
with its keys has it. Results with one partition key go in batches of up to a hundred, each of which is carried out
whole or not at all, and in order; different partition keys are written in parallel.

Source: "Performing entity group transactions" and "Table service error codes".

Rows as entities of Table storage: their two keys, and their properties as JSON with the types of OData.

A bigint is an Edm.Int64, a float an Edm.Double, a datetime an Edm.DateTime with all seven digits, a bit an Edm.Boolean;
records and arrays are JSON text. NULL is no property at all.

Source: "Understanding the Table service data model" and "Payload format for Table service operations".
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import math
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import quote, urlsplit

import msgspec
from pydantic import Field

from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.model.section import Public, Secret, TextPattern
from tidegate.connectors.outputs import values
from tidegate.connectors.outputs.arrow_tables import named_columns
from tidegate.connectors.outputs.kinds import OUTPUTS, OutputOpening, OutputSection
from tidegate.connectors.outputs.messaging.http_client import HttpClient, Reply
from tidegate.connectors.outputs.messaging.lanes import BatchOutcome, LaneOutput, RefusedRow
from tidegate.connectors.outputs.messaging.message_rows import MessageRows, row_at
from tidegate.connectors.outputs.output import (
    COLUMN_NAME_INVALID,
    RECORD_EXCEEDED_SIZE_LIMIT,
    REQUIRED_COLUMN_MISSING,
    TYPE_CONVERSION_ERROR,
    Output,
    OutputUnavailableError,
)
from tidegate.engine import Kind, ResultRows, Vector
from tidegate.engine.values.json_lines import plain_values
from tidegate.engine.values.vectors import Datetime

# The well-known account of Microsoft's emulator, which is documented and no secret.
_EMULATOR_ACCOUNT = "devstoreaccount1"
_EMULATOR_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_EMULATOR_ENDPOINT = f"http://127.0.0.1:10002/{_EMULATOR_ACCOUNT}"
_SUFFIX = "core.windows.net"
_HOST_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")
_FORM = "AccountName=…;AccountKey=…; or TableEndpoint=https://…;SharedAccessSignature=…;"


@dataclass(frozen=True, slots=True)
class TableService:
    """The table service of an account.

    Attributes:
        endpoint: its address, without a slash at the end.
        name: of the account.
        key: the account's key; None if a signature is used.
        signature: a shared access signature, without its question mark; None if a key is used.
    """

    endpoint: str
    name: str
    key: bytes | None
    signature: str | None

    @classmethod
    def parse(cls, connection_string: str, output: str) -> TableService:
        """Return the account that a connection string names.

        Raises:
            OutputError: it names none; the message does not repeat it.
        """
        parts = dict(part.strip().partition("=")[::2] for part in connection_string.split(";") if part.strip())
        named = {name.lower(): value for name, value in parts.items()}
        if named.get("usedevelopmentstorage", "").lower() == "true":
            return cls(_EMULATOR_ENDPOINT, _EMULATOR_ACCOUNT, base64.b64decode(_EMULATOR_KEY), None)
        name, endpoint = named.get("accountname", ""), named.get("tableendpoint", "").rstrip("/")
        suffix = named.get("endpointsuffix", _SUFFIX)
        for setting, value in (("AccountName", name), ("EndpointSuffix", suffix)):
            if value and not _HOST_NAME.fullmatch(value):
                raise OutputError(
                    f"output '{output}': {setting} in connection_string is part of a host's name: letters, digits, "
                    "'.' and '-'"
                )
        if not endpoint and name:
            endpoint = f"{named.get('defaultendpointsprotocol', 'https')}://{name}.table.{suffix}"
        signature = named.get("sharedaccesssignature", "").lstrip("?") or None
        try:
            key = base64.b64decode(named["accountkey"], validate=True) if named.get("accountkey") else None
        except binascii.Error:
            key = None
        if not endpoint or (signature is None and (key is None or not name)):
            raise OutputError(
                f"output '{output}': expected the connection string of a storage account, {_FORM}, with a key in base64"
            )
        return cls(endpoint, name, None if signature else key, signature)

    @property
    def path(self) -> str:
        """The path of the endpoint; an emulator's begins with the account's name."""
        return urlsplit(self.endpoint).path

    def target(self, resource: str) -> str:
        """Return the path, and the signature if there is one, of a request to a resource such as ``Tables``."""
        path = f"{self.path}/{resource}"
        return path if self.signature is None else f"{path}?{self.signature}"

    def headers(self, resource: str) -> dict[str, str]:
        """Return the headers that date and sign a request to a resource."""
        date = formatdate(usegmt=True)
        if self.key is None:
            return {"x-ms-date": date}
        return {
            "x-ms-date": date,
            "Authorization": f"SharedKeyLite {self.name}:{self._sign(date, f'{self.path}/{resource}')}",
        }

    def _sign(self, date: str, path: str) -> str:
        assert self.key is not None
        signed = f"{date}\n/{self.name}{path}"
        return base64.b64encode(hmac.new(self.key, signed.encode(), hashlib.sha256).digest()).decode()


_LONGEST_KEY_CHARACTERS = 512
_MOST_PROPERTIES = 252
_NOT_IN_A_KEY = re.compile(r"[/\\#?\x00-\x1f\x7f-\x9f]")
_PROPERTY_NAME = re.compile(r"[^\W\d]\w{0,254}")
_OF_THE_STORE = frozenset(("partitionkey", "rowkey", "timestamp", "etag"))
_UNSET = msgspec.UNSET


@dataclass(frozen=True, slots=True)
class Entity:
    """A row as it is written: its number and time in ticks, its keys, and its JSON."""

    number: int
    time: int
    partition_key: str
    row_key: str
    body: bytes


@dataclass(frozen=True, slots=True)
class NoEntity:
    """A row that cannot be an entity: its number, its time in ticks, the kind of error, and why."""

    number: int
    time: int
    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class EntityColumns:
    """Which columns are the keys of entities, and which are left out; names in lower case."""

    partition_key: str
    row_key: str
    removed: frozenset[str]

    def entities(self, rows: ResultRows, first: int) -> Iterator[Entity | NoEntity]:
        """Yield rows as entities, of which the first has the number ``first``."""
        columns = named_columns(rows)
        lowered = {name.lower(): vector for name, vector in columns.items()}
        keys = [_key_values(lowered.get(name), len(rows)) for name in (self.partition_key, self.row_key)]
        properties = {name: one for name, one in columns.items() if name.lower() not in self.removed}
        # A column that is a key under the key's own name is that key.
        properties = {name: one for name, one in properties.items() if not self._is_its_key(name)}
        wrong = _wrong_names(properties)
        bodies = _bodies({name: one for name, one in properties.items() if name not in wrong}, keys, len(rows))
        named = [properties[name].kinds != Kind.NULL for name in wrong]
        for place, time in enumerate(rows.timestamps.tolist()):
            number = first + place
            fault = next((wrong[name] for name, there in zip(wrong, named, strict=True) if there[place]), None)
            problem = (COLUMN_NAME_INVALID, fault) if fault is not None else None
            for column, of_rows in zip((self.partition_key, self.row_key), keys, strict=True):
                problem = problem or _key_problem(column, of_rows[place])
            if problem is not None:
                yield NoEntity(number, time, *problem)
                continue
            yield Entity(number, time, keys[0][place], keys[1][place], bodies[place])

    def _is_its_key(self, name: str) -> bool:
        lowered = name.lower()
        return (lowered, self.partition_key) == ("partitionkey",) * 2 or (lowered, self.row_key) == ("rowkey",) * 2


def _key_values(vector: Vector | None, count: int) -> list[Any]:
    if vector is None:
        return [None] * count
    if vector.uniform == Kind.NVARCHAR:
        return vector.to_list()
    return [None if value is None else values.text(value) for value in vector.to_list()]


def _key_problem(column: str, key: str | None) -> tuple[str, str] | None:
    if key is None:
        return REQUIRED_COLUMN_MISSING, f"column '{column}': an entity needs a value in it, got NULL"
    if _NOT_IN_A_KEY.search(key):
        return TYPE_CONVERSION_ERROR, f"column '{column}': a key has none of / \\ # ? and no control characters"
    if len(key) > _LONGEST_KEY_CHARACTERS:
        allowed = f"a key has at most {_LONGEST_KEY_CHARACTERS} characters, got {len(key):,}"
        return RECORD_EXCEEDED_SIZE_LIMIT, f"column '{column}': {allowed}"
    return None


def _wrong_names(properties: dict[str, Vector]) -> dict[str, str]:
    """Return why columns cannot be properties, by their names."""
    wrong = {}
    for place, name in enumerate(properties):
        if name.lower() in _OF_THE_STORE:
            wrong[name] = f"column '{name}': the name belongs to the store; give the column an alias"
        elif not _PROPERTY_NAME.fullmatch(name):
            wrong[name] = (
                f"column '{name[:60]}': a property's name has up to 255 letters, digits and underscores, and begins "
                "with no digit; give the column an alias"
            )
        elif place >= _MOST_PROPERTIES:
            wrong[name] = f"column '{name}': an entity has at most {_MOST_PROPERTIES} properties"
    return wrong


def _bodies(properties: dict[str, Vector], keys: Sequence[list[Any]], count: int) -> list[bytes]:
    """Return the JSON of each row, whose keys may still be None."""
    names: list[str] = ["PartitionKey", "RowKey"]
    columns: list[list[Any]] = [*keys]
    for name, vector in properties.items():
        types, found = _odata(vector)
        if any(type_ is not _UNSET for type_ in set(types)):
            names.append(f"{name}@odata.type")
            columns.append(types)
        names.append(name)
        columns.append(found)
    fields: list[tuple[str, Any]] = [(f"f{number}", Any) for number in range(len(names))]
    rename = {f"f{number}": name for number, name in enumerate(names)}
    row = msgspec.defstruct("Entity", fields, rename=rename, gc=False)
    lines = _encode_lines(list(map(row, *columns))) if count else b""
    return lines.splitlines()


def _odata(vector: Vector) -> tuple[list[Any], list[Any]]:
    """Return the type and the value of each row, unset where there is none to write."""
    count = len(vector.kinds)
    match vector.uniform:
        case Kind.NVARCHAR | Kind.BIT:
            return [_UNSET] * count, vector.to_list()
        case Kind.BIGINT:
            return ["Edm.Int64"] * count, list(map(str, vector.to_list()))
        case Kind.DATETIME:
            return ["Edm.DateTime"] * count, plain_values(vector)
        case _:
            pairs = [_ODATA[type(value)](value) for value in vector.to_list()]
            return [type_ for type_, _ in pairs], [value for _, value in pairs]


def _double(value: float) -> tuple[Any, Any]:
    if math.isfinite(value):
        return "Edm.Double", value
    return "Edm.Double", "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


_ODATA: dict[type, Callable[[Any], tuple[Any, Any]]] = {
    type(None): lambda value: (_UNSET, _UNSET),
    str: lambda value: (_UNSET, value),
    bool: lambda value: (_UNSET, value),
    int: lambda value: ("Edm.Int64", str(value)),
    float: _double,
    Datetime: lambda value: ("Edm.DateTime", values.text(value)),
    dict: lambda value: (_UNSET, values.nested(value)),
    list: lambda value: (_UNSET, values.nested(value)),
}

_encode_lines = msgspec.json.Encoder().encode_lines


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
# A key or signature that the account refuses; only a person can give another.
_REFUSED = (401, 403)
_STATUS = re.compile(rb"^HTTP/1\.1 (\d{3})", re.MULTILINE)
# What the account says before it looks at the request, such as that it refuses the key, is XML.
_REFUSAL = re.compile(rb"<(?:m:)?code>(\w+)</(?:m:)?code>\s*<(?:m:)?message[^>]*>([^<\r\n]*)", re.IGNORECASE)
_ERROR = re.compile(rb"\{.*\}", re.DOTALL)
_PLACE = re.compile(r"^(\d+):")
_TABLE_NAME = TextPattern(r"^[A-Za-z][A-Za-z0-9]{2,62}$", "3 to 63 letters and digits, of which the first is a letter")


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
    table: Annotated[Public, _TABLE_NAME] = Field(description="its name; a missing table is created")
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


class StorageTable(LaneOutput[Sequence[Entity]]):
    """A table; its mark counts rows."""

    def __init__(self, settings: TableStorageOutput, opening: OutputOpening) -> None:
        """
        Raises:
            OutputError: the account cannot be reached or refuses, or the query lacks a column.
        """
        identity = opening.identity
        self._account = TableService.parse(settings.connection_string, identity.output)
        headers = {"x-ms-version": _VERSION, "DataServiceVersion": "3.0", "Accept": "application/json"}
        client = HttpClient(self._account.endpoint, headers, _TIMEOUT_S)
        self._table = settings.table
        self._batch_size = settings.batch_size
        keys = {"partition key": settings.partition_key, "row key": settings.row_key}
        rows = MessageRows(None, identity, opening.shape, system=keys, drop=opening.drop)
        super().__init__("tablestorage", opening, client, rows, settings.parallel_requests)
        removed = frozenset(name.lower() for name in settings.columns_to_remove)
        self._columns = EntityColumns(settings.partition_key.lower(), settings.row_key.lower(), removed)
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
        raise OutputError(said) if reply.status in (400, 404, *_REFUSED) else OutputUnavailableError(said)

    # Rows -------------------------------------------------------------------------------------------------------------

    def write(self, rows: ResultRows) -> None:
        first = self._next
        for one in self._columns.entities(rows, first):
            if isinstance(one, NoEntity):
                self._rows.reject(one.kind, one.message, one.number, one.time, row_at(rows, one.number - first))
                continue
            open_ = self._open.get(one.partition_key)
            if open_ is None or not open_.takes(one, self._batch_size):
                if open_ is not None:
                    self._pending[self._lane_of(one.partition_key, 0)].append(open_.entities)
                open_ = self._open[one.partition_key] = _Transaction()
            open_.add(one)
        self._taken += len(rows)

    def _fill_lanes(self) -> None:
        for key, transaction in self._open.items():
            self._pending[self._lane_of(key, 0)].append(transaction.entities)
        self._open.clear()

    def _deliver(self, entities: Sequence[Entity]) -> BatchOutcome[Sequence[Entity]]:
        """Write entities as one transaction."""
        boundary = uuid.uuid4().hex
        headers = {**self._account.headers("$batch"), "Content-Type": f"multipart/mixed; boundary=batch_{boundary}"}
        reply = self._client.post(self._batch(entities, boundary), headers, self._account.target("$batch"))
        status, code, place = _outcome(reply)
        if 200 <= status < 300:
            return BatchOutcome()
        if status == 413 and len(entities) > 1:
            middle = len(entities) // 2
            return BatchOutcome([entities[:middle], entities[middle:]])
        said = f"the table {self._table} of {self._client.place} answered {status} {code}: {_message(reply)}"
        if status == 404:
            raise OutputError(f"{said}; a job that starts creates the table if the account allows it")
        if status not in (400, 413):
            raise OutputError(said) if status in _REFUSED else OutputUnavailableError(said)
        if len(entities) == 1:
            place = 0
        if place is None or place >= len(entities):
            # The answer does not say which entity it is about: each is tried by itself.
            return BatchOutcome([[entity] for entity in entities])
        wrong = entities[place]
        kind = _REFUSALS.get(code, TYPE_CONVERSION_ERROR)
        rest = [*entities[:place], *entities[place + 1 :]]
        return BatchOutcome([rest] if rest else [], [RefusedRow(wrong.number, wrong.time, kind, said, wrong.body)])

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
    if (refused := _REFUSAL.search(body)) is not None:
        return refused[1].decode(), refused[2].decode()
    found = _ERROR.search(body)
    try:
        error = json.loads(found[0])["odata.error"] if found is not None else {}
        return str(error.get("code", "")), str(error.get("message", {}).get("value", ""))
    except (ValueError, KeyError, AttributeError, TypeError):
        return "", ""


def _message(reply: Reply) -> str:
    """Return what the account says, for people."""
    return " ".join((_said(reply.body)[1] or reply.text).split())[:300]
