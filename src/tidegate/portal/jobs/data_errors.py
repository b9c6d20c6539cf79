"""Data errors as a page shows them: grouped by what went wrong and where, each with events that one can go and see."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidegate.hub.event_hub import EventHub
from tidegate.portal.jobs.places import event_link

MOST_EXAMPLES = 5
_LONGEST_EXAMPLE = 2000


def grouped(records: Sequence[Mapping[str, Any]], hub_of: Callable[[str], EventHub | None]) -> list[dict[str, Any]]:
    """Return one group for each kind of error, source and message, the one that occurred last first.

    Args:
        records: of a job's `data-errors.jsonl`, the oldest first.
        hub_of: returns the hub of this namespace that an input reads, None for any other input.
    """
    groups: dict[tuple[str, str, str], dict[str, Any]] = {}
    for record in records:
        kind, source, message = (str(record.get(name) or "") for name in ("DataErrorType", "Source", "BriefMessage"))
        if not kind:
            continue  # a line that was cut off
        first, last = (str(record.get(name) or "") for name in ("FromTimestamp", "ToTimestamp"))
        group = groups.pop((kind, source, message), None)
        if group is None:
            group = {"kind": kind, "source": source, "message": message, "count": 0, "first": first, "examples": []}
        group["count"] += int(record.get("EventCount") or 1)
        group["first"] = min(group["first"], first)
        group["last"] = max(group.get("last", ""), last)
        hub = hub_of(source)
        group["examples"] += [_example(one, hub) for one in record.get("ExampleEvents") or ()]
        del group["examples"][:-MOST_EXAMPLES]
        groups[kind, source, message] = group
    return sorted(groups.values(), key=lambda group: group["last"], reverse=True)


def _example(example: Mapping[str, Any], hub: EventHub | None) -> dict[str, Any]:
    """Return an event that was refused, or a result that an output rejected, with a link to the event."""
    if "partition" not in example:
        return {"place": f"row {example.get('row')}", "text": _text(example.get("result")), "link": None}
    partition, number = str(example["partition"]), int(example.get("sequenceNumber") or 0)
    link = None if hub is None else event_link(hub, partition, number)
    return {"place": f"partition {partition}, event {number}", "text": _text(example.get("body")), "link": link}


def _text(value: object) -> str:
    text = str(value or "")
    return text if len(text) <= _LONGEST_EXAMPLE else f"{text[:_LONGEST_EXAMPLE]}…"
