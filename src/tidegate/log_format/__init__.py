"""The log of a command: lines of text for people, or one JSON object per line for tools. Times are UTC in both."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

__all__ = ["JsonFormatter", "TextFormatter", "log_to_standard_error", "logs_objects"]


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


class TextFormatter(logging.Formatter):
    """Formats a record as its time, level and message: `2023-11-14T22:13:20.250+00:00 WARNING it broke`."""

    def __init__(self) -> None:
        super().__init__("%(levelname)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return f"{_time(record)} {super().format(record)}"


class JsonFormatter(logging.Formatter):
    """Formats a record as an object: time, level, logger, message, the record's `fields`, and any traceback."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry |= getattr(record, "fields", {})
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def log_to_standard_error(log_format: str, level: int) -> None:
    """Log to standard error from `level` on. `log_format` is "text" or "json"."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(level=level, handlers=[handler])


def logs_objects() -> bool:
    """Return whether this process logs JSON."""
    return any(isinstance(handler.formatter, JsonFormatter) for handler in logging.getLogger().handlers)
