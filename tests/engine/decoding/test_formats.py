"""Bodies and files in every format, held against Python's own readers, and any bytes at all."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.engine.decoding.content import rows_of
from tidegate.engine.decoding.decoded import Problem, Wanted
from tidegate.engine.decoding.formats import JSON, Format, decoder_of
from tidegate.engine.decoding.table_formats import CsvFormat
from tidegate.engine.decoding.tables import TableBodies, byte_sizes
from tidegate.engine.values.vectors import Datetime
from tidegate.ordering import parse_time
from tidegate.sql.plan.nodes import Type

CSV = Format("csv")


def decoded(
    wanted: Wanted, format_: Format, bodies: Sequence[bytes]
) -> tuple[dict[str, list[Any]], list[tuple[int, Problem]], list[tuple[int, int]]]:
    result = decoder_of(wanted, format_).decode(bodies)
    rejected = zip(result.rejected_events.tolist(), map(Problem, result.rejected_problems.tolist()), strict=True)
    places = zip(result.events.tolist(), result.indices.tolist(), strict=True)
    return {".".join(path): vector.to_list() for path, vector in result.fields.items()}, list(rejected), list(places)


def of_file(wanted: Wanted, format_: Format, content: bytes) -> tuple[dict[str, list[Any]], list[tuple[int, Problem]]]:
    bodies = rows_of(content, format_)
    format_ = format_ if isinstance(bodies, TableBodies) else JSON
    values, rejected, _ = decoded(wanted, format_, bodies)
    return values, rejected


def avro(schema: dict[str, Any], rows: list[dict[str, Any]], codec: str = "null") -> bytes:
    buffer = io.BytesIO()
    fastavro.writer(buffer, fastavro.parse_schema(schema), rows, codec=codec)
    return buffer.getvalue()


def parquet(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table, buffer)
    return buffer.getvalue()


# CSV
# --------------------------------------------------------------------------------------------------------


def test_csv_bodies_have_a_header_each_and_values_are_text() -> None:
    bodies = [b"Id,v\n1,2.5\n2,\n", b"v;w\n", b'v,id\r\n"a ""b""",3\r\n']
    values, rejected, places = decoded(Wanted((("id",), ("v",), ("x",))), CSV, bodies)
    assert values == {"id": ["1", "2", "3"], "v": ["2.5", None, 'a "b"'], "x": [None, None, None]}
    assert (rejected, places) == ([], [(0, 0), (0, 1), (2, 0)])


@pytest.mark.parametrize("delimiter", [",", ";", "\t", " ", "|"])
def test_csv_with_another_delimiter_or_without_a_header(delimiter: str) -> None:
    body = delimiter.join("ab").encode() + b"\n" + delimiter.join("12").encode()
    assert decoded(Wanted((("b",),)), Format("csv", delimiter), [body])[0] == {"b": ["2"]}
    without = Format("csv", delimiter, columns=("a", "b"))
    assert decoded(Wanted((("b",),)), without, [body])[0] == {"b": ["b", "2"]}


def test_declared_columns_give_csv_its_types() -> None:
    declared = (("n", Type.BIGINT), ("f", Type.FLOAT), ("t", Type.DATETIME), ("ok", Type.BIT), ("s", Type.NVARCHAR))
    good = b"n,f,t,ok,s\n1,2,2026-01-01T00:00:00Z,true,7\n"
    bad = [good.replace(b"\n1,", b"\nx,"), b"n,f\n1,2\n", good.replace(b"true", b"maybe")]
    values, rejected, _ = decoded(Wanted((("n",),), declared=declared), CSV, [good, *bad])
    assert values == {
        "n": [1],
        "f": [2.0],
        "t": [Datetime(parse_time("2026-01-01T00:00:00Z"))],
        "ok": [True],
        "s": ["7"],
    }
    assert rejected == [(1, Problem.TYPE_CONVERSION), (2, Problem.MISSING_COLUMNS), (3, Problem.TYPE_CONVERSION)]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", Problem.INVALID_HEADER),
        (b"a,A\n1,2\n", Problem.INVALID_HEADER),
        (b"a,\n1,2\n", Problem.INVALID_HEADER),
        (b"a,b\n1\n", Problem.MALFORMED),
        (b"a,b\n1,\xff\n", Problem.MALFORMED),
        (b"\xff,b\n1,2\n", Problem.INVALID_HEADER),
    ],
)
def test_a_bad_csv_body_is_rejected_alone(body: bytes, problem: Problem) -> None:
    values, rejected, _ = decoded(Wanted((("a",),)), CSV, [b"a\n1", body, b"a\n2"])
    assert (values["a"], rejected) == (["1", "2"], [(1, problem)])


@pytest.mark.slow
def test_bodies_that_stand_in_the_way_of_others_are_found() -> None:
    """However they stand among bodies that are read together, each gives what it gives alone."""
    kinds = [
        b"a,b\n1,2",
        b'a,b\n"x\ny",2\n3,4',
        b"b,a\n1,2",
        b"a,b\n1",
        b"a,b\n",
        b"a,a\n1,2",
        b'a,b\n"1,2',
        b"",
        b"a,b\r\n5,6\r\n",
    ]
    bodies = [kinds[(number * number) % len(kinds)] for number in range(60)] + kinds[:1] * 100
    values, rejected, places = decoded(Wanted((("a",), ("b",))), CSV, bodies)
    expected: list[Any] = []
    expected_rejected: list[Any] = []
    for event, body in enumerate(bodies):
        alone, bad, where = decoded(Wanted((("a",), ("b",))), CSV, [body])
        expected += [(event, index, *row) for (_, index), *row in zip(where, alone["a"], alone["b"], strict=True)]
        expected_rejected += [(event, problem) for _, problem in bad]
    got = [(*place, *row) for place, *row in zip(places, values["a"], values["b"], strict=True)]
    assert (got, rejected) == (expected, expected_rejected)


def test_csv_text_keeps_its_line_ends_whatever_is_read_with_it() -> None:
    bodies = [b'a,b\r\n1,"x\r\ny"\r\n', b'a,b\r\n2,"x\ny"\r\n3,z\r\n', b"a,b\r\n4,z\r\n"]
    values, rejected, _ = decoded(Wanted((("b",),)), CSV, bodies)
    assert (values, rejected) == ({"b": ["x\r\ny", "x\ny", "z", "z"]}, [])


@pytest.mark.parametrize(
    ("rows", "read", "rejected"),
    [
        (b'1,"x\n2,y\n', [], [0]),
        (b'1,"x\n2,y', [], [0]),
        (b'1,x\n"2,y\n3,z\r\n', ["x"], [1]),
        (b'1,"x""\n', [], [0]),
        (b'1,"\n', [], [0]),
        (b'1,"\n"\n', ["\n"], []),
        (b'1,"\n"\n3\n', ["\n"], [1]),
        (b'1,"x""\n"\n', ['x"\n'], []),
        (b'1,5" pipe\n2,"y\n"\n', ['5" pipe', "y\n"], []),
    ],
)
def test_a_quote_of_csv_that_is_not_closed_rejects_its_row(rows: bytes, read: list[str], rejected: list[int]) -> None:
    """All rows that followed were part of one value, and nothing counted them."""
    values, problems = of_file(Wanted((("b",),)), CSV, b"a,b\n" + rows)
    assert values["b"] == read
    assert problems == [(row, Problem.MALFORMED) for row in rejected]


def test_a_quote_of_csv_that_is_not_closed_is_shown_with_the_line_that_opens_it() -> None:
    table = CsvFormat().table(b'a,b\n1,x\n2,"y\n3,z\n4,z\n', CSV, CSV.limits.of_file())
    assert [(number, start) for number, _, start in table.rejected] == [(1, b'2,"y\n3,z\n4,z\n')]


@given(
    st.lists(st.tuples(*[st.text('"\n,x', max_size=3)] * 2), min_size=1, max_size=3).map(
        lambda rows: "".join(",".join('"' + cell.replace('"', '""') + '"' for cell in row) + "\n" for row in rows)
    ),
    st.integers(0, 20),
)
def test_a_csv_text_that_is_cut_within_quotes_is_never_read_whole(text: str, cut: int) -> None:
    shorter = text[: max(1, len(text) - cut)]
    _, problems = of_file(Wanted((("a",),)), CSV, b"a,b\n" + shorter.encode())
    if shorter.count('"') % 2:
        assert problems
    if shorter == text:
        assert not problems


def test_an_unclosed_quote_of_csv_with_another_delimiter_reads_the_same_beside_other_bodies() -> None:
    bodies = [b"3;z", b'1;"x\n\n']
    format_ = Format("csv", ";", columns=("a", "b"))
    values, _, _ = decoded(Wanted((("b",),)), format_, bodies)
    alone = [decoded(Wanted((("b",),)), format_, [body])[0]["b"] for body in bodies]
    assert values["b"] == [*alone[0], *alone[1]]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b'"' + b"\n" * 140_000 + b'"', Problem.LIMIT_EXCEEDED),
        (b'"' + b"\n" * 140_000, Problem.LIMIT_EXCEEDED),
        (b'"\xff' + b"\n" * 140_000 + b'"', Problem.MALFORMED),
    ],
    ids=["longer than the csv module reads", "not closed", "not UTF-8"],
)
def test_csv_text_of_very_many_lines_rejects_its_body_alone(text: bytes, problem: Problem) -> None:
    values, rejected, _ = decoded(Wanted((("a",),)), CSV, [b"a,b\n1,2\n", b"a,b\n3," + text])
    assert (values, rejected) == ({"a": ["1"]}, [(1, problem)])


def test_a_row_of_another_width_is_rejected_alone() -> None:
    values, rejected = of_file(Wanted((("a",),)), CSV, b"a,b\n1,2\n3\n4,5\n6,7,8\n9,0")
    assert (values["a"], rejected) == (["1", "4", "9"], [(1, Problem.MALFORMED), (3, Problem.MALFORMED)])


cells = st.text(st.characters(codec="utf-8", exclude_characters="\r\0\x1a"), max_size=6)


@given(
    st.integers(1, 4).flatmap(
        lambda width: st.lists(
            st.lists(st.lists(cells, min_size=width, max_size=width), min_size=1, max_size=4), min_size=1, max_size=4
        )
    ),
    st.booleans(),
)
def test_csv_is_what_the_csv_module_wrote(bodies: list[list[list[str]]], quoted: bool) -> None:
    width = len(bodies[0][0])
    names = [f"c{number}" for number in range(width)]
    texts = []
    for rows in bodies:
        text = io.StringIO()
        writer = csv.writer(text, quoting=csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL, lineterminator="\n")
        writer.writerows([names, *rows])
        texts.append(text.getvalue().encode())
    values, rejected, places = decoded(Wanted(tuple((name,) for name in names)), CSV, texts)
    assert not rejected
    expected = [row for rows in bodies for row in rows]
    # Nothing at all between two delimiters is NULL; one empty value alone in its row is written with quotes.
    empty = "" if quoted or width == 1 else None
    assert [list(row) for row in zip(*values.values(), strict=True)] == [
        [value or empty for value in row] for row in expected
    ]
    assert places == [(event, index) for event, rows in enumerate(bodies) for index in range(len(rows))]


@pytest.mark.parametrize("format_", [Format(kind) for kind in ("csv", "avro", "parquet", "json")])
@given(body=st.binary(max_size=200))
def test_no_bytes_stop_a_decoder(format_: Format, body: bytes) -> None:
    decoder_of(Wanted((("a",),), record=True), format_).decode([body, b"", body])
    of_file(Wanted((("a",),)), format_, body)


@given(data=st.data())
def test_no_damage_stops_a_decoder(data: st.DataObject) -> None:
    whole = data.draw(st.sampled_from([_AVRO, _PARQUET, _AVRO_DEFLATED]))
    format_ = Format("parquet" if whole is _PARQUET else "avro")
    place = data.draw(st.integers(0, len(whole) - 1))
    damaged = whole[:place] + data.draw(st.binary(max_size=4)) + whole[place + data.draw(st.integers(0, 8)) :]
    decoder_of(Wanted((("a",), ("b", "c")), record=True), format_).decode([damaged])
    of_file(Wanted((("a",),)), format_, damaged)


@pytest.mark.slow
@pytest.mark.parametrize("value", [0x00, 0x81, 0xFF])
def test_no_changed_byte_of_a_parquet_file_stops_a_decoder(value: int) -> None:
    for place in range(len(_PARQUET)):
        damaged = _PARQUET[:place] + bytes([value]) + _PARQUET[place + 1 :]
        decoder_of(Wanted((("a",), ("b", "c")), record=True), Format("parquet")).decode([damaged])
        of_file(Wanted((("a",),)), Format("parquet"), damaged)


# compression and encoding
# ---------------------------------------------------------------------------------


def deflated(content: bytes, window: int = -15) -> bytes:
    stream = zlib.compressobj(wbits=window)
    return stream.compress(content) + stream.flush()


@pytest.mark.parametrize(
    ("format_", "bodies"),
    [
        (Format(compression="gzip"), [gzip.compress(b'{"a":1}'), gzip.compress(b'{"a":') + gzip.compress(b"2}")]),
        (Format(compression="deflate"), [deflated(b'{"a":1}'), deflated(b'{"a":2}', 15)]),
        (Format(encoding="utf-16"), ['{"a":1}'.encode("utf-16"), '{"a":2}'.encode("utf-16-be")]),
    ],
)
def test_bodies_are_unpacked_and_what_is_not_packed_so_is_rejected(format_: Format, bodies: list[bytes]) -> None:
    if format_.encoding == "utf-16":
        bodies = [bodies[0], '{"a":2}'.encode("utf-16")]
    problem = Problem.MALFORMED if format_.encoding == "utf-16" else Problem.INVALID_COMPRESSION
    values, rejected, _ = decoded(Wanted((("a",),)), format_, [bodies[0], b"{}x", bodies[1]])
    assert (values["a"], rejected) == ([1, 2], [(1, problem)])


def test_a_body_that_is_cut_off_is_not_taken_for_whole() -> None:
    cut = gzip.compress(b'{"a":1}\n{"a":2}')[:-9]
    assert decoded(Wanted((("a",),)), Format(compression="gzip"), [cut])[1] == [(0, Problem.INVALID_COMPRESSION)]
    assert of_file(Wanted((("a",),)), Format(compression="gzip"), cut) == (
        {"a": []},
        [(0, Problem.INVALID_COMPRESSION)],
    )


# files
# ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        (b'{"a":1}\n{"a":2}\r\n\n', [b'{"a":1}', b'{"a":2}']),
        (b'\xef\xbb\xbf[{"a":1},\n{"a":2}]', [b'{"a":1}', b'{"a":2}']),
        (b'[{"a":1},\n{"a":2},\n]\n', [b'{"a":1}', b'{"a":2}']),
        (b'{\n"a": 1\n}\n', [b'{\n"a": 1\n}']),
        (b'{ "a": 1,\n  "b": 2 }\n', [b'{ "a": 1,\n  "b": 2 }']),
        (b'{\n"a": 1\n}\n{\n"a": 2\n}\n', [b'{\n"a": 1\n}', b'{\n"a": 2\n}']),
        (b'{"a":1}{"a":2}\r\n', [b'{"a":1}', b'{"a":2}']),
        (b'{\n"a": 1\n}\nbroken', [b"{", b'"a": 1', b"}", b"broken"]),
        (b'[{"a":1},{"a":2}]\n[{"a":3}]', [b'{"a":1}', b'{"a":2}', b'{"a":3}']),
        (b'{"a":1}\nbroken\n{"a":2}', [b'{"a":1}', b"broken", b'{"a":2}']),
        (b"", []),
        (b"[]", []),
    ],
)
def test_each_object_of_a_json_file_is_an_event(content: bytes, texts: list[bytes]) -> None:
    assert list(rows_of(content, JSON)) == texts


SCHEMA = {
    "type": "record",
    "name": "E",
    "fields": [
        {"name": "A", "type": ["null", "long", "string"]},
        {"name": "b", "type": {"type": "record", "name": "B", "fields": [{"name": "c", "type": "double"}]}},
        {"name": "t", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "raw", "type": "bytes"},
        {"name": "list", "type": {"type": "array", "items": "int"}},
    ],
}
TIME = datetime(2026, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)
ROWS = [
    {"A": 1, "b": {"c": 0.5}, "t": TIME, "raw": b"text", "list": [1, 2]},
    {"A": "x", "b": {"c": float("nan")}, "t": TIME, "raw": b"\xff", "list": []},
    {"A": None, "b": {"c": 2.0}, "t": TIME, "raw": b"", "list": [3]},
]
_AVRO = avro(SCHEMA, ROWS)
_AVRO_DEFLATED = avro(SCHEMA, ROWS, "deflate")
_PARQUET = parquet(pa.table({"a": [1, 2, 3], "b": [{"c": 1.5}, None, {"c": 2.5}]}))


@pytest.mark.parametrize("content", [_AVRO, _AVRO_DEFLATED])
def test_avro_keeps_the_types_of_values(content: bytes) -> None:
    wanted = Wanted((("a",), ("b", "C"), ("t",), ("raw",), ("list",)))
    ticks = Datetime(parse_time("2026-01-01T00:00:00.123456Z"))
    expected = {
        "a": [1, "x", None],
        "b.c": [0.5, None, 2.0],
        "t": [ticks] * 3,
        "raw": ["text", "/w==", ""],
        "list": [[1, 2], [], [3]],
    }
    assert of_file(wanted, Format("avro"), content) == (expected, [])
    values, rejected, places = decoded(wanted, Format("avro"), [content, b"Obj\x01"])
    assert (values, rejected, places) == (expected, [(1, Problem.MALFORMED)], [(0, 0), (0, 1), (0, 2)])


def test_avro_records_of_a_union_have_the_fields_of_each() -> None:
    schemas = [
        {"type": "record", "name": name, "fields": [{"name": field, "type": "int"}]} for name, field in ("Aa", "Bb")
    ]
    buffer = io.BytesIO()
    fastavro.writer(buffer, fastavro.parse_schema(schemas), [{"a": 1}, {"b": 2}])
    values, rejected, _ = decoded(Wanted((("a",), ("b",))), Format("avro"), [buffer.getvalue()])
    assert (values, rejected) == ({"a": [1, None], "b": [None, 2]}, [])


def _relabelled(type_: str, logical: str, values: list[Any]) -> bytes:
    """A container with values that a writer of their logical type would not write."""
    plain, meant = (
        {"type": "record", "name": "E", "fields": [{"name": "v", "type": one}, {"name": "k", "type": "int"}]}
        for one in (type_, {"type": type_, "logicalType": logical})
    )
    fields = [{"v": value, "k": place} for place, value in enumerate(values)]
    written = avro(plain, fields)
    schema = fastavro.reader(io.BytesIO(written)).metadata["avro.schema"]
    return written.replace(_sized(schema.encode()), _sized(json.dumps(meant).encode()))


def _sized(text: bytes) -> bytes:
    length = io.BytesIO()
    fastavro.schemaless_writer(length, "long", len(text))
    return length.getvalue() + text


@pytest.mark.parametrize(
    ("type_", "logical", "bad"),
    [
        ("long", "timestamp-millis", 10**17),
        ("long", "local-timestamp-micros", 2**62),
        ("int", "date", 10**9),
        ("int", "time-millis", 10**9),
    ],
)
def test_an_avro_time_out_of_range_rejects_its_row_alone(type_: str, logical: str, bad: int) -> None:
    content = _relabelled(type_, logical, [bad, 0])
    assert of_file(Wanted((("k",),)), Format("avro"), content) == ({"k": [0, 1]}, [])
    values, rejected = of_file(Wanted((("v",), ("k",))), Format("avro"), content)
    assert (values["k"], rejected) == ([1], [(0, Problem.OUT_OF_RANGE)])


def test_an_avro_uuid_that_is_none_is_text() -> None:
    content = _relabelled("string", "uuid", ["x"])
    assert of_file(Wanted((("v",),)), Format("avro"), content) == ({"v": ["x"]}, [])


def test_parquet_columns_to_the_tick() -> None:
    table = pa.table(
        {
            "ns": pa.array([1, None], pa.timestamp("ns")).cast(pa.int64()).cast(pa.timestamp("ns")),
            "ms": pa.array([1, None], pa.timestamp("ms", tz="UTC")),
            "day": pa.array([date(1970, 1, 2), None]),
            "u": pa.array([2**63 - 1, None], pa.uint64()),
            "d": pa.array([Decimal("1.50"), None]),
            "s": pa.array(["x", None]).dictionary_encode(),
            "x.y": pa.array([True, None]),
            "n": pa.nulls(2),
            "f": pa.array([float("nan"), 1.0], pa.float32()),
        }
    )
    table = table.set_column(0, "ns", pa.array([1_700_000_000_123_456_799, None], pa.timestamp("ns")))
    names = tuple((name,) for name in table.column_names)
    values, rejected = of_file(Wanted(names), Format("parquet"), parquet(table))
    assert not rejected
    assert values == {
        "ns": [Datetime(17_000_000_001_234_567), None],
        "ms": [Datetime(10_000), None],
        "day": [Datetime(86_400 * 10**7), None],
        "u": [2**63 - 1, None],
        "d": [1.5, None],
        "s": ["x", None],
        "x.y": [True, None],
        "n": [None, None],
        "f": [None, 1.0],
    }


def test_a_value_that_no_type_holds_rejects_its_row() -> None:
    content = parquet(pa.table({"u": pa.array([1, 2**64 - 1, 3], pa.uint64()), "b": [1, 2, 3]}))
    for wanted in (Wanted((("u",),)), Wanted((("b",),), record=True)):
        values, rejected = of_file(wanted, Format("parquet"), content)
        assert rejected == [(1, Problem.OUT_OF_RANGE)]
        assert next(iter(values.values())) == [1, 3]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[1], [10**15]], pa.list_(pa.timestamp("s"))),
        pa.array([[1], [2**62]], pa.list_(pa.timestamp("us"))),
        pa.array([{"t": 1}, {"t": 2**62}], pa.struct([("t", pa.duration("s"))])),
        pa.array([{"u": 1}, {"u": 2**64 - 1}], pa.struct([("u", pa.uint64())])),
    ],
    ids=lambda column: str(column.type),
)
def test_a_record_or_array_with_a_value_that_no_type_holds_rejects_its_row(column: pa.Array) -> None:
    """A time among others ended the job, and a number became the number of the reason."""
    content = parquet(pa.table({"a": column, "b": [1, 2]}))
    assert of_file(Wanted((("b",),)), Format("parquet"), content) == ({"b": [1, 2]}, [])
    for wanted in (Wanted((("a",), ("b",))), Wanted((("b",),), record=True)):
        values, rejected = of_file(wanted, Format("parquet"), content)
        assert (values["b"], rejected) == ([1], [(1, Problem.OUT_OF_RANGE)])


def test_whole_rows_are_records() -> None:
    result = decoder_of(Wanted((), record=True), Format("parquet")).decode(rows_of(_PARQUET, Format("parquet")))
    assert result.records is not None
    assert result.records.to_list() == [{"a": 1, "b": {"c": 1.5}}, {"a": 2, "b": None}, {"a": 3, "b": {"c": 2.5}}]


@given(st.lists(st.integers(0, 6), max_size=3))
def test_rows_are_the_same_in_any_cut(cuts: list[int]) -> None:
    content = b"a,b\n" + b"".join(b"%d,x\n" % number if number != 3 else b"3\n" for number in range(6))
    whole = rows_of(content, CSV)
    bounds = [0, *sorted(cuts), 6]
    parts = [whole[start:stop] for start, stop in pairwise(bounds)]
    values: list[Any] = []
    rejected: list[int] = []
    for start, part in zip(bounds, parts, strict=False):
        of_part, bad, places = decoded(Wanted((("a",),)), CSV, part)
        values += of_part["a"]
        rejected += [start + event for event, _ in bad]
        assert len(places) + len(bad) == len(part)
    assert (values, rejected) == (["0", "1", "2", "4", "5"], [3])
    assert sum(int(byte_sizes(part).sum()) for part in parts) == len(content)
    assert [json.loads(whole[place]) for place in (0, 5)] == [{"a": "0", "b": "x"}, {"a": "5", "b": "x"}]
    assert whole[3] == b"3"
