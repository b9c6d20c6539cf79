"""Options of the ``eventhubs`` data source: camelCase, case-insensitive, each checked when it is read."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate.connectors.inputs.hub_log import HubLog
from tidegate.connectors.inputs.hub_topic import ClusterAccess
from tidegate.connectors.model.errors import InputError, JobError
from tidegate.connectors.model.events import PartitionEnd
from tidegate.ordering import TICKS_PER_MILLISECOND, parse_time

_OPTIONS = (
    "connectionString",
    "eventHub",
    "tokenProvider",
    "consumerGroup",
    "startingPosition",
    "startingPositions",
    "endingPosition",
    "endingPositions",
    "maxEventsPerTrigger",
    "eventsPerTask",
    "segments",
    "storeConfig",
)
# Options that Spark itself adds to those of a source.
_SPARK_OPTIONS = ("path", "paths")
_EVENTS_PER_TASK = 1_000_000
_POSITION_FIELDS = ("seqNo", "offset", "enqueuedTime", "isInclusive")
# The fields that name a place, and what they hold in an object whose place another field names.
_NO_PLACE: dict[str, tuple[Any, ...]] = {"seqNo": (None, -1), "offset": (None, ""), "enqueuedTime": (None, "")}


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """A place in a partition: one of its ends, an offset, a sequence number, or a time (ticks).

    ``inclusive``: the event at the place is read too.
    """

    kind: str
    value: int = 0
    text: str = ""
    inclusive: bool = True

    @classmethod
    def earliest(cls) -> SourcePosition:
        """Return the position before the oldest event."""
        return cls("earliest")

    @classmethod
    def latest(cls) -> SourcePosition:
        """Return the position after the newest event."""
        return cls("latest")

    @classmethod
    def parse(cls, option: str, value: Any) -> SourcePosition:
        """Return the position that an option states.

        It is ``earliest``, ``latest``, an ISO 8601 time, or an object with ``offset``, ``seqNo`` or ``enqueuedTime``
        and ``isInclusive``, as the Event Hubs connector for Spark writes it.

        Raises:
            InputError: it is none of these, or an object that names two places or an unknown field.
        """
        if isinstance(value, str) and value.lower() in ("earliest", "latest"):
            return cls(value.lower())
        if isinstance(value, str):
            if value.lstrip().startswith("{"):
                return cls.parse(option, _json(option, value))
            return cls("time", _time(option, value))
        if isinstance(value, Mapping):
            inclusive = _checked_object(option, value)
            if str(value.get("offset", "")) == "-1":
                return cls.earliest()
            if str(value.get("offset", "")) == "@latest":
                return cls.latest()
            if value.get("enqueuedTime"):
                return cls("time", _time(option, str(value["enqueuedTime"])), inclusive=inclusive)
            number = value.get("seqNo", -1)
            if isinstance(number, int) and number >= 0:
                return cls("sequence", number, inclusive=inclusive)
            if value.get("offset"):
                return cls("offset", text=str(value["offset"]), inclusive=inclusive)
        raise InputError(
            f"option {option}: expected earliest, latest, a time such as 2026-01-31T12:00:00Z, or an object with "
            f"seqNo, offset or enqueuedTime; got {json.dumps(value, default=str)[:80]}"
        )

    def resolve(self, log: HubLog, partition: str, end: PartitionEnd) -> int:
        """Return the sequence number of the first event at or after this position."""
        match self.kind:
            case "earliest":
                return end.begin
            case "latest":
                return end.end
            case "sequence":
                return self.value if self.inclusive else self.value + 1
            case "offset":
                return log.first_at_offset(partition, self.text, inclusive=self.inclusive)
            case _:
                # The broker's clock counts milliseconds: after an instant means from the next millisecond.
                return log.first_at(partition, self.value if self.inclusive else self.value + TICKS_PER_MILLISECOND)


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one read."""

    connection_string: str
    event_hub: str | None
    token_provider: str | None
    consumer_group: str
    starting_position: SourcePosition | dict[str, SourcePosition]
    ending_position: SourcePosition | dict[str, SourcePosition]
    max_events_per_trigger: int | None
    events_per_task: int
    use_segments: bool
    store_config: str | None = None

    def __repr__(self) -> str:
        return f"Options(event_hub={self.event_hub!r}, consumer_group={self.consumer_group!r})"

    @classmethod
    def parse(cls, given: Mapping[str, str], *, streaming: bool) -> Options:
        """Check the options of a reader.

        Raises:
            InputError: an option is missing, unknown, has an invalid value, or contradicts another.
        """
        options = named_options(given, _OPTIONS, _SPARK_OPTIONS, InputError)
        endless = [name for name in ("endingPosition", "endingPositions") if streaming and name in options]
        if endless:
            raise InputError(f"option {endless[0]}: a stream has no end; use it with spark.read")
        if not streaming and "maxEventsPerTrigger" in options:
            raise InputError(
                "option maxEventsPerTrigger limits the batches of a stream; spark.read reads all events up to "
                "endingPosition, and eventsPerTask says how many a task reads"
            )
        if "connectionString" not in options:
            raise InputError(
                "option connectionString is missing: Endpoint=…;SharedAccessKeyName=…;SharedAccessKey=…;EntityPath=…"
            )
        starting = _positions(options, "starting", SourcePosition.earliest())
        ending = _positions(options, "ending", SourcePosition.latest())
        _check_order(starting, ending)
        return cls(
            connection_string=options["connectionString"],
            event_hub=options.get("eventHub"),
            token_provider=options.get("tokenProvider"),
            consumer_group=options.get("consumerGroup", "$Default"),
            starting_position=starting,
            ending_position=ending,
            max_events_per_trigger=_positive(options, "maxEventsPerTrigger", None),
            events_per_task=_positive(options, "eventsPerTask", _EVENTS_PER_TASK) or _EVENTS_PER_TASK,
            use_segments=_segments(options),
            store_config=options.get("storeConfig"),
        )

    def open_log(self) -> HubLog:
        """Connect to the hub.

        Raises:
            InputError: it cannot be reached or refuses.
        """
        log = HubLog.connect(
            self.connection_string,
            self.event_hub,
            self.consumer_group,
            token_provider=self.token_provider,
            use_segments=self.use_segments,
            cluster=None if self.store_config is None else ClusterAccess.read(Path(self.store_config)),
        )
        log.awaits_bound = False
        return log


def named_options(
    given: Mapping[str, str], names: Sequence[str], spark: Sequence[str], failure: type[JobError]
) -> dict[str, str]:
    """Return options under the names that are documented; ``eventhubs.`` before one is as good.

    Args:
        given: the options as a person wrote them; case does not matter.
        names: those that exist.
        spark: those that Spark itself adds, in lower case.
        failure: the error to raise.

    Raises:
        JobError: there is no such option, or one is given twice with different values.
    """
    known = {name.lower(): name for name in names}
    options: dict[str, str] = {}
    for name, value in given.items():
        plain = name.lower().removeprefix("eventhubs.")
        if plain in spark:
            continue
        if plain not in known:
            close = difflib.get_close_matches(plain, known, n=1)
            hint = f"; did you mean {known[close[0]]}?" if close else f"; there are {', '.join(names)}"
            raise failure(f"option {name}: no such option{hint}")
        if options.setdefault(known[plain], value) != value:
            raise failure(
                f"option {known[plain]} is given twice, with and without the prefix eventhubs., and with different "
                "values; leave one out"
            )
    return options


def _positions(
    options: Mapping[str, str], which: str, default: SourcePosition
) -> SourcePosition | dict[str, SourcePosition]:
    by_partition = options.get(f"{which}Positions")
    if by_partition is not None and f"{which}Position" in options:
        raise InputError(
            f"options {which}Position and {which}Positions contradict each other: give one position for all "
            "partitions, or one for each"
        )
    if by_partition is not None:
        content = _json(f"{which}Positions", by_partition)
        if not isinstance(content, Mapping):
            raise InputError(
                f'option {which}Positions: expected an object such as {{"0": "earliest", "1": {{"seqNo": 7}}}}'
            )
        return {str(name): SourcePosition.parse(f"{which}Positions", value) for name, value in content.items()}
    value = options.get(f"{which}Position")
    return default if value is None else SourcePosition.parse(f"{which}Position", value)


def _checked_object(option: str, value: Mapping[str, Any]) -> bool:
    """Check the fields of a position, and return whether it includes the event at its place.

    Raises:
        InputError: it has a field that there is not, or two places.
    """
    for name in value:
        if name not in _POSITION_FIELDS:
            close = difflib.get_close_matches(name, _POSITION_FIELDS, n=1)
            hint = f"; did you mean {close[0]}?" if close else f"; expected {', '.join(_POSITION_FIELDS)}"
            raise InputError(f"option {option}: a position has no field {name!r}{hint}")
    places = [name for name, without in _NO_PLACE.items() if value.get(name) not in without]
    if len(places) > 1:
        raise InputError(f"option {option}: {' and '.join(places)} are two places; give one of them")
    inclusive = value.get("isInclusive", True)
    if not isinstance(inclusive, bool):
        raise InputError(f"option {option}: isInclusive is true or false, got {json.dumps(inclusive, default=str)}")
    return inclusive


def _check_order(
    starting: SourcePosition | dict[str, SourcePosition], ending: SourcePosition | dict[str, SourcePosition]
) -> None:
    """Raise `InputError` if the start of a partition is evidently after its end."""
    names = [*starting] if isinstance(starting, dict) else [*ending] if isinstance(ending, dict) else [""]
    for name in names:
        start = starting.get(name) if isinstance(starting, dict) else starting
        end = ending.get(name) if isinstance(ending, dict) else ending
        if start is None or end is None or start.kind != end.kind or start.value <= end.value:
            continue
        of = f" of partition {name}" if name else ""
        raise InputError(f"options startingPosition and endingPosition{of}: the start is after the end")


def _positive(options: Mapping[str, str], name: str, default: int | None) -> int | None:
    text = options.get(name)
    if text is None:
        return default
    if not text.strip().isdecimal() or int(text) < 1:
        raise InputError(f"option {name}: expected a whole number of events, 1 or more; got {text!r}")
    return int(text)


def _segments(options: Mapping[str, str]) -> bool:
    value = options.get("segments", "auto").lower()
    if value not in ("auto", "never"):
        raise InputError(
            f"option segments: expected auto (read the hub's files if they are on this machine) or never; got {value!r}"
        )
    return value == "auto"


def _json(option: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InputError(f"option {option}: not JSON ({error})") from error


def _time(option: str, text: str) -> int:
    try:
        return parse_time(text)
    except ValueError as error:
        raise InputError(
            f"option {option}: expected earliest, latest, a time such as 2026-01-31T12:00:00Z, or JSON; "
            f"got {text[:80]!r}"
        ) from error
