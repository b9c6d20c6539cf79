"""Bodies whose schema is in a registry: Confluent's, or any with its interface (Apicurio, Karapace, Redpanda).

Such a body begins with a zero byte and the four bytes of its schema's number, and continues with the value
(https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format).
"""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from io import BytesIO
from typing import Any

import fastavro
import numpy as np

from tidegate import outbound
from tidegate.connectors.model.errors import InputError, InputUnavailableError
from tidegate.engine import Format, Problem, TableBodies
from tidegate.engine.decoding.tables import Table

_HEADER_BYTES = 5
_ANSWER_WITHIN_S = 10
_NOT_FOUND = 404
# What fastavro raises for bytes that are not of the schema; it has no error of its own for them.
_UNREADABLE = (ValueError, TypeError, IndexError, EOFError, KeyError, OverflowError, StopIteration, UnicodeDecodeError)


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """A registry.

    Attributes:
        address: its base address.
        user: ``name:password``; empty if it lets everyone in.
    """

    address: str
    user: str = field(default="", repr=False)

    def bodies(self, values: Sequence[bytes], body_format: Format) -> Sequence[bytes]:
        """Return values as bodies that the engine reads.

        Args:
            body_format: avro, whose values become the rows of a table; or json, whose values lose their prefix.

        Raises:
            InputUnavailableError: the registry cannot be reached.
            InputError: it refuses.
        """
        if body_format.kind != "avro":
            return [value[_HEADER_BYTES:] if value[:1] == b"\0" else value for value in values]
        return TableBodies.of(self._table(values))

    def _table(self, values: Sequence[bytes]) -> Table:
        """Return a table with a row for each value; one that cannot be read is rejected alone."""
        records: list[dict[str, Any]] = []
        numbers: list[int] = []
        rejected: list[tuple[int, Problem, bytes]] = []
        for number, value in enumerate(values):
            schema = self.schema(int.from_bytes(value[1:_HEADER_BYTES])) if _is_framed(value) else None
            record = None if schema is None else _record(value, schema)
            if isinstance(record, dict):
                records.append(record)
                numbers.append(number)
            else:
                rejected.append((number, Problem.MALFORMED, value[:400]))
        names = dict.fromkeys(name for keys in {tuple(record): None for record in records} for name in keys)
        columns = {name: [record.get(name) for record in records] for name in names}
        size = sum(map(len, values))
        return Table(columns, np.array(numbers, dtype=np.int64), len(values), tuple(rejected), size)

    def schema(self, number: int) -> Any | None:
        """Return a schema, parsed; None if the registry has none of this number."""
        return _schema(self, number)

    def fetched(self, number: int) -> str | None:
        """Return the text of a schema from the registry; None if it has none of this number."""
        request = urllib.request.Request(f"{self.address}/schemas/ids/{number}")
        opener = outbound.url_opener()
        if self.user:
            request.add_header("Authorization", f"Basic {base64.b64encode(self.user.encode()).decode()}")
        try:
            with opener.open(request, timeout=_ANSWER_WITHIN_S) as answer:
                return str(json.load(answer)["schema"])
        except urllib.error.HTTPError as error:
            if error.code == _NOT_FOUND:
                return None
            kind = InputUnavailableError if error.code in _PASSING or error.code >= _SERVER_ERRORS else InputError
            raise kind(f"the schema registry {self.address} answers {error.code} {error.reason}") from error
        except outbound.AddressRefused as error:
            raise InputError(f"the schema registry {self.address} cannot be used: {error}") from None
        except (OSError, TimeoutError) as error:
            if isinstance(getattr(error, "reason", None), outbound.AddressRefused):
                raise InputError(f"the schema registry {self.address} cannot be used: {error}") from None
            raise InputUnavailableError(f"the schema registry {self.address} cannot be reached: {error}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{self.address} does not answer as a schema registry: {error!r}") from error


_PASSING = frozenset({408, 425, 429})
"""Answers that ask for another attempt, as do all from 500 on."""
_SERVER_ERRORS = 500


@lru_cache(maxsize=1_000)
def _schema(registry: SchemaRegistry, number: int) -> Any | None:
    text = registry.fetched(number)
    if text is None:
        return None
    try:
        return fastavro.parse_schema(json.loads(text))
    except (ValueError, fastavro.schema.SchemaParseException) as error:
        raise InputError(f"schema {number} of {registry.address} is not a schema of Avro: {error}") from error


def _is_framed(value: bytes) -> bool:
    return len(value) >= _HEADER_BYTES and value[0] == 0


def _record(value: bytes, schema: Any) -> Any:
    try:
        return fastavro.schemaless_reader(BytesIO(value[_HEADER_BYTES:]), schema, None)
    except _UNREADABLE:
        return None
