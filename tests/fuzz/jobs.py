"""What events, queries and templates from outside go into, beyond the hub: targets like those of `targets`."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from random import Random

import pyarrow as pa
import pyarrow.parquet
from google.protobuf import descriptor_pb2

from tests.engine.decoding.hostile import container, long_of, record, text_of
from tests.engine.random_queries import KNOWN, Grammar
from tests.engine.streams import Events, task
from tidegate.azure.templates import Template, TemplateError
from tidegate.connectors.inputs.protobuf import ProtobufDeserializer
from tidegate.engine import CATALOG, Format, KeyedSide, Program, UnsupportedQuery, Wanted, decoder_of
from tidegate.ordering import END_OF_TIME, NO_TIME, Policy
from tidegate.sql import QueryError, compile_query
from tidegate.sql.plan.nodes import Type

_WANTED = (
    Wanted((("a",), ("b", "c")), record=False),
    Wanted((("a",),), record=True),
    Wanted((), record=False, declared=(("a", Type.BIGINT), ("t", Type.NVARCHAR))),
)


def _decoding(*formats: Format) -> Callable[[bytes], None]:
    """Return a target that decodes a body next to a good one, as each of some formats."""

    def target(data: bytes) -> None:
        for format_ in formats:
            for wanted in _WANTED:
                decoded = decoder_of(wanted, format_).decode([data])
                assert len(decoded) or len(decoded.rejected_events) or len(data) < 4096

    return target


def _packed(kind: str) -> tuple[Format, ...]:
    return Format(kind), Format(kind, compression="gzip"), Format(kind, compression="deflate")


@cache
def _message() -> Format:
    """Return the format of a message that contains itself, a list and a map."""
    file = descriptor_pb2.FileDescriptorProto(name="m.proto", package="f", syntax="proto3")
    message = file.message_type.add(name="M")
    kinds = descriptor_pb2.FieldDescriptorProto
    for number, (name, kind, label) in enumerate(
        (
            ("a", kinds.TYPE_INT64, kinds.LABEL_OPTIONAL),
            ("b", kinds.TYPE_MESSAGE, kinds.LABEL_REPEATED),
            ("t", kinds.TYPE_STRING, kinds.LABEL_OPTIONAL),
            ("n", kinds.TYPE_INT32, kinds.LABEL_REPEATED),
        ),
        start=1,
    ):
        field = message.field.add(name=name, number=number, type=kind, label=label)
        if kind == kinds.TYPE_MESSAGE:
            field.type_name = ".f.M"
    files = descriptor_pb2.FileDescriptorSet(file=[file])
    return Format("custom", deserializer=ProtobufDeserializer("f.M", files.SerializeToString()))


def protobuf(data: bytes) -> None:
    """A message of Protocol Buffers."""
    _decoding(_message())(data)


def query(data: bytes) -> None:
    """The text of a query: a plan, or diagnostics."""
    with contextlib.suppress(QueryError):
        compile_query(data.decode("utf-8", "replace"), catalog=CATALOG)


def expression(data: bytes) -> None:
    """An expression, evaluated over the events that follow it: rows, or data errors."""
    text, _, bodies = data.decode("utf-8", "replace").partition("\n")
    try:
        compiled = compile_query(f"SELECT {text} AS x INTO o FROM a", catalog=CATALOG)
        of = Program.prepare(compiled, {}, {"udf.f": lambda value: [value]})
    except (QueryError, UnsupportedQuery):
        return
    keyed = KeyedSide(of)
    for name in of.input_names:
        events = Events.of([line.encode() for line in bodies.split("\n")])
        partial, _ = task(of, name, "0", events, Policy.none(), of.new_carry(name))
        keyed.absorb([partial])
    for result in keyed.emit(NO_TIME, END_OF_TIME):
        assert isinstance(result.to_json_lines(), bytes | list)


_CONSTANTS = {
    "resourcegroup": {"name": "g", "location": "here", "id": "/subscriptions/s/resourceGroups/g"},
    "subscription": {"subscriptionId": "s"},
}


def template(data: bytes) -> None:
    """A template of Azure Resource Manager: resources, or the reason why not."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return
    with contextlib.suppress(TemplateError):
        for resource in Template(content, {}, _CONSTANTS).resources():
            resource.body(resource.scope)


_ROW = {
    "a": 7,
    "b": {"c": [1, {"d": None}]},
    "t": "2026-01-01T00:00:00Z",
    "s": "x\u20ac",
    "v": 1.5,
    "r": {"x": {"y": 1}},
}
_POINTS = {
    "p": {"type": "Point", "coordinates": [1.5, 2]},
    "l": [1, "two", [3.5]],
    "k": True,
    "w": 10**18,
    "r": {"x": {"y": 1}},
}
_SHAPE = {"g": {"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [1, 0], [0, 1], [0, 0]]]}}
_DEEP = {"r": {"x": {"y": 1}}}
_JSON = json.dumps({**_DEEP, **_ROW, **_POINTS, **_SHAPE}).encode()
_EXPRESSIONS = (
    "REGEXMATCH(s, '(x+)+y{2,9}(?=a)')",
    "ST_AREA(g) + ST_DISTANCE(p, CreatePoint(v, w)) + ST_WITHIN(p, g)",
    "CONCAT(s, REPLACE(s, 'x', s), REPLICATE(s, 999), SUBSTRING(s, a, w))",
    "DATEADD(year, w, t) - DATEDIFF(day, t, '9999-12-31')",
    "CAST(w AS nvarchar(max)) + CAST('1e308' AS float) * POWER(v, 999) % 0",
    "JSON_PARSE('[[{\"a\":1}]]')",
    "CASE WHEN s LIKE '%[a-z]_%' THEN l ELSE r.x.y END",
    "udf.f(r)",
)


def _expressions() -> list[bytes]:
    grammar = Grammar(Random(1))
    return [f"{text}\n".encode() + _JSON for text in (*_EXPRESSIONS, *(grammar.value() for _ in range(40)))]


def _template() -> bytes:
    variables = {
        "copy": [{"name": "names", "count": 3, "input": "[format('{0}-{1}', parameters('p'), copyIndex('names'))]"}],
        "large": "[concat(string(range(0, 20)), base64(padLeft('x', 99)))]",
    }
    resource = {
        "type": "Microsoft.EventHub/namespaces",
        "apiVersion": "2024-01-01",
        "name": "[concat(parameters('p'), copyIndex())]",
        "copy": {"name": "c", "count": 3},
        "location": "[resourceGroup().location]",
        "properties": {"x": "[union(createObject('a', 1), json('{\"b\": [1]}'))]", "y": "[variables('large')]"},
    }
    parameters = {"p": {"type": "string", "defaultValue": "ns"}}
    return json.dumps({"parameters": parameters, "variables": variables, "resources": [resource, resource]}).encode()


def _parquet() -> bytes:
    file = io.BytesIO()
    pa.parquet.write_table(pa.table({"a": [1, 2], "b": [{"c": "x"}, None], "l": [[1], []]}), file)
    return file.getvalue()


def _avro(codec: str = "null") -> bytes:
    schema = record("long", {"type": "array", "items": ["null", "string", "r"]}, {"type": "map", "values": "double"})
    rows = long_of(7) + long_of(1) + long_of(1) + text_of(b"x") + b"\0" + long_of(1) + text_of(b"k") + bytes(9)
    packed = zlib.compressobj(wbits=-15)
    data = rows if codec == "null" else packed.compress(rows) + packed.flush()
    return container(schema, 1, data, codec.encode())


def _queries() -> list[bytes]:
    return [re.sub(r"\s+", " ", text).encode()[:1500] for text in KNOWN[::5]]


SEEDED: dict[str, tuple[Callable[[bytes], None], Sequence[bytes], int]] = {
    "json": (
        _decoding(*_packed("json"), Format(encoding="utf-16")),
        [_JSON, b"[" + _JSON + b"," + _JSON + b"]", _JSON + b"\n" + _JSON, gzip.compress(_JSON, mtime=0)],
        2,
    ),
    "csv": (_decoding(*_packed("csv")), [b'a,b,c\n1,"x ""y""",2\n3,,4\n', gzip.compress(b"a,b\n1,2\n", mtime=0)], 4),
    "avro": (_decoding(*_packed("avro")), [_avro(), _avro("deflate"), gzip.compress(_avro(), mtime=0)], 2),
    "parquet": (_decoding(Format("parquet")), [_parquet()], 10),
    "protobuf": (protobuf, [b"\x08\x07\x12\x02\x08\x01\x12\x04\x12\x02\x12\x00\x1a\x01x\x22\x03\x01\x02\x03"], 2),
    "query": (query, _queries(), 10),
    "expression": (expression, _expressions(), 20),
    "template": (template, [_template()], 4),
}
"""Each target with its seeds and how slow it is; see `targets.Target`."""
