"""Functions of text. Positions count characters (code points) from 1.
https://learn.microsoft.com/stream-analytics-query/string-functions-azure-stream-analytics"""

from __future__ import annotations

import re
import warnings
from functools import lru_cache
from typing import Any

import pyarrow.compute as pc

from tidegate.engine.values.vectors import Failure, Reason, Vector

_OUT_OF_DOMAIN = Failure(Reason.OUT_OF_DOMAIN)
_LONGEST_RESULT = 2**24
_BLANK = " "
_WHITE_SPACE = "".join(
    chr(code)
    for code in (*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F)
) + chr(0x3000)
"""What LTRIM, RTRIM and TRIM remove ("White-space characters" on their pages); not only blanks, as in T-SQL."""


def length(texts: Vector) -> Vector:
    """LEN: characters without trailing blanks."""
    return Vector.bigints(_filled(pc.utf8_length(pc.utf8_rtrim(texts.text_values(), characters=_BLANK))))


def lower(texts: Vector) -> Vector:
    """LOWER."""
    return Vector.of_texts(pc.utf8_lower(texts.text_values()))


def upper(texts: Vector) -> Vector:
    """UPPER."""
    return Vector.of_texts(pc.utf8_upper(texts.text_values()))


def ltrim(texts: Vector) -> Vector:
    """LTRIM: without leading white space."""
    return Vector.of_texts(pc.utf8_ltrim(texts.text_values(), characters=_WHITE_SPACE))


def rtrim(texts: Vector) -> Vector:
    """RTRIM: without trailing white space."""
    return Vector.of_texts(pc.utf8_rtrim(texts.text_values(), characters=_WHITE_SPACE))


def trim(texts: Vector) -> Vector:
    """TRIM: without leading and trailing white space."""
    return Vector.of_texts(pc.utf8_trim(texts.text_values(), characters=_WHITE_SPACE))


def _filled(array: Any) -> Any:
    return pc.fill_null(array, 0).to_numpy(zero_copy_only=False).astype("int64")


def charindex(wanted: str, text: str, start: int = 1) -> int:
    """CHARINDEX: where one text begins in another at or after a position; 0 if nowhere."""
    return text.find(wanted, max(start - 1, 0)) + 1 if wanted else 0


def concat(*texts: str | None) -> str:
    """CONCAT: NULL is empty text."""
    return "".join(text or "" for text in texts)


def concat_ws(separator: str | None, *texts: str | None) -> str:
    """CONCAT_WS: NULLs are left out, with their separator."""
    return (separator or "").join(text for text in texts if text is not None)


def left(text: str, count: int) -> str | Failure:
    """LEFT."""
    return text[:count] if count >= 0 else _OUT_OF_DOMAIN


def right(text: str, count: int) -> str | Failure:
    """RIGHT."""
    if count < 0:
        return _OUT_OF_DOMAIN
    return text[max(len(text) - count, 0) :]


def nchar(code: int) -> str | None:
    """NCHAR: the character of a code point; NULL of what is none, as of half a surrogate pair."""
    if not 0 <= code <= 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        return None
    return chr(code)


def unicode(text: str) -> int | None:
    """UNICODE: the code point of the first character; NULL of empty text."""
    return ord(text[0]) if text else None


def replace(text: str, pattern: str, replacement: str) -> str | Failure:
    """REPLACE: every occurrence; nothing is replaced by looking for empty text."""
    if not pattern:
        return text
    if len(text) + text.count(pattern) * len(replacement) > _LONGEST_RESULT:
        return _OUT_OF_DOMAIN
    return text.replace(pattern, replacement)


def replicate(text: str, count: int) -> str | Failure | None:
    """REPLICATE; NULL of a negative count."""
    if count < 0:
        return None
    return text * count if len(text) * count <= _LONGEST_RESULT else _OUT_OF_DOMAIN


def space(count: int) -> str | Failure | None:
    """SPACE."""
    return replicate(_BLANK, count)


def reverse(text: str) -> str:
    """REVERSE."""
    return text[::-1]


def stuff(text: str, start: int, count: int, inserted: str) -> str | Failure:
    """STUFF: ``count`` characters from ``start`` on replaced."""
    if count < 0:
        return _OUT_OF_DOMAIN
    if start > len(text):
        return ""
    begin = max(start, 1) - 1
    return text[:begin] + inserted + text[begin + count :]


def substring(text: str, start: int, count: int) -> str | Failure:
    """SUBSTRING: positions before the first character count, and hold nothing."""
    if count < 0:
        return _OUT_OF_DOMAIN
    begin = max(start, 1) - 1
    end = max(start + count - 1, 0)
    return text[begin:end] if end > begin else ""


def translate(text: str, characters: str, translations: str) -> str | Failure:
    """TRANSLATE: each character replaced by the one in the same place; both lists must be of one length."""
    if len(characters) != len(translations):
        return _OUT_OF_DOMAIN
    table: dict[int, str] = {}
    for character, translation in zip(characters, translations, strict=True):
        table.setdefault(ord(character), translation)
    return text.translate(table)


def like(text: str, pattern: str, escape: str | None = None) -> bool | Failure:
    """LIKE: % any characters, _ one, [abc] or [a-c] one of these, [^abc] another one; all of the text must fit."""
    expression = _like_expression(pattern, escape)
    return _OUT_OF_DOMAIN if expression is None else expression.fullmatch(text) is not None


def patindex(pattern: str, text: str) -> int:
    """PATINDEX: where what fits a LIKE pattern begins (its leading % aside); 0 if nowhere."""
    body, anywhere = (pattern[1:], True) if pattern.startswith("%") else (pattern, False)
    open_end = body.endswith("%")
    expression = _like_expression(body[:-1] if open_end else body, None)
    if expression is None:
        return 0
    if not anywhere:
        return int((expression.match(text) if open_end else expression.fullmatch(text)) is not None)
    if open_end:
        found = expression.search(text)
    else:
        found = next((match for at in range(len(text) + 1) if (match := expression.fullmatch(text, at))), None)
    return 0 if found is None else found.start() + 1


@lru_cache(maxsize=1024)
def _like_expression(pattern: str, escape: str | None) -> re.Pattern[str] | None:
    """A LIKE pattern as a regular expression; None if its escape character ends it."""
    parts: list[str] = []
    place = 0
    while place < len(pattern):
        character = pattern[place]
        place += 1
        if character == escape:
            if place == len(pattern):
                return None
            parts.append(re.escape(pattern[place]))
            place += 1
        elif character == "%":
            parts.append(".*")
        elif character == "_":
            parts.append(".")
        elif character == "[" and (end := pattern.find("]", place + 1)) > 0:
            inside = pattern[place:end]
            negated, inside = (True, inside[1:]) if inside.startswith("^") else (False, inside)
            parts.append(_character_class(inside, negated))
            place = end + 1
        else:
            parts.append(re.escape(character))
    return re.compile("".join(parts), re.DOTALL)


def _character_class(inside: str, negated: bool) -> str:
    parts: list[str] = []
    place = 0
    while place < len(inside):
        if place + 2 < len(inside) and inside[place + 1] == "-":
            low, high = inside[place], inside[place + 2]
            if low <= high:
                parts.append(f"{re.escape(low)}-{re.escape(high)}")
            place += 3
        else:
            parts.append(re.escape(inside[place]))
            place += 1
    if not parts:
        return "." if negated else "(?!)"
    return f"[{'^' if negated else ''}{''.join(parts)}]"


def regexmatch(text: str, pattern: str) -> int:
    """REGEXMATCH: where a regular expression (case ignored) first fits; 0 if nowhere or if it is not one."""
    expression = _regular_expression(pattern)
    found = None if expression is None else expression.search(text)
    return 0 if found is None else found.start() + 1


@lru_cache(maxsize=1024)
def _regular_expression(pattern: str) -> re.Pattern[str] | None:
    try:
        with warnings.catch_warnings():
            # What a later Python may read otherwise is not the pattern's author's concern.
            warnings.simplefilter("ignore", FutureWarning)
            return re.compile(pattern, re.IGNORECASE | re.DOTALL | re.ASCII)
    except (re.error, RecursionError, OverflowError):
        return None
