"""Inputs, outputs and functions as forms: their kinds with labelled fields, and what checks a form's settings.

A check says whether settings are right, or also tries to reach what they name.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tidegate import outbound
from tidegate.blobs.object_store import BlobError
from tidegate.blobs.source import open_source
from tidegate.client.connection_string import ClientError, ConnectionString
from tidegate.client.hub_client import HubClient
from tidegate.connectors.inputs.kinds import LogOpening, StreamInput
from tidegate.connectors.model.errors import InputError, JobError
from tidegate.job.config.definition import JobDefinition, definition_of, with_absolute_paths
from tidegate.job.config.schema import job_schema
from tidegate.job.prepare.functions import registered_functions
from tidegate.service.secrets import is_secret_of

_QUERY = "SELECT * INTO [output] FROM [input]"
_NOTHING: Mapping[str, Any] = {
    "inputs": {"input": {"type": "recorded", "path": "/dev/null"}},
    "outputs": {"output": {"type": "console"}},
    "functions": {},
}


def sections(_question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the kinds of inputs, outputs and functions, each with its fields."""
    return dict(_kinds())


@cache
def _kinds() -> Mapping[str, Any]:
    schema = job_schema()
    definitions = schema["$defs"]
    found: dict[str, Any] = {}
    for kind in ("inputs", "outputs"):
        mapping = schema["properties"][kind]["additionalProperties"]["discriminator"]["mapping"]
        found[kind] = [_kind(name, definitions[ref.rpartition("/")[2]]) for name, ref in sorted(mapping.items())]
    refs = [one["$ref"] for one in schema["properties"]["functions"]["additionalProperties"]["oneOf"]]
    sections = [definitions[ref.rpartition("/")[2]] for ref in refs]
    found["functions"] = [_kind(one["properties"].get("type", {}).get("const", ""), one) for one in sections]
    return found


def _kind(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": name, "description": schema.get("description", ""), "fields": list(_fields(name, schema))}


def _fields(kind: str, schema: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name, one in schema.get("properties", {}).items():
        if name == "type":
            continue
        of_type = one.get("type")
        label, unit = _labelled(name)
        yield {
            "name": name,
            "label": label,
            "unit": unit,
            "least": one.get("minimum", one.get("exclusiveMinimum")),
            "most": one.get("maximum"),
            "description": one.get("description", "").replace("relative to the job file", "an absolute path"),
            "form": "choice" if "enum" in one else of_type if of_type in _PLAIN else "json",
            "choices": one.get("enum", []),
            "default": one.get("default"),
            "isRequired": name in schema.get("required", ()),
            "isSecret": is_secret_of({"type": kind}, name) and one.get("type") == "string",
        }


_PLAIN = ("string", "number", "integer", "boolean")
_UNITS = {"s": "seconds", "ms": "milliseconds", "bytes": "bytes", "rows": "rows", "events": "events"}
_ACRONYMS = {"url": "URL", "sql": "SQL", "csv": "CSV", "json": "JSON", "sasl": "SASL", "id": "ID"}


def _labelled(name: str) -> tuple[str, str]:
    """Return what a form calls a setting, and its unit: `batch_rows` is "Batch", in rows."""
    *words, last = name.split("_")
    if words and last in _UNITS:
        unit = _UNITS[last]
    else:
        words, unit = [*words, last], ""
    label = " ".join(_ACRONYMS.get(word, word) for word in words)
    return label[0].upper() + label[1:], unit


def check_section(question: Mapping[str, Any]) -> dict[str, Any]:
    """Check the settings of an input, output or function; with `load`, also load a function as a start would.

    Raises:
        JobError: it says what is wrong and where.
    """
    definition = _defined(question)
    if question["kind"] == "functions" and question.get("load"):
        registered_functions(definition.functions)
    return {}


def _defined(question: Mapping[str, Any]) -> JobDefinition:
    """Return a job with the section of a form. Raises JobError if the settings are wrong, or a path is relative.

    A job of the service has no file that a path could be relative to.
    """
    kind, name = question["kind"], question["name"]
    content = {"name": "checked", "query": _QUERY, **_NOTHING, kind: {name: question["settings"]}}
    definition = definition_of(content, Path("the job"))
    written = JobDefinition.model_validate(content)
    here, there = (getattr(with_absolute_paths(written, Path(folder)), kind)[name] for folder in ("/here", "/there"))
    for setting in type(here).model_fields:
        if getattr(here, setting) != getattr(there, setting):
            raise JobError(f"{setting}: expected an absolute path, such as /data/results.jsonl, not a relative one")
    return definition


_REACHED_WITHIN_S = 10.0
_PORTS = {"http": 80, "https": 443, "sb": 5671, "amqps": 5671, "amqp": 5672}
_ADDRESS = re.compile(r"(?:^|[;\s=])([a-z]+://[^;\s]+)", re.IGNORECASE)


def reach(question: Mapping[str, Any]) -> dict[str, Any]:
    """Try to reach what an input or output names, without reading an event or writing a row.

    Returns its `status`, and a sentence on what was done:

    - `connected`: signed in, and found what the section names;
    - `reached`: its host answers; whether the key is right was not tried;
    - `untested`: nothing was tried, as there is no way to try that changes nothing.

    Raises:
        JobError: the settings are wrong, or what they name cannot be reached.
    """
    kind, name, settings = question["kind"], question["name"], question["settings"]
    definition = _defined(question)
    try:
        outbound.check_settings(settings)
        section = getattr(definition, kind)[name]
        status, text = _reached_input(name, section) if kind == "inputs" else _reached_output(section, settings)
    except (ClientError, OSError) as error:
        raise InputError(f"{kind[:-1]} '{name}': {error}") from None
    return {"status": status, "text": text}


def _reached_input(name: str, section: Any) -> tuple[str, str]:
    if isinstance(section, StreamInput):
        log = section.open_log(LogOpening(name, patient=False))
        try:
            ends = log.ends()
        finally:
            log.close()
        waiting = sum(one.end - one.begin for one in ends.values())
        if section.type in ("eventhub", "iothub"):
            _hub_of(section, getattr(section, "consumer_group", None))
        return "connected", f"it has {_partitions(len(ends))}, {waiting:,} events"
    return _reached_path(str(getattr(section, "path", "")), section, is_read=True)


def _reached_output(section: Any, settings: Mapping[str, Any]) -> tuple[str, str]:
    if section.type == "console":
        return "connected", "the console is always there"
    if section.type == "eventhub":
        return "connected", f"it has {_partitions(_hub_of(section))}"
    if section.type == "redis":
        return _reached_redis(section)
    if section.type == "kafka":
        return _reached_broker(section)
    if section.type != "sqlite" and hasattr(section, "database"):
        with contextlib.closing(section.database(drop=False)) as database:
            columns = database.columns()
        found = f"the table has {len(columns)} columns" if columns else "the table will be created"
        return "connected", f"it has {found}"
    address = next((match[1] for value in settings.values() for match in _ADDRESS.finditer(str(value))), None)
    if address is not None and urlsplit(address).scheme.lower() in _PORTS:
        return _reached_host(address)
    return _reached_path(str(getattr(section, "path", "") or ""), section, is_read=False)


def _partitions(count: int) -> str:
    return f"{count} partition{'' if count == 1 else 's'}"


def _hub_of(section: Any, group: str | None = None) -> int:
    """Return how many partitions a section's hub has. Raises ClientError."""
    client = HubClient(ConnectionString.parse(section.connection_string, section.event_hub))
    try:
        partitions = client.partition_ids()
        if group is not None:
            client.check_group(group, partitions[0])
        return len(partitions)
    finally:
        client.close()


def _reached_redis(section: Any) -> tuple[str, str]:
    try:
        import redis  # an extra
    except ModuleNotFoundError:
        raise JobError("an output to Redis needs redis-py: pip install 'tidegate[redis]'") from None
    try:
        with contextlib.closing(
            redis.Redis.from_url(section.connection_string, socket_connect_timeout=_REACHED_WITHIN_S)
        ) as client:
            client.ping()
    except ValueError:  # the message would repeat the address, with its password
        raise JobError("connection_string is not a Redis URL: expected redis://host:6379/0") from None
    except redis.exceptions.RedisError as error:
        raise JobError(f"Redis refused: {error}") from None
    return "connected", "the database answers"


def _reached_broker(section: Any) -> tuple[str, str]:
    """Reach one broker of a Kafka cluster; what needs a library of its own is left to the start of the job."""
    if section.connection_string is not None:
        host, port = ConnectionString.parse(section.connection_string, section.topic).host, 9093
    else:
        first = section.bootstrap_servers.split(",")[0].strip()
        host, _, text = first.rpartition(":")
        port = int(text) if text.isdecimal() else 9092
    outbound.connect(host, port, _REACHED_WITHIN_S).close()
    return "reached", f"{host}:{port} answers; signing in and the topic are tried when the job starts"


def _reached_host(address: str) -> tuple[str, str]:
    parts = urlsplit(address)
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme.lower()]
    outbound.connect(host, port, _REACHED_WITHIN_S).close()
    return "reached", f"{host}:{port} answers; nothing was sent, so the key was not tried"


def _reached_store(path: str, section: Any) -> tuple[str, str]:
    """Sign in to a container or bucket, and ask for a file that need not be there."""
    root = path.partition("{")[0]
    root = root if root == path else root.rpartition("/")[0]
    given = getattr(section, "connection_string", None)
    environment = {**os.environ, "AZURE_STORAGE_CONNECTION_STRING": given} if given else None
    try:
        open_source(root, environment).head("tidegate-connection-test")
    except BlobError as error:
        raise InputError(str(error)) from None
    return "connected", f"{root.partition('?')[0]} answers"


def _reached_path(path: str, section: Any, *, is_read: bool) -> tuple[str, str]:
    if "://" in path:
        return _reached_store(path, section)
    if not path:
        return "untested", "not tested: the first start of the job tries it"
    place = Path(path.partition("{")[0])
    if is_read:
        if not place.exists():
            raise InputError(f"there is no {path}")
        return "connected", f"{path} is there"
    folder = next(one for one in (place.absolute(), *place.absolute().parents) if one.is_dir())
    if not os.access(folder, os.W_OK | os.X_OK):
        raise JobError(f"{folder} cannot be written by the hub's user")
    return "connected", f"{folder} can be written"
