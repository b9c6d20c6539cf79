"""Bodies whose schema is in a registry: the hub's, or any with Confluent's interface (Apicurio, Karapace, Redpanda).

Kafka's serializers name a body's schema before it or in a header (`tidegate.kafka.value_schemas`). Azure's encoders
name it in the content type, `avro/binary+` and its id, and the body is the value alone. The hub's registry gives out a
schema by either.
"""

from __future__ import annotations

import base64
import http.client
import json
import logging
import re
import time
import urllib.error
import urllib.request
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit
from uuid import UUID

import numpy as np
from pydantic import Field

from tidegate import outbound
from tidegate.connectors.inputs.kinds import StreamInput
from tidegate.connectors.inputs.protobuf import DescriptionError, ProtobufDeserializer, message_reader
from tidegate.connectors.model.errors import InputError, InputUnavailableError
from tidegate.connectors.model.section import Public, Secret, SecretUrl
from tidegate.engine import DecodingLimits, Format, Problem, TableBodies, ValueReader
from tidegate.engine.decoding.formats import Unreadable
from tidegate.engine.decoding.tables import Table
from tidegate.kafka.value_schemas import named_schema

REGISTRY_TABLES = ("avro", "protobuf")
"""The formats whose bodies are read with their schema in the registry."""
REGISTRY_FORMATS = (*REGISTRY_TABLES, "json")
_logger = logging.getLogger(__name__)
_AZURE_AVRO = "avro/binary+"
_AVRO = "AVRO"
_ANSWER_WITHIN_S = 10
_NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class RemoteRegistry:
    """A registry.

    Attributes:
        address: its base address.
        user: ``name:password``; empty if it lets everyone in.
    """

    address: str
    user: str = field(default="", repr=False)

    def bodies(
        self,
        values: Sequence[bytes],
        body_format: Format,
        content_types: Sequence[str | None] = (),
        headers: Sequence[object] = (),
    ) -> Sequence[bytes]:
        """Return values as bodies that the engine reads.

        Args:
            values: what producers wrote.
            body_format: avro or protobuf, whose values become the rows of a table; or json, whose values lose their
                prefix.
            content_types: of the values; empty if there are none.
            headers: what the header in which Kafka's serializers name a schema says of each; empty if there are none.

        Raises:
            InputUnavailableError: the registry cannot be reached.
            InputError: it refuses.
        """
        headers = headers or [None] * len(values)
        if body_format.kind not in REGISTRY_TABLES:
            named = (named_schema(value, header) for value, header in zip(values, headers, strict=True))
            return [value if one is None else one[1] for value, one in zip(values, named, strict=True)]
        return TableBodies.of(self._table(values, content_types or [None] * len(values), headers, body_format))

    def _table(
        self,
        values: Sequence[bytes],
        content_types: Sequence[str | None],
        headers: Sequence[object],
        body_format: Format,
    ) -> Table:
        """Return a table with a row for each value; one that cannot be read is rejected alone."""
        records: list[dict[str, Any]] = []
        numbers: list[int] = []
        rejected: list[tuple[int, Problem, bytes]] = []
        for number, (value, content_type, header) in enumerate(zip(values, content_types, headers, strict=True)):
            record: Any
            if body_format.kind == "avro":
                name, content = _schema_of(value, content_type, header)
                record = None if name is None else self._value(name, content, body_format.limits)
            else:
                record = self._message(value, header)
            if isinstance(record, dict):
                records.append(record)
                numbers.append(number)
            else:
                problem = record if isinstance(record, Problem) else Problem.MALFORMED
                rejected.append((number, problem, value[:400]))
        names = dict.fromkeys(name for keys in {tuple(record): None for record in records} for name in keys)
        columns = {name: [record.get(name) for record in records] for name in names}
        size = sum(map(len, values))
        return Table(columns, np.array(numbers, dtype=np.int64), len(values), tuple(rejected), size)

    def _message(self, value: bytes, header: object) -> dict[str, Any] | Problem:
        """Return the record of a message of Protobuf, before which are its schema and its place in it."""
        named = named_schema(value, header)
        if named is None:
            return Problem.MALFORMED
        try:
            path, content = message_path(named[1])
        except ValueError:
            return Problem.MALFORMED
        read = _reader(_message_reader, self, _name(named[0]), path)
        if isinstance(read, Problem):
            return read
        try:
            (record,) = read(content)
        except Unreadable as error:
            return error.problem
        except Exception:  # google.protobuf's, which is an extra
            return Problem.MALFORMED
        return dict(record)

    def _value(self, name: int | str, content: bytes, limits: DecodingLimits) -> Any:
        """Return a value of Avro, or the problem with it."""
        reader = _reader(_value_reader, self, name, limits)
        if isinstance(reader, Problem):
            return reader
        try:
            return reader.read(content)
        except Unreadable as error:
            return error.problem

    def fetched(self, path: str) -> Any:
        """Return what the registry has at a path.

        Raises:
            SchemaMissing: it has nothing there.
            InputUnavailableError: the registry cannot be reached.
            InputError: it refuses.
        """
        request = urllib.request.Request(f"{self.address}/{path}")
        opener = outbound.url_opener()
        if self.user:
            request.add_header("Authorization", f"Basic {base64.b64encode(self.user.encode()).decode()}")
        try:
            with opener.open(request, timeout=_ANSWER_WITHIN_S) as answer:
                found = json.load(answer)
                found["schema"]
                return found
        except urllib.error.HTTPError as error:
            if error.code == _NOT_FOUND:
                raise SchemaMissing from None
            kind = InputUnavailableError if error.code in _PASSING or error.code >= _SERVER_ERRORS else InputError
            raise kind(f"the schema registry {self.address} answers {error.code} {error.reason}") from error
        except outbound.AddressRefused as error:
            raise InputError(f"the schema registry {self.address} cannot be used: {error}") from None
        except (OSError, http.client.HTTPException) as error:  # the latter from one that ends while it answers
            if isinstance(getattr(error, "reason", None), outbound.AddressRefused):
                raise InputError(f"the schema registry {self.address} cannot be used: {error}") from None
            raise InputUnavailableError(f"the schema registry {self.address} cannot be reached: {error}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{self.address} does not answer as a schema registry: {error!r}") from error


_PASSING = frozenset({408, 425, 429})
"""Answers that ask for another attempt, as do all from 500 on."""
_SERVER_ERRORS = 500


_OWN_ID = re.compile("[0-9a-f]{32}")
_MOST_REFERENCES = 1_000


def _name(named: int | UUID) -> int | str:
    return named if isinstance(named, int) else str(named)


def _path(name: int | str) -> str:
    return f"schemas/ids/{name}" if isinstance(name, int) else f"schemas/guids/{name}"


def _schema_of(value: bytes, content_type: str | None, header: object) -> tuple[int | str | None, bytes]:
    """Return the number, GUID or Azure's id of the schema of a value, None if it names none, and what was written."""
    if content_type is not None and content_type.lower().startswith(_AZURE_AVRO):
        own_id = content_type[len(_AZURE_AVRO) :].strip().replace("-", "").lower()
        return (own_id if _OWN_ID.fullmatch(own_id) else None), value
    named = named_schema(value, header)
    return (None, value) if named is None else (_name(named[0]), named[1])


class SchemaMissing(Exception):
    """A registry does not have what it was asked for."""


ASK_AGAIN_S = 1.0
"""Seconds for which bodies are rejected without another question after a registry did not have their schema.

It may have it later: a replica learns of it after the producer, and whoever publishes may write a number to come.
"""
_clock = time.monotonic
_missing: OrderedDict[tuple[RemoteRegistry, int | str], float] = OrderedDict()
"""When registries were asked in vain, the oldest first."""
_MOST_MISSING = 1_000
T = TypeVar("T")


def _reader(
    make: Callable[..., T | Problem], registry: RemoteRegistry, name: int | str, *arguments: object
) -> T | Problem:
    """Return what reads bodies of a schema; or the problem with all of them, as the schema is not there."""
    asked = _missing.get((registry, name))
    if asked is not None and _clock() - asked < ASK_AGAIN_S:
        return Problem.MALFORMED
    try:
        reader = make(registry, name, *arguments)
    except SchemaMissing:
        if asked is None:
            _logger.warning(
                "%s has no schema %s, or not all that it refers to: bodies with it are rejected", registry.address, name
            )
        _missing[registry, name] = _clock()
        _missing.move_to_end((registry, name))
        while len(_missing) > _MOST_MISSING:
            _missing.popitem(last=False)
        return Problem.MALFORMED
    _missing.pop((registry, name), None)
    return reader


def _unusable(registry: RemoteRegistry, name: int | str, reason: object) -> None:
    _logger.warning("schema %s of %s cannot be used, nor bodies with it: %s", name, registry.address, reason)


@lru_cache(maxsize=1_000)
def _value_reader(registry: RemoteRegistry, name: int | str, limits: DecodingLimits) -> ValueReader | Problem:
    """Return what reads values of a schema; or the problem with all of them, as the schema is not usable.

    Whoever publishes chooses the schema, so it must not stop a job. Raises SchemaMissing, of which nothing is kept.
    """
    found = registry.fetched(_path(name))
    if found.get("schemaType", _AVRO) != _AVRO:
        _unusable(registry, name, f"its type is {found['schemaType']}")
        return Problem.MALFORMED
    try:
        imported = [text for _, text in _referenced(registry, found, set())]
        return ValueReader(found["schema"], imported, limits.of_event())
    except Unreadable as error:
        _unusable(registry, name, repr(error.__cause__ or error))
        return error.problem
    except (ValueError, KeyError, TypeError) as error:
        _unusable(registry, name, repr(error))
        return Problem.MALFORMED


def message_path(framed: bytes) -> tuple[tuple[int, ...], bytes]:
    """Return which message of its schema a value is, and the value: indexes, one for each level. Raises ValueError."""
    count, place = _index(framed, 0)
    path = []
    for _ in range(count):
        index, place = _index(framed, place)
        path.append(index)
    return tuple(path) or (0,), framed[place:]


def _index(framed: bytes, place: int) -> tuple[int, int]:
    """Return the whole number at a place, in zigzag encoding, and where it ends. Raises ValueError."""
    value = 0
    for shift, digit in enumerate(framed[place : place + _LONGEST_INDEX]):
        value |= (digit & 0x7F) << 7 * shift
        if digit < 0x80:
            if value & 1 or value >> 1 > _MOST_MESSAGES:
                break
            return value >> 1, place + shift + 1
    raise ValueError("there is no index of a message")


_LONGEST_INDEX = 3
_MOST_MESSAGES = 10_000


@lru_cache(maxsize=1_000)
def _message_reader(registry: RemoteRegistry, name: int | str, path: tuple[int, ...]) -> ProtobufDeserializer | Problem:
    """Return what reads a message of a schema; or the problem with all of them, as for `_value_reader`."""
    found = registry.fetched(f"{_path(name)}?format=serialized")
    if found.get("schemaType") != "PROTOBUF":
        _unusable(registry, name, f"its type is {found.get('schemaType', _AVRO)}")
        return Problem.MALFORMED
    try:
        parts = list(_referenced(registry, found, set(), "&format=serialized"))
        return message_reader(found["schema"], parts, path) or Problem.MALFORMED
    except (DescriptionError, ValueError, KeyError, TypeError) as error:
        _unusable(registry, name, repr(error))
        return Problem.MALFORMED


def _referenced(
    registry: RemoteRegistry, found: Any, seen: set[tuple[str, int]], query: str = ""
) -> Iterator[tuple[str, str]]:
    """Yield the schemas that one refers to, by what it calls them, each after those that it refers to itself."""
    for one in found.get("references") or ():
        place = one["subject"], one["version"]
        if place in seen or len(seen) > _MOST_REFERENCES:
            continue
        seen.add(place)
        target = registry.fetched(f"subjects/{quote(place[0], safe='')}/versions/{place[1]}?deleted=true{query}")
        yield from _referenced(registry, target, seen, query)
        yield one["name"], target["schema"]


class RegistrySettings(StreamInput):
    """Where the schemas of an input's bodies are."""

    schema_registry: SecretUrl | None = Field(
        default=None, description="the registry's address: each body names its schema there"
    )
    schema_registry_username: Public | None = Field(default=None, description="for signing in to the registry")
    schema_registry_password: Secret | None = Field(default=None, description="for signing in to the registry")

    def registry(self, connection_string: str | None = None) -> RemoteRegistry | None:
        """Return the registry, None without one.

        Args:
            connection_string: signs in to a registry on the same host as the hub that it is for, unless the settings
                name a user.
        """
        if self.schema_registry is None:
            return None
        address, user = self.schema_registry.rstrip("/"), ""
        if self.schema_registry_username is not None:
            user = f"{self.schema_registry_username}:{self.schema_registry_password or ''}"
        elif connection_string is not None and _is_same_host(address, connection_string):
            user = f"$ConnectionString:{connection_string}"
        return RemoteRegistry(address, user)


def _is_same_host(address: str, connection_string: str) -> bool:
    endpoint = re.search(r"(?i)(?:^|;)\s*Endpoint=([^;]*)", connection_string)
    return endpoint is not None and urlsplit(endpoint[1].strip()).hostname == urlsplit(address).hostname
