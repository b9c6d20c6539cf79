"""Placeholders of sample data: `{{int 1 6}}` in a body, a key or a property becomes a new value for each event."""

from __future__ import annotations

import random
import re
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tidegate.hub.errors import ArgumentError

_PLACEHOLDER = re.compile(r"\{\{\s*(.*?)\s*\}\}", re.DOTALL)
_WORD = re.compile(r'"([^"]*)"|(\S+)')


@dataclass(slots=True)
class Series:
    """What the events of one sending share: the random numbers, the count, and the walks."""

    random: random.Random
    now_s: Callable[[], float] = time.time
    index: int = 0
    walks: dict[int, float] = field(default_factory=dict)

    def moment(self, earlier_s: float = 0.0) -> str:
        """Return the time now, or some seconds earlier, in ISO 8601."""
        when = datetime.fromtimestamp(self.now_s() - earlier_s, UTC)
        return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


Produce = Callable[[Series], str]


class PlaceholderText:
    """A text with placeholders, read once and filled for each event."""

    def __init__(self, text: str) -> None:
        """Read the placeholders. Raises ArgumentError for one that does not exist or has wrong arguments."""
        self._parts: list[str | Produce] = []
        end = 0
        for match in _PLACEHOLDER.finditer(text):
            self._parts += [text[end : match.start()], _produce(match[1], match.start())]
            end = match.end()
        self._parts.append(text[end:])

    @property
    def is_constant(self) -> bool:
        """Whether there are no placeholders."""
        return len(self._parts) == 1

    def fill(self, series: Series) -> str:
        """Return the text for the next event of a series."""
        return "".join([part if isinstance(part, str) else part(series) for part in self._parts])


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A kind of placeholder: what it is for, and what makes it of its arguments and its place in the text."""

    usage: str
    help: str
    make: Callable[[Sequence[str], int], Produce]


def _numbers(words: Sequence[str], defaults: Sequence[float]) -> list[float]:
    if len(words) > len(defaults):
        raise ValueError(f"takes at most {len(defaults)} numbers")
    return [*map(float, words), *defaults[len(words) :]]


def _index(words: Sequence[str], _place: int) -> Produce:
    (first,) = _numbers(words, (0,))
    return lambda series: str(series.index + int(first))


def _now(words: Sequence[str], _place: int) -> Produce:
    share, most_s = _numbers(words, (0, 0))
    if not 0 <= share <= 100 or most_s < 0:
        raise ValueError("takes a percentage, and the seconds by which that share of the times is earlier")

    def produce(series: Series) -> str:
        is_earlier = share and series.random.random() * 100 < share
        return series.moment(series.random.uniform(0, most_s) if is_earlier else 0.0)

    return produce


def _unix(words: Sequence[str], _place: int) -> Produce:
    _numbers(words, ())
    return lambda series: str(int(series.now_s() * 1000))


def _uuid(words: Sequence[str], _place: int) -> Produce:
    _numbers(words, ())
    return lambda series: str(uuid.UUID(int=series.random.getrandbits(128), version=4))


def _int(words: Sequence[str], _place: int) -> Produce:
    least, most = map(int, _numbers(words, (0, 100)))
    if least > most:
        raise ValueError("takes the least number first")
    return lambda series: str(series.random.randint(least, most))


def _number(words: Sequence[str], _place: int) -> Produce:
    least, most, digits = _numbers(words, (0, 1, 2))
    return lambda series: f"{series.random.uniform(least, most):.{_digits(digits)}f}"


def _normal(words: Sequence[str], _place: int) -> Produce:
    mean, deviation, digits = _numbers(words, (0, 1, 2))
    return lambda series: f"{series.random.gauss(mean, deviation):.{_digits(digits)}f}"


def _walk(words: Sequence[str], place: int) -> Produce:
    start, step, digits = _numbers(words, (0, 1, 2))

    def produce(series: Series) -> str:
        value = series.walks[place] = series.walks.get(place, start) + series.random.gauss(0, step)
        return f"{value:.{_digits(digits)}f}"

    return produce


def _digits(count: float) -> int:
    return max(0, min(15, int(count)))


def _choice(words: Sequence[str], _place: int) -> Produce:
    if not words:
        raise ValueError("takes the values to choose from")
    values = list(words)
    return lambda series: series.random.choice(values)


def _cycle(words: Sequence[str], _place: int) -> Produce:
    if not words:
        raise ValueError("takes the values to repeat")
    values = list(words)
    return lambda series: values[series.index % len(values)]


def _bool(words: Sequence[str], _place: int) -> Produce:
    (share,) = _numbers(words, (50,))
    return lambda series: "true" if series.random.random() * 100 < share else "false"


def _string(words: Sequence[str], _place: int) -> Produce:
    (length,) = _numbers(words, (8,))
    if not 0 < length <= 100_000:
        raise ValueError("takes a length from 1 to 100,000")
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    return lambda series: "".join(series.random.choices(letters, k=int(length)))


PLACEHOLDERS = {
    "index": Placeholder("{{index 0}}", "counts the events from a number on", _index),
    "now": Placeholder("{{now 10 30}}", "the time; here 10 % of the times are up to 30 s earlier", _now),
    "unix-ms": Placeholder("{{unix-ms}}", "the time in milliseconds since 1970", _unix),
    "uuid": Placeholder("{{uuid}}", "a random UUID", _uuid),
    "int": Placeholder("{{int 1 6}}", "a whole number between the two, both included", _int),
    "number": Placeholder("{{number 18 25 2}}", "a number between two, with so many decimals", _number),
    "normal": Placeholder("{{normal 20 2.5 1}}", "a normally distributed number: mean, deviation, decimals", _normal),
    "walk": Placeholder("{{walk 20 0.5 2}}", "a random walk: start, step, decimals", _walk),
    "choice": Placeholder('{{choice red green "dark blue"}}', "one of the values", _choice),
    "cycle": Placeholder("{{cycle a b c}}", "the values in turn", _cycle),
    "bool": Placeholder("{{bool 90}}", "true in so many percent of the events, else false", _bool),
    "string": Placeholder("{{string 8}}", "random letters and digits", _string),
}


def _produce(text: str, place: int) -> Produce:
    words = [quoted or word for quoted, word in _WORD.findall(text)]
    kind = PLACEHOLDERS.get(words[0]) if words else None
    if kind is None:
        known = ", ".join(PLACEHOLDERS)
        raise ArgumentError(f"{{{{{text[:40]}}}}} at character {place} is no placeholder: there are {known}")
    try:
        return kind.make(words[1:], place)
    except (ValueError, OverflowError) as error:
        raise ArgumentError(f"{{{{{text[:40]}}}}} at character {place}: {error}; for example {kind.usage}") from None


@dataclass(frozen=True, slots=True)
class Sample:
    """A kind of sample data."""

    name: str
    title: str
    partition_key: str
    body: str


def _json_template(text: str) -> str:
    """Return a template of JSON on several lines, one field each."""
    fields = ",\n".join(f"  {line.strip().removesuffix(',')}" for line in text.strip().splitlines())
    return f"{{\n{fields}\n}}"


SAMPLES = (
    Sample(
        "telemetry",
        "Device telemetry",
        "sensor-{{int 1 8}}",
        _json_template(
            """
            "time": "{{now 10 20}}"
            "deviceId": "sensor-{{int 1 8}}"
            "temperature": {{walk 21 0.3 2}}
            "humidity": {{normal 45 4 1}}
            "status": "{{choice ok ok ok ok warning}}"
            """
        ),
    ),
    Sample(
        "tolls",
        "Toll booths",
        "{{cycle north east south west}}",
        _json_template(
            """
            "entry_time": "{{now 15 10}}"
            "booth": "{{cycle north east south west}}"
            "lane": {{int 1 2}}
            "plate": "{{string 6}}"
            "speed": {{normal 67 9 1}}
            """
        ),
    ),
    Sample(
        "clicks",
        "Page views",
        "user-{{int 1 50}}",
        _json_template(
            """
            "time": "{{now}}"
            "session": "{{uuid}}"
            "page": "{{choice / /products /cart /checkout}}"
            "milliseconds": {{int 20 900}}
            "isMobile": {{bool 60}}
            """
        ),
    ),
    Sample(
        "orders",
        "Orders",
        "",
        _json_template(
            """
            "time": "{{now}}"
            "orderId": {{index 1000}}
            "customer": "customer-{{int 1 200}}"
            "amount": {{number 5 250 2}}
            "currency": "{{choice EUR USD GBP}}"
            """
        ),
    ),
    Sample("text", "Plain text", "", "event {{index 1}} at {{now}}"),
)
