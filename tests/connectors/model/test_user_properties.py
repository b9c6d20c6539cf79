"""User properties reach a query with the types that they were sent with."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tests.job.logs import TravellingTasks
from tests.sql.compiling import compile_query
from tidegate.amqp.encoding.types import Byte, Char, Decimal, Described, Float, Int, Symbol, Timestamp, Ulong
from tidegate.client.event import Details, details_with
from tidegate.connectors.inputs.recorded import RecordedEvent, RecordedLog
from tidegate.engine import Program
from tidegate.job.runtime.step import Stepper
from tidegate.ordering import Policy


def of_query(details: Details, *, level: str = "1.2") -> dict[str, Any]:
    sql = """SELECT GetMetadataPropertyValue(i, '[User].[P]') AS p, GetMetadataPropertyValue(i, 'User') AS every,
    GetType(GetMetadataPropertyValue(i, '[User].[P]')) AS kind INTO o FROM i"""
    program = Program.prepare(compile_query(sql, compatibility_level=level))
    log = RecordedLog([RecordedEvent("0", 0, b"{}", details=details)])
    stepper = Stepper(program, Policy.none(), {"i": log}, TravellingTasks(program, Policy.none()))
    (row,) = [row for rows in stepper.step().rows for row in rows.to_dicts()]
    return row


@pytest.mark.parametrize(
    ("sent", "read", "kind"),
    [
        ("text", "text", "nvarchar(max)"),
        (Symbol("s"), "s", "nvarchar(max)"),
        (Char("c"), "c", "nvarchar(max)"),
        (5, 5, "bigint"),
        (Int(-5), -5, "bigint"),
        (Byte(5), 5, "bigint"),
        (Ulong(2**64 - 1), 18446744073709551616.0, "float"),
        (2.5, 2.5, "float"),
        (Float(0.5), 0.5, "float"),
        (float("nan"), "nan", "nvarchar(max)"),
        (True, True, "bit"),
        (False, False, "bit"),
        (Timestamp(1_769_860_800_120), "2026-01-31T12:00:00.1200000Z", "datetime"),
        (Timestamp(2**62), 2**62, "bigint"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001", "nvarchar(max)"),
        (b"plain", "plain", "nvarchar(max)"),
        (b"\xff", "/w==", "nvarchar(max)"),
        (Decimal(b"\xff"), "/w==", "nvarchar(max)"),
        (Described(Symbol("d"), 1), 1, "bigint"),
        ([1, b"\xff"], [1, "/w=="], "array"),
        ({"a": Timestamp(0)}, {"a": "1970-01-01T00:00:00.0000000Z"}, "record"),
        (None, None, None),
    ],
)
def test_a_property_keeps_its_type(sent: Any, read: Any, kind: str | None) -> None:
    row = of_query(details_with(None, None, {"p": sent}, {}))
    assert (row["p"], row["every"]) == (read, {"p": read})
    if kind is not None:
        assert row["kind"] == kind


def test_older_levels_have_no_bit() -> None:
    row = of_query(details_with(None, None, {"p": True, "q": [False]}, {}), level="1.1")
    assert (row["p"], row["every"]) == (1, {"p": 1, "q": [0]})
    assert type(row["p"]) is int


def test_properties_of_unknown_types_are_text() -> None:
    assert of_query(Details(None, None, {"p": "5"}, {}))["p"] == "5"
