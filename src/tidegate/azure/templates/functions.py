"""The functions of template expressions that depend on their arguments only.

https://learn.microsoft.com/azure/azure-resource-manager/templates/template-functions
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, unquote, urljoin

from tidegate.azure.templates.expressions import TemplateError

MAX_ITEMS = 100_000
MAX_CHARACTERS = 2_000_000
"""The longest array and text that a function makes, counted while it is made: a template must not fill the memory."""
MAX_INTEGER = (1 << 63) - 1
_FORMAT_ITEM = re.compile(r"\{\{|\}\}|\{(\d{1,4})(?::([^{}]*))?\}")
_DURATION = re.compile(r"(-)?P(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?")


def _text(value: Any) -> str:
    """Return a value as `string` and `concat` write it."""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        return value
    _check_written(value)
    return json.dumps(value, separators=(",", ":"))


def _check_written(value: Any) -> None:
    """Raise TemplateError for a value whose text would be too long; the same part may be in it many times."""
    waiting, characters = [value], 0
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            characters += sum(map(len, part))
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
        characters += len(part) if isinstance(part, str) else 1
        _check_size(characters, len(waiting))


def _check_size(characters: int, items: int = 0) -> None:
    if characters > MAX_CHARACTERS or items > MAX_ITEMS:
        raise TemplateError("a function makes a value that is too large")


def _joined(parts: Iterable[Any], delimiter: str = "") -> str:
    """Return the texts of values, one after the other."""
    texts, characters = [], 0
    for part in parts:
        texts.append(_text(part))
        characters += len(texts[-1]) + len(delimiter)
        _check_size(characters, len(texts))
    return delimiter.join(texts)


def _listed(lists: Iterable[list[Any]]) -> list[Any]:
    """Return the items of lists, one after the other."""
    found: list[Any] = []
    for one in lists:
        _check_size(0, len(found) + len(one))
        found += one
    return found


def _concat(*values: Any) -> Any:
    if values and all(isinstance(value, list) for value in values):
        return _listed(values)
    return _joined(values)


def _format(pattern: str, *values: Any) -> str:
    characters = len(pattern)

    def item(match: re.Match[str]) -> str:
        nonlocal characters
        if match[1] is None:
            return match[0][0]
        value = values[int(match[1])]
        width = re.fullmatch(r"[dD](\d{1,3})", match[2] or "")
        text = f"{value:0{int(width[1])}d}" if width and isinstance(value, int) else _text(value)
        characters += len(text)
        _check_size(characters)
        return text

    return _FORMAT_ITEM.sub(item, pattern)


def _unique_string(*values: str) -> str:
    """Return 13 letters that stand for the values. They are not Azure's, whose function is not published."""
    digest = int.from_bytes(hashlib.sha256("\0".join(values).encode("utf-8", "surrogatepass")).digest()[:9])
    letters = []
    for _ in range(13):
        digest, index = divmod(digest, 32)
        letters.append("abcdefghijklmnopqrstuvwxyz234567"[index])
    return "".join(letters)


def _guid(*values: str) -> str:
    return str(uuid.uuid5(uuid.UUID("11fb06fb-712d-4ddd-98c7-e71bbd588830"), "-".join(map(_text, values))))


def _replace(text: str, old: str, new: str) -> str:
    _check_size(len(text) + text.count(old) * max(0, len(new) - len(old)))
    return text.replace(old, new)


def _split(text: str, delimiters: Any) -> list[str]:
    parts = [delimiters] if isinstance(delimiters, str) else list(delimiters)
    if len(parts) > 100:
        raise TemplateError("split: there are more than 100 delimiters")
    found = re.split("|".join(map(re.escape, parts)), text, maxsplit=MAX_ITEMS)
    _check_size(0, len(found))
    return found


def _substring(text: str, start: int, length: int | None = None) -> str:
    if start < 0 or start > len(text) or (length is not None and (length < 0 or start + length > len(text))):
        raise TemplateError(f"substring: the text has {len(text)} characters")
    return text[start:] if length is None else text[start : start + length]


def _pad_left(value: Any, width: int, fill: str = " ") -> str:
    _check_size(width)
    return _text(value).rjust(width, fill)


def _range(start: int, count: int) -> list[int]:
    if not 0 <= count <= 10_000:
        raise TemplateError(f"range: a count is 0 to 10000, not {count}")
    return list(range(start, start + count))


def _length(value: Any) -> int:
    return len(value)


def _contains(container: Any, item: Any) -> bool:
    if isinstance(container, Mapping):
        return str(item).lower() in {str(key).lower() for key in container}
    return _text(item) in container if isinstance(container, str) else item in container


def _empty(value: Any) -> bool:
    return value is None or len(value) == 0


def _union(*values: Any) -> Any:
    if all(isinstance(value, list) for value in values):
        found: list[Any] = []
        for value in values:
            for item in value:
                if item not in found:
                    found.append(item)
            _check_size(0, len(found))
        return found
    merged: dict[str, Any] = {}
    for value in values:
        for key, item in value.items():
            before = merged.get(key)
            merged[key] = _union(before, item) if isinstance(before, dict) and isinstance(item, dict) else item
    return merged


def _intersection(first: Any, *others: Any) -> Any:
    if isinstance(first, list):
        return [item for item in first if all(item in other for other in others)]
    return {key: item for key, item in first.items() if all(key in o and o[key] == item for o in others)}


def _first(value: Any) -> Any:
    return value[0] if value else ("" if isinstance(value, str) else None)


def _last(value: Any) -> Any:
    return value[-1] if value else ("" if isinstance(value, str) else None)


def _skip(value: Any, count: int) -> Any:
    return value[max(0, count) :]


def _take(value: Any, count: int) -> Any:
    return value[: max(0, count)]


def _int(value: Any) -> int:
    return int(value) if not isinstance(value, str) else int(value[:20])


def _bool(value: Any) -> bool:
    if isinstance(value, str):
        return {"true": True, "1": True, "false": False, "0": False}[value.lower()]
    return bool(value)


def _equals(one: Any, other: Any) -> bool:
    return bool(one == other and isinstance(one, bool) == isinstance(other, bool))


def _div(one: int, other: int) -> int:
    quotient = abs(one) // abs(other)
    return quotient if (one < 0) == (other < 0) else -quotient


def _mod(one: int, other: int) -> int:
    return one - other * _div(one, other)


def _extreme(pick: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda *values: pick(values[0] if len(values) == 1 and isinstance(values[0], list) else values)


def _coalesce(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _array(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _create_object(*pairs: Any) -> dict[str, Any]:
    return {str(key): value for key, value in zip(pairs[::2], pairs[1::2], strict=True)}


def _items(value: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value[key]} for key in sorted(value)]


def _object_keys(value: Mapping[str, Any]) -> list[str]:
    return sorted(value)


def _join(values: list[Any], delimiter: str) -> str:
    return _joined(values, delimiter)


def _base64(text: str) -> str:
    return base64.b64encode(text.encode("utf-8", "surrogatepass")).decode("ascii")


def _from_base64(text: str) -> str:
    return base64.b64decode(text, validate=True).decode("utf-8")


def _utc_now(pattern: str = "yyyyMMddTHHmmssZ") -> str:
    now = datetime.now(UTC)
    names = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
    if pattern in ("u", "o"):
        return now.strftime("%Y-%m-%d %H:%M:%SZ" if pattern == "u" else "%Y-%m-%dT%H:%M:%S.%fZ")
    return now.strftime(re.sub("|".join(names), lambda match: names[match[0]], pattern.replace("%", "%%")))


def _date_time_add(base: str, duration: str, pattern: str | None = None) -> str:
    match = _DURATION.fullmatch(duration)
    if match is None:
        raise TemplateError(f"dateTimeAdd: {duration[:40]!r} is not an ISO 8601 duration")
    years, months, weeks, days, hours, minutes, seconds = (int((part or "0")[:6]) for part in match.groups()[1:])
    span = timedelta(365 * years + 30 * months + 7 * weeks + days, seconds, 0, 0, minutes, hours)
    text = re.sub(r"^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$", r"\1-\2-\3T\4:\5:\6Z", base)
    time = datetime.fromisoformat(text.replace("Z", "+00:00")) + (-span if match[1] else span)
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "concat": _concat,
    "format": _format,
    "uniquestring": _unique_string,
    "guid": _guid,
    "newguid": lambda: str(uuid.uuid4()),
    "replace": _replace,
    "split": _split,
    "join": _join,
    "substring": _substring,
    "padleft": _pad_left,
    "tolower": lambda text: text.lower(),
    "toupper": lambda text: text.upper(),
    "trim": lambda text: text.strip(),
    "startswith": lambda text, start: text.lower().startswith(start.lower()),
    "endswith": lambda text, end: text.lower().endswith(end.lower()),
    "indexof": lambda text, part: text.lower().find(part.lower()) if isinstance(text, str) else _index(text, part),
    "lastindexof": lambda text, part: text.lower().rfind(part.lower()),
    "string": lambda value: value if isinstance(value, str) else _text(value),
    "int": _int,
    "float": float,
    "bool": _bool,
    "json": lambda text: json.loads(text),
    "base64": _base64,
    "base64tostring": _from_base64,
    "base64tojson": lambda text: json.loads(_from_base64(text)),
    "uri": urljoin,
    "uricomponent": lambda text: quote(text, safe=""),
    "uricomponenttostring": unquote,
    "utcnow": _utc_now,
    "datetimeadd": _date_time_add,
    "length": _length,
    "contains": _contains,
    "empty": _empty,
    "union": _union,
    "intersection": _intersection,
    "first": _first,
    "last": _last,
    "skip": _skip,
    "take": _take,
    "range": _range,
    "array": _array,
    "createarray": lambda *values: list(values),
    "createobject": _create_object,
    "items": _items,
    "objectkeys": _object_keys,
    "flatten": _listed,
    "coalesce": _coalesce,
    "add": lambda one, other: one + other,
    "sub": lambda one, other: one - other,
    "mul": lambda one, other: one * other,
    "div": _div,
    "mod": _mod,
    "min": _extreme(min),
    "max": _extreme(max),
    "equals": _equals,
    "less": lambda one, other: one < other,
    "lessorequals": lambda one, other: one <= other,
    "greater": lambda one, other: one > other,
    "greaterorequals": lambda one, other: one >= other,
    "not": lambda value: not value,
    "true": lambda: True,
    "false": lambda: False,
    "null": lambda: None,
}
"""By their names in lower case. The evaluator has `if`, `and` and `or`, whose arguments are evaluated as needed."""


def _index(values: list[Any], item: Any) -> int:
    return values.index(item) if item in values else -1


def call(name: str, arguments: list[Any]) -> Any:
    """Call a function. Raises TemplateError for one that does not exist, and for arguments that it does not take."""
    function = FUNCTIONS.get(name.lower())
    if function is None:
        raise TemplateError(f"the template function '{name[:80]}' is not supported")
    try:
        value = function(*arguments)
        if isinstance(value, int) and abs(value) > MAX_INTEGER:
            raise OverflowError("a number has 64 bits")
        return value
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, ZeroDivisionError, OverflowError) as error:
        reason = str(error).partition("(")[0][:200]
        raise TemplateError(f"the template function '{name}' cannot take these arguments: {reason}") from None
    except RecursionError:
        raise TemplateError(f"the template function '{name}' was given a value that is nested too deeply") from None
