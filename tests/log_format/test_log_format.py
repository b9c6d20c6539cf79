"""Log lines as JSON: each is one object, whatever is said in it."""

from __future__ import annotations

import json
import logging
import sys

from hypothesis import given
from hypothesis import strategies as st

from tidegate.log_format import JsonFormatter, TextFormatter


@given(st.text())
def test_a_record_is_one_line_of_json(message: str) -> None:
    record = logging.LogRecord("tidegate.server", logging.WARNING, __file__, 1, "%s", (message,), None)
    record.created = 1_700_000_000.25
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.250+00:00",
        "level": "WARNING",
        "logger": "tidegate.server",
        "message": message,
    }


def test_a_traceback_is_kept() -> None:
    try:
        raise ValueError("it broke")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, __file__, 1, "failed", None, sys.exc_info())
    assert "ValueError: it broke" in json.loads(JsonFormatter().format(record))["traceback"]


def test_a_line_of_text_has_its_time_in_utc_and_its_level() -> None:
    record = logging.LogRecord("tidegate.server", logging.WARNING, __file__, 1, "it broke", None, None)
    record.created = 1_700_000_000.25
    assert TextFormatter().format(record) == "2023-11-14T22:13:20.250+00:00 WARNING it broke"
