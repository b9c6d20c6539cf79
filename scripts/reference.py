"""Fill the generated parts of the docs from the code: `make reference` writes them, a test compares.

A generated part stands between `<!-- generated: NAME -->` and `<!-- end -->`; the prose around it is written by hand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from scripts.python_api import python_api
from scripts.structure import package_map
from tidegate.amqp.encoding import codec
from tidegate.amqp.framing import frames
from tidegate.azure.management import deployments
from tidegate.azure.management.access import requests as arm_requests
from tidegate.azure.templates import evaluation
from tidegate.cli import main
from tidegate.connectors.inputs.kinds import INPUTS, FormatName, InputLimits
from tidegate.connectors.model.section import SecretOptions, Section
from tidegate.connectors.outputs.kinds import OUTPUTS
from tidegate.engine import CATALOG
from tidegate.engine.aggregates.states.state import AggregateFunction
from tidegate.engine.functions import regular_expressions
from tidegate.engine.stateful.analytics.earlier_rows import AnalyticFunction
from tidegate.engine.values import budget
from tidegate.hub import access, access_rules, addresses, group_offsets, partition, producers, publish, schema_registry
from tidegate.hub import errors as hub_errors
from tidegate.hub.config import emulator_file
from tidegate.hub.config import model as config_model
from tidegate.job.config.definition import EventOrdering, JobDefinition
from tidegate.job.config.function_definitions import CODE, FUNCTION_SECTIONS
from tidegate.job.config.schema import job_schema
from tidegate.job.config.spark_settings import SparkSettings
from tidegate.job.functions import isolate
from tidegate.schemas.schema import MAX_SCHEMA_BYTES
from tidegate.server import ServerSettings
from tidegate.server.connections import client_connection, requests
from tidegate.server.kafka import connection as kafka
from tidegate.server.kafka import records_api
from tidegate.sql.plan.catalog import CLAUSES, REGISTERED, Example, Form, ScalarFunction
from tidegate.sql.plan.nodes import AggregateCall, Column, Order, TemporalCall, Type
from tidegate.sql.plan.signatures import Distinct

DOCS = Path(__file__).parent.parent / "docs"
REFERENCE = DOCS / "reference"
GENERATED = [*sorted(REFERENCE.glob("*.md")), DOCS / "how-it-works.md"]
"""The documents with generated parts."""
SCHEMA = REFERENCE / "job.schema.json"
SECRETS = Path(__file__).parent.parent / "src" / "tidegate" / "service" / "secret_settings.json"
PART = re.compile(r"(<!-- generated: (?P<name>[a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def commands() -> Iterator[tuple[str, click.Command, click.Context]]:
    """Every command with its full name, groups first."""

    def below(name: str, command: click.Command, parent: click.Context | None) -> Iterator[tuple[str, Any, Any]]:
        own = name.rpartition(" ")[2]
        context = click.Context(command, info_name=own, parent=parent, terminal_width=100, **command.context_settings)
        yield name, command, context
        if isinstance(command, click.Group):
            for inner in command.list_commands(context):
                found = command.get_command(context, inner)
                assert found is not None
                yield from below(f"{name} {inner}", found, context)

    yield from below("tidegate", main, None)


def command_line() -> str:
    """The help of every command, as the command prints it."""
    return "\n".join(f"### {name}\n\n```\n{context.get_help()}\n```\n" for name, _, context in commands())


def sections() -> Iterator[tuple[str, type[BaseModel]]]:
    """The tables a job file may have, each under its heading."""
    yield "At the top", JobDefinition
    yield "`[event_ordering]`", EventOrdering
    yield "`[input_limits]`", InputLimits
    yield "`[spark]`", SparkSettings
    kinds: Mapping[str, type[BaseModel]]
    for heading, kinds in (("inputs", INPUTS.by_name), ("outputs", OUTPUTS.by_name)):
        for name, kind in kinds.items():
            yield f'`[{heading}.NAME]` with `type = "{name}"`', kind
    for name, section in FUNCTION_SECTIONS.items():
        yield "`[functions.NAME]`" + ("" if name == CODE else f' with `type = "{name}"`'), section


def job_file() -> str:
    """A table for each section of a job file."""
    parts = []
    for title, section in sections():
        rows = [
            f"| `{name}` | {_type_of(field)} | {_default(field)} | {field.description} |"
            for name, field in section.model_fields.items()
            if field.description
        ]
        doc = " ".join((section.__doc__ or "").partition("\n\n")[0].split()).replace("``", "`")
        table = ["| setting | type | default | |", "|---|---|---|---|", *rows] if rows else []
        parts.append("\n".join([f"### {title}", "", doc, "", *table]).rstrip())
    return "\n\n".join(parts) + "\n"


def _type_of(field: FieldInfo) -> str:
    names = [name for item in field.metadata if isinstance(item, FormatName) for name in item.names]
    return _type(Literal[tuple(names)] if names else field.annotation)


def _type(annotation: Any) -> str:
    origin = get_origin(annotation)
    if origin is Literal:
        return " or ".join(f"`{_toml(value)}`" for value in get_args(annotation))
    if origin in (Union, UnionType):
        return " or ".join(_type(part) for part in get_args(annotation) if part is not type(None))
    if origin is dict:
        return "section"
    if origin is tuple:
        return "list of texts"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "section"
    return {float: "number", int: "whole number", str: "text", bool: "boolean", Path: "path"}.get(annotation, "text")


def _toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)


def _default(field: Any) -> str:
    if field.is_required():
        return "required"
    if field.default is None or field.default == () or field.default_factory is not None:
        return ""
    return f"`{_toml(field.default)}`"


def conditions() -> str:
    """The refusals of the hub, by AMQP condition."""
    kinds = [
        kind
        for kind in vars(hub_errors).values()
        if isinstance(kind, type) and issubclass(kind, hub_errors.HubError) and kind is not hub_errors.HubError
    ]
    rows = [f"| `{kind.condition}` | {kind.http_status} | {' '.join((kind.__doc__ or '').split())} |" for kind in kinds]
    return "\n".join(["| AMQP condition | HTTP | when |", "|---|---|---|", *rows]) + "\n"


def features() -> str:
    """What the query language has beside functions."""
    return ", ".join(f"`{name}`" for name in sorted(CLAUSES)) + "\n"


def windows() -> str:
    """Every kind of window."""
    kinds = dict.fromkeys([*CATALOG.windows.values(), CATALOG.snapshot])
    rows = []
    for kind in kinds:
        lengths = ", ".join(f"[{length.name}]" if length.optional else length.name for length in kind.lengths)
        partitions = " With `OVER (PARTITION BY key)` there is one sequence of windows for each key."
        text = kind.description + (partitions if kind.partitions else "")
        rows.append(f"| `{kind.names[0]}({lengths})` | {text} | `{kind.example}` |")
    return "\n".join(["| window | | example |", "|---|---|---|", *sorted(rows)]) + "\n"


def aggregates() -> str:
    """Every aggregate: where it may be used, and what is kept for it."""
    value, key = Column(None, ("value",)), Column(None, ("key",))
    rows = []
    for aggregate in CATALOG.aggregates.values():
        assert isinstance(aggregate, AggregateFunction)
        type_ = aggregate.signature.result
        sample = AggregateCall("uda.name", (value,), order_by=(Order(key),), parameters=("n",))
        kept, bounded = aggregate.kept(sample)
        over = " OVER (ORDER BY key)" if aggregate.ranked else ""
        name = "uda.name" if aggregate.name == REGISTERED else aggregate.spelling
        cells = [
            f"`{name}({aggregate.signature}){over}`",
            "" if type_ is Type.ANY else f"`{type_.value}`",
            aggregate.description,
            "" if aggregate.example is None else _example(*aggregate.example),
            "yes" if aggregate.with_limit else "",
            "yes" if aggregate.distinct is Distinct.APPLIES else "",
            kept if bounded else f"{kept}: grows with the events",
        ]
        rows.append(f"| {' | '.join(cells)} |")
    head = [
        "| aggregate | type | | example | `LIMIT DURATION` | `DISTINCT` | kept of a group |",
        "|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*head, *sorted(rows, key=str.lower)]) + "\n"


def analytics() -> str:
    """Every function of the rows before that is no aggregate: its arguments, its result and what is kept of a key."""
    rows = []
    for function in CATALOG.analytics.values():
        assert isinstance(function, AnalyticFunction)
        type_ = function.signature.result
        over = "" if function.aligned else " OVER (LIMIT DURATION(unit, n))"
        sample = TemporalCall(function.name, (Column(None, ("value",)),), 1, offset=function.offset)
        cells = [
            f"`{function.spelling}({function.signature}){over}`",
            "" if type_ is Type.ANY else f"`{type_.value}`",
            function.description,
            "" if function.example is None else _example(*function.example),
            function.kept(sample, ""),
        ]
        rows.append(f"| {' | '.join(cells)} |")
    head = ["| function | type | | example | kept of a key |", "|---|---|---|---|---|"]
    return "\n".join([*head, *sorted(rows, key=str.lower)]) + "\n"


def functions() -> str:
    """Every function that a row is enough for, by subject."""
    groups: dict[str, list[str]] = {}
    for function in CATALOG.scalars.values():
        if function.form is Form.CALL and function.example is not None:
            groups.setdefault(function.group, []).append(_function(function, function.example))
    for table in CATALOG.tables.values():
        aliases = "".join(f", also `{alias}`" for alias in table.aliases)
        columns = ", ".join(f"`{name}`" for name, _ in table.columns)
        text = f"{_described(table.summary)} Columns: {columns}."
        groups.setdefault("Table functions (`CROSS APPLY`, `OUTER APPLY`)", []).append(
            f"| `{table.spelling}({table.argument.value})`{aliases} | array of rows | {text} "
            f"| `{_cell(table.example.call)}` has the row `{_cell(table.example.result)}` |"
        )
    head = ["| function | type | | example |", "|---|---|---|---|"]
    return "\n\n".join("\n".join([f"**{title}**", "", *head, *sorted(rows)]) for title, rows in groups.items()) + "\n"


def _function(function: ScalarFunction, example: Example) -> str:
    type_ = "" if function.signature.result is Type.ANY else f"`{function.signature.result.value}`"
    text = _described(function.summary)
    if function.nulls and function.nulls != "an argument is NULL":
        text += f" NULL if {function.nulls}."
    elif not function.nulls:
        text += " Never NULL."
    if function.fails:
        text += f" Fails if {function.fails}."
    call = f"`{function.spelling}({function.signature})`"
    return f"| {call} | {type_} | {text} | {_example(example.call, example.result)} |"


def _example(call: str, result: str) -> str:
    return f"`{_cell(call)}` is `{_cell(result)}`"


def _described(summary: str) -> str:
    """An imperative sentence of the code as a sentence about the function."""
    text = summary.removeprefix("Return ")
    return text[:1].upper() + text[1:]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def limits() -> str:
    """Return a table of what one event and one row may take, and what happens beyond."""
    rows = ["| what | at most | beyond |", "|---|---|---|"]
    for name, field in InputLimits.model_fields.items():
        beyond = "the file is unreadable" if name in ("rows", "file_bytes") else "the event is rejected"
        rows.append(f"| {field.description} (`input_limits.{name}`) | {field.default:,} | {beyond} |")
    rows += [
        f"| {what} | {value:,} {unit} | {beyond} |" for what, value, unit, beyond in (*ROW_LIMITS, *FUNCTION_LIMITS)
    ]
    return "\n".join(rows) + "\n"


_ROW_FAILS, _ITEM_FAILS = "the row fails", "the call fails, and with it its row"
ROW_LIMITS: tuple[tuple[str, int, str, str], ...] = (
    ("a text that an expression computes", budget.LONGEST_TEXT_BYTES, "bytes of UTF-8", _ROW_FAILS),
    ("the texts of one computed column in the rows of one event", budget.BATCH_BYTES, "bytes", "these rows fail"),
    ("a pattern of LIKE, PATINDEX or RegexMatch", budget.LONGEST_PATTERN, "characters", _ROW_FAILS),
    ("a regular expression, repetitions written out", budget.LARGEST_EXPRESSION, "parts", _ROW_FAILS),
    (
        "a LIKE pattern with wildcards and more than 32 characters, times its text",
        budget.MOST_LIKE_STEPS,
        "characters²",
        _ROW_FAILS,
    ),
    ("JSON that JSON_PARSE or CAST reads", budget.MOST_VALUES, "values", _ROW_FAILS),
    ("rows that CROSS APPLY makes of one event", budget.MOST_ROWS_OF_ONE, "rows", "the event's rows fail"),
    ("texts that CROSS APPLY repeats for one event", budget.APPLIED_BYTES, "bytes", "the event's rows fail"),
    (
        "records and arrays that CROSS APPLY repeats in the rows of an output for one event, as with `SELECT *`",
        budget.APPLIED_BYTES,
        "bytes of JSON",
        "the event's rows fail",
    ),
    ("a line, ring or set of united parts", budget.MOST_VERTICES, "vertices", _ROW_FAILS),
    (
        "edges that meet in a ring that crosses itself, in a ring and its holes, in united parts, "
        "or in what crosses the date line",
        budget.MOST_CROSSINGS,
        "pairs of bounding boxes",
        _ROW_FAILS,
    ),
    ("the holes of a polygon times its longest ring", budget.MOST_EDGE_PAIRS, "vertices", _ROW_FAILS),
    (
        "edges that may meet in a ring, or in two geometries that are compared",
        budget.MOST_EDGE_PAIRS,
        "pairs of bounding boxes",
        _ROW_FAILS,
    ),
)
FUNCTION_LIMITS: tuple[tuple[str, int, str, str], ...] = (
    ("a JavaScript call (processor time)", int(isolate.TIME_LIMIT_S * 1000), "ms", _ITEM_FAILS),
    ("a JavaScript function (memory)", isolate.MEMORY_LIMIT_BYTES, "bytes", _ITEM_FAILS),
    (
        "a regular expression that needs backtracking, on one text",
        int(regular_expressions.TIME_LIMIT_S * 1000),
        "ms",
        _ROW_FAILS,
    ),
)

_SETTINGS = ServerSettings()
_DETACHED, _NOT_READ = "the link is detached", "the client's socket is not read until there is room"
_INVALID, _BAD = "the request is refused as invalid", "400"
HUB_LIMITS: tuple[tuple[str, float, str, str], ...] = (
    ("**Definitions**", 0, "", ""),
    ("partitions of a hub", config_model.MAX_PARTITIONS, "", _BAD),
    ("consumer groups of a hub, beside `$Default`", config_model.MAX_CONSUMER_GROUPS, "", _BAD),
    ("authorization rules of a namespace or a hub", access_rules.MAX_RULES, "", _BAD),
    ("retention", config_model.MAX_RETENTION_HOURS, "hours", _BAD),
    ("throughput units", config_model.MAX_THROUGHPUT_UNITS, "", _BAD),
    ("`Config.json`", emulator_file.MAX_FILE_BYTES, "bytes", "the hub does not start, and says why"),
    ("**Publishing and reading**", 0, "", ""),
    (
        "a publication (262,144 in the tier Basic)",
        config_model.Tier.STANDARD.max_message_bytes,
        "bytes",
        "it is rejected as too large; 413 over HTTPS",
    ),
    ("a partition key", publish.MAX_PARTITION_KEY_CHARACTERS, "characters", "the publication is rejected"),
    (
        "published bytes of one client that are not yet on the disk",
        _SETTINGS.in_flight_bytes_per_client,
        "bytes",
        _NOT_READ,
    ),
    ("published bytes of all clients that are not yet on the disk", _SETTINGS.in_flight_bytes, "bytes", _NOT_READ),
    (
        "bytes for one client that it has not taken",
        _SETTINGS.unsent_bytes_per_client,
        "bytes",
        "nothing more is delivered to it",
    ),
    ("readers of a partition in a consumer group, without an owner level", partition.MAX_READERS, "", _DETACHED),
    (
        "idempotent producers that a partition remembers",
        producers.MAX_PRODUCERS,
        "",
        "the first of them is forgotten; it can no longer be told what it sent twice",
    ),
    ("**AMQP**", 0, "", ""),
    ("from the TCP connection to the open", _SETTINGS.open_timeout_s, "s", "the client is disconnected"),
    ("silence of a connection", _SETTINGS.idle_timeout_ms / 1000, "s", "the client is disconnected"),
    ("a frame before the open", frames.MAX_FRAME_SIZE_BEFORE_OPEN, "bytes", "the connection is closed"),
    ("a performative", frames.MAX_PERFORMATIVE_SIZE, "bytes", "the connection is closed"),
    ("how deeply values may be nested", codec.MAX_DEPTH, "", "the connection is closed, or the message rejected"),
    ("an address", addresses.MAX_ADDRESS_CHARACTERS, "characters", "the link is refused"),
    ("a token", access.MAX_TOKEN_CHARACTERS, "characters", "it is refused"),
    ("tokens of a connection", client_connection.MAX_TOKENS, "", "the oldest no longer counts"),
    ("a request to `$management` or `$cbs`", requests.MAX_REQUEST_BYTES, "bytes", _DETACHED),
    ("replies that a client does not take", requests.MAX_WAITING_REPLIES, "", "the oldest are dropped"),
    ("**Kafka**", 0, "", ""),
    ("a request before the client has signed in", kafka.MAX_STRANGER_BYTES, "bytes", "the connection is closed"),
    ("a request", kafka.MAX_REQUEST_BYTES, "bytes", "the connection is closed"),
    ("requests of a connection that wait for answers", kafka.MAX_WAITING, "", _NOT_READ),
    (
        "an answer to Fetch, unless a batch is larger",
        records_api.MAX_FETCH_BYTES,
        "bytes",
        "the rest comes later",
    ),
    ("how long Fetch may wait", records_api.MAX_FETCH_WAIT_S, "s", "it is answered with what there is"),
    ("partitions of a fetch session", records_api.MAX_FETCH_PARTITIONS, "", _INVALID),
    ("metadata of a committed offset", group_offsets.MAX_METADATA_BYTES, "bytes", "the commit is refused"),
    ("**Schema registry**", 0, "", ""),
    ("a schema", MAX_SCHEMA_BYTES, "characters", "it is refused"),
    ("all schemas of a namespace", schema_registry.MAX_REGISTRY_BYTES, "bytes", "new ones are refused"),
    ("**Management API**", 0, "", ""),
    ("the body of a request", arm_requests.MAX_BODY_BYTES, "bytes", "413"),
    ("the path of a request", arm_requests.MAX_PATH_CHARACTERS, "characters", "414"),
    ("how deeply JSON may be nested", arm_requests.MAX_DEPTH, "", _BAD),
    ("how long the body of a request may take", _SETTINGS.body_timeout_s, "s", _BAD),
    ("copies of one loop of a template", evaluation.MAX_COPIES, "", _BAD),
    ("values that a part of a template expands to", evaluation.MAX_VALUES, "", _BAD),
    ("texts that a part of a template expands to", evaluation.MAX_CHARACTERS, "characters", _BAD),
    ("resources of a deployment with those nested in it", deployments.MAX_RESOURCES, "", _BAD),
    ("how deeply deployments may be nested", deployments.MAX_NESTED, "", _BAD),
)


def hub_limits() -> str:
    """Return a table of what clients of the hub may ask for, and what happens beyond."""
    rows = ["| what | at most | beyond |", "|---|---|---|"]
    for what, value, unit, beyond in HUB_LIMITS:
        most = f"{value:,.0f} {unit}".strip() if beyond else ""
        rows.append(f"| {what} | {most} | {beyond} |")
    return "\n".join(rows) + "\n"


PARTS: dict[str, Callable[[], str]] = {
    "limits": limits,
    "hub-limits": hub_limits,
    "command-line": command_line,
    "job-file": job_file,
    "conditions": conditions,
    "features": features,
    "windows": windows,
    "aggregates": aggregates,
    "analytics": analytics,
    "functions": functions,
    "python-api": python_api,
    "packages": package_map,
}


def filled(text: str) -> str:
    """The text with its generated parts made anew."""
    return PART.sub(lambda found: f"{found[1]}\n{PARTS[found['name']]()}\n{found[3]}", text)


def schema() -> str:
    """The JSON Schema of the job file."""
    return json.dumps(job_schema(), indent=2, ensure_ascii=False) + "\n"


def secret_settings() -> str:
    """Whether each setting of a job file is secret, by the type of its section."""
    found: dict[str, dict[str, str | list[str]]] = {}
    kinds: tuple[tuple[str, type[Section]], ...] = (
        *INPUTS.by_name.items(),
        *OUTPUTS.by_name.items(),
        *FUNCTION_SECTIONS.items(),
        ("spark", SparkSettings),
    )
    for name, section in kinds:
        known = found.setdefault(name, {})
        for setting, secrecy in section.secrecy().items():
            if isinstance(secrecy, SecretOptions):
                # an input and an output of one type pass their options to the same library
                known[setting] = sorted({*known.get(setting, ()), *secrecy.public})
            else:
                assert known.setdefault(setting, secrecy.value) == secrecy.value, f"{name}.{setting} is declared twice"
    return json.dumps(found, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    SECRETS.write_text(secret_settings(), encoding="utf-8")
    SCHEMA.write_text(schema(), encoding="utf-8")
    for path in GENERATED:
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
