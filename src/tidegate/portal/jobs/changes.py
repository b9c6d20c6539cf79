"""Check what a page asks to change about a job, and translate what the service refuses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tidegate.hub.errors import AlreadyExists, ArgumentError, HubError, NotFound
from tidegate.portal.web.handling import changed_tags, text_of
from tidegate.service import (
    Changed,
    InvalidJob,
    JobDocument,
    JobExists,
    JobNotFound,
    ServiceError,
    StartMode,
    WrongState,
)


class Conflict(HubError):
    """The job's state, or a change that somebody else made, does not allow it."""

    http_status = 409


def as_refusal(error: ServiceError) -> HubError:
    """Return what the service refuses as what the portal answers."""
    if isinstance(error, JobNotFound):
        return NotFound(f"there is no job {error.name!r}")
    if isinstance(error, JobExists):
        return AlreadyExists(str(error))
    if isinstance(error, InvalidJob):
        return ArgumentError("\n".join(error.problems))
    if isinstance(error, Changed | WrongState):
        return Conflict(str(error))
    return ArgumentError(str(error))


def served(handle: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Return a handler whose refusals by the service are the portal's."""

    async def answered(*arguments: Any) -> Any:
        try:
            return await handle(*arguments)
        except ServiceError as error:
            raise as_refusal(error) from error

    return answered


SAMPLE_JOB, SAMPLE_INPUT, SAMPLE_OUTPUT = "toll-stats", "tolls", "toll-stats"
"""The name of the sample job, and of the hubs that it reads and writes."""
SAMPLE_QUERY = """-- How many cars pass each booth in ten seconds, and how fast.
SELECT System.Timestamp() AS window_end, booth, COUNT(*) AS cars, AVG(speed) AS average_speed
INTO stats
FROM tolls TIMESTAMP BY entry_time
GROUP BY booth, TumblingWindow(second, 10)
"""

Change = Callable[[JobDocument], JobDocument]

_LONGEST_LATE_S = 21 * 86_400
_LONGEST_ORDER_S = 10 * 60


def start_of(body: Any) -> tuple[StartMode | None, datetime | None]:
    """Return the start mode that a form names, and its time for a custom one. Raises ArgumentError."""
    text = text_of(body, "mode")
    if not text:
        return None, None
    try:
        mode = StartMode(text)
    except ValueError:
        raise ArgumentError(f"mode: expected {', '.join(StartMode)}, got {text[:40]!r}") from None
    if mode is not StartMode.CUSTOM:
        return mode, None
    value = text_of(body, "time").strip()
    try:
        when = datetime.fromisoformat(value)
    except ValueError:
        raise ArgumentError(f"time: expected a time such as 2026-01-31T12:00:00, got {value[:40]!r}") from None
    try:
        return mode, when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
    except OverflowError:
        raise ArgumentError(f"time: {value[:40]!r} is not between the years 1 and 9999 in UTC") from None


def with_query(query: str) -> Change:
    """Return the change to another query. Raises ArgumentError for an empty one."""
    if not query.strip():
        raise ArgumentError("the query is empty")

    def change(document: JobDocument) -> JobDocument:
        definition = {key: value for key, value in document.definition.items() if key != "query_file"}
        return replace(document, definition={**definition, "query": query})

    return change


ORDERING_FIELDS = ("lateArrivalToleranceS", "outOfOrderToleranceS", "action")
"""What a form says of event ordering."""


def ordering_of(body: Any) -> dict[str, Any]:
    """Return the event-ordering settings that a form names. Raises ArgumentError."""
    late = _seconds(body, "lateArrivalToleranceS", _LONGEST_LATE_S, or_for_ever=True)
    order = _seconds(body, "outOfOrderToleranceS", _LONGEST_ORDER_S)
    action = text_of(body, "action")
    if action not in ("adjust", "drop"):
        raise ArgumentError(f"action: expected adjust or drop, got {action[:40]!r}")
    return {"late_arrival_tolerance_s": late, "out_of_order_tolerance_s": order, "action": action}


def _seconds(body: Any, name: str, most: float, *, or_for_ever: bool = False) -> float:
    value = body.get(name) if isinstance(body, dict) else None
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not (0 <= value <= most or (or_for_ever and value == -1))
    ):
        more = ", or -1 to wait for ever" if or_for_ever else ""
        raise ArgumentError(f"{name}: expected seconds from 0 to {most:,}{more}, got {str(value)[:40]!r}")
    return value


def with_ordering(settings: Mapping[str, Any]) -> Change:
    """Return the change to other event-ordering settings; those that are not named stay."""

    def change(document: JobDocument) -> JobDocument:
        before = document.definition.get("event_ordering", {})
        return replace(document, definition={**document.definition, "event_ordering": {**before, **settings}})

    return change


def with_tags(body: Any) -> Change:
    """Return the change of tags that a form asks for; they are kept where Azure's management API keeps its own."""

    def change(document: JobDocument) -> JobDocument:
        tags = changed_tags(document.arm.get("tags") or {}, body)
        return replace(document, arm={**document.arm, "tags": tags})

    return change


NEW_JOB_FIELDS = ("inputName", "inputHub", "outputName", "outputHub", "outputPath")
"""What a form says of the first input and output of a new job."""


def new_definition(body: Any, connection_string: Callable[[str], str]) -> JobDocument:
    """Return the document of a new job. What is not a hub or a file is added on the job's page.

    Args:
        body: `query`, and what is known of its first input and output: `inputName` and `inputHub`, `outputName` and
            `outputHub` or `outputPath`.
        connection_string: returns one for a hub of this namespace, or raises NotFound.

    Raises:
        ArgumentError: the path is relative, or the output is both a hub and a file.
    """
    fields = {name: text_of(body, name).strip() for name in NEW_JOB_FIELDS}
    path, query = fields["outputPath"], text_of(body, "query")
    if path and fields["outputHub"]:
        raise ArgumentError("choose an event hub for the results, or the path of a file")
    if path and not path.startswith("/"):
        raise ArgumentError(f"the path of a file is absolute, such as /data/results.jsonl; got {path[:80]!r}")
    inputs, outputs = {}, {}
    if fields["inputHub"]:
        source = {"type": "eventhub", "connection_string": connection_string(fields["inputHub"])}
        inputs[fields["inputName"] or "input"] = source
    if path:
        outputs[fields["outputName"] or "output"] = {"type": "file", "path": path}
    elif fields["outputHub"]:
        target = {"type": "eventhub", "connection_string": connection_string(fields["outputHub"])}
        outputs[fields["outputName"] or "output"] = target
    return JobDocument({"query": query, "inputs": inputs, "outputs": outputs})
