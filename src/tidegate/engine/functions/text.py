"""Functions of text. Positions count characters (code points) from 1.

https://learn.microsoft.com/stream-analytics-query/string-functions-azure-stream-analytics
"""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc

from tidegate.engine.functions.declarations import FunctionGroup
from tidegate.engine.functions.like_patterns import is_costly, like_pattern
from tidegate.engine.functions.regular_expressions import find_each
from tidegate.engine.values.budget import LONGEST_TEXT_BYTES
from tidegate.engine.values.vectors import Failure, Reason, Vector
from tidegate.sql.plan.nodes import Type

_OUT_OF_DOMAIN = Failure(Reason.OUT_OF_DOMAIN)
_TOO_LONG = Failure(Reason.LIMIT)
_BLANK = " "
_WHITE_SPACE = "".join(
    chr(code)
    for code in (*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F)
) + chr(0x3000)
"""What LTRIM, RTRIM and TRIM remove ("White-space characters" on their pages); not only blanks, as in T-SQL."""

_TEXT = FunctionGroup("Text")


@_TEXT.by_rows(
    "CHARINDEX", "wanted text, text text, [start integer]", Type.BIGINT, example=("CHARINDEX('b', 'abcb', 3)", "4")
)
def charindex(wanted: str, text: str, start: int = 1) -> int:
    """Return where one text begins in another, at or after a position; 0 if nowhere. Case counts."""
    return text.find(wanted, max(start - 1, 0)) + 1 if wanted else 0


@_TEXT.by_rows(
    "CONCAT",
    "first as_text, second as_text, [more as_text]…",
    Type.NVARCHAR,
    example=("CONCAT('a', NULL, 1)", '"a1"'),
    nulls="",
    takes_nulls=True,
    fails="the result is longer than 4 MiB",
    grows=True,
)
def concat(*texts: str | None) -> str | Failure:
    """Return the values as one text; NULL is empty text."""
    given = [text for text in texts if text]
    return "".join(given) if sum(map(len, given)) <= LONGEST_TEXT_BYTES else _TOO_LONG


@_TEXT.by_rows(
    "CONCAT_WS",
    "separator as_text, first as_text, second as_text, [more as_text]…",
    Type.NVARCHAR,
    example=("CONCAT_WS('-', 'a', NULL, 'b')", '"a-b"'),
    nulls="",
    takes_nulls=True,
    fails="the result is longer than 4 MiB",
    grows=True,
)
def concat_ws(separator: str | None, *texts: str | None) -> str | Failure:
    """Return the values as one text with a separator between them; NULLs are left out with their separator."""
    given = [text for text in texts if text is not None]
    size = sum(map(len, given)) + len(separator or "") * len(given)
    return (separator or "").join(given) if size <= LONGEST_TEXT_BYTES else _TOO_LONG


@_TEXT.by_rows(
    "LEFT", "text text, count integer", Type.NVARCHAR, fails="count is negative", example=("LEFT('abc', 2)", '"ab"')
)
def left(text: str, count: int) -> str | Failure:
    """Return the first ``count`` characters."""
    return text[:count] if count >= 0 else _OUT_OF_DOMAIN


@_TEXT.by_columns("LEN", "text text", Type.BIGINT, example=("LEN('abc  ')", "3"))
def length(texts: Vector) -> Vector:
    """Return the number of characters without trailing blanks."""
    return Vector.bigints(_filled(pc.utf8_length(pc.utf8_rtrim(texts.text_values(), characters=_BLANK))))


@_TEXT.by_columns("LOWER", "text text", Type.NVARCHAR, example=("LOWER('ÀB')", '"àb"'))
def lower(texts: Vector) -> Vector:
    """Return the text in lower case."""
    return Vector.of_texts(pc.utf8_lower(texts.text_values()))


@_TEXT.by_columns("LTRIM", "text text", Type.NVARCHAR, example=("LTRIM('  a ')", '"a "'))
def ltrim(texts: Vector) -> Vector:
    """Return the text without leading white space."""
    return Vector.of_texts(pc.utf8_ltrim(texts.text_values(), characters=_WHITE_SPACE))


@_TEXT.by_rows("NCHAR", "code integer", Type.NVARCHAR, example=("NCHAR(233)", '"é"'), nulls="code is no code point")
def nchar(code: int) -> str | None:
    """Return the character with this code point."""
    if not 0 <= code <= 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        return None
    return chr(code)


@_TEXT.by_rows(
    "PATINDEX",
    "pattern text, text text",
    Type.BIGINT,
    example=("PATINDEX('%1_0%', 'ABC1001')", "4"),
    fails="the pattern is longer than 8,000 characters, or takes too long on the text",
)
def patindex(pattern: str, text: str) -> int | Failure:
    """Return where the part of the text that fits a `LIKE` pattern begins; 0 if nowhere. Case counts."""
    if is_costly(pattern, text):
        return _TOO_LONG
    body, anywhere = (pattern[1:], True) if pattern.startswith("%") else (pattern, False)
    open_end = body.endswith("%")
    wanted = like_pattern(body[:-1] if open_end else body)
    return 0 if wanted is None else wanted.find(text, anywhere=anywhere, open_end=open_end) + 1


@_TEXT.by_columns(
    "RegexMatch",
    "text text, pattern text",
    Type.BIGINT,
    example=("RegexMatch('DXE 529', '[0-9]+')", "5"),
    fails="the pattern is longer than 8,000 characters, repeats more than 50,000 parts, or backtracks for a second",
)
def regexmatch(texts: Vector, patterns: Vector) -> Vector:
    """Return where a regular expression first fits, case ignored; 0 if nowhere, or if it is not a valid one."""
    return find_each(texts, patterns)


@_TEXT.by_rows(
    "REPLACE",
    "text text, wanted text, replacement text",
    Type.NVARCHAR,
    fails="the result is longer than 4 MiB",
    example=("REPLACE('abcde', 'cd', 'xx')", '"abxxe"'),
    grows=True,
)
def replace(text: str, pattern: str, replacement: str) -> str | Failure:
    """Return the text with every occurrence of one text replaced by another. Case counts."""
    if not pattern:
        return text
    if len(text) + text.count(pattern) * (len(replacement) - len(pattern)) > LONGEST_TEXT_BYTES:
        return _TOO_LONG
    return text.replace(pattern, replacement)


@_TEXT.by_rows(
    "REPLICATE",
    "text text, count integer",
    Type.NVARCHAR,
    nulls="count is negative",
    fails="the result is longer than 4 MiB",
    example=("REPLICATE('ab', 3)", '"ababab"'),
    grows=True,
)
def replicate(text: str, count: int) -> str | Failure | None:
    """Return the text ``count`` times."""
    if count < 0:
        return None
    return text * count if len(text) * count <= LONGEST_TEXT_BYTES else _TOO_LONG


@_TEXT.by_rows("REVERSE", "text text", Type.NVARCHAR, example=("REVERSE('abc')", '"cba"'))
def reverse(text: str) -> str:
    """Return the characters in reverse order."""
    return text[::-1]


@_TEXT.by_rows(
    "RIGHT", "text text, count integer", Type.NVARCHAR, fails="count is negative", example=("RIGHT('abc', 2)", '"bc"')
)
def right(text: str, count: int) -> str | Failure:
    """Return the last ``count`` characters."""
    if count < 0:
        return _OUT_OF_DOMAIN
    return text[max(len(text) - count, 0) :]


@_TEXT.by_columns("RTRIM", "text text", Type.NVARCHAR, example=("RTRIM(' a  ')", '" a"'))
def rtrim(texts: Vector) -> Vector:
    """Return the text without trailing white space."""
    return Vector.of_texts(pc.utf8_rtrim(texts.text_values(), characters=_WHITE_SPACE))


@_TEXT.by_rows(
    "SPACE",
    "count integer",
    Type.NVARCHAR,
    nulls="count is negative",
    fails="the result is longer than 4 MiB",
    example=("SPACE(3)", '"   "'),
    grows=True,
)
def space(count: int) -> str | Failure | None:
    """Return ``count`` blanks."""
    return replicate(_BLANK, count)


@_TEXT.by_rows(
    "STUFF",
    "text text, start integer, count integer, inserted text",
    Type.NVARCHAR,
    fails="count is negative",
    example=("STUFF('abcdef', 2, 3, 'xyz')", '"axyzef"'),
)
def stuff(text: str, start: int, count: int, inserted: str) -> str | Failure:
    """Return the text with ``count`` characters, from a position on, replaced by another text."""
    if count < 0:
        return _OUT_OF_DOMAIN
    if start > len(text):
        return ""
    begin = max(start, 1) - 1
    return text[:begin] + inserted + text[begin + count :]


@_TEXT.by_rows(
    "SUBSTRING",
    "text text, start integer, count integer",
    Type.NVARCHAR,
    fails="count is negative",
    example=("SUBSTRING('abcdef', 2, 3)", '"bcd"'),
)
def substring(text: str, start: int, count: int) -> str | Failure:
    """Return ``count`` characters from a position on; positions before the first count, and hold nothing."""
    if count < 0:
        return _OUT_OF_DOMAIN
    begin = max(start, 1) - 1
    end = max(start + count - 1, 0)
    return text[begin:end] if end > begin else ""


@_TEXT.by_rows(
    "TRANSLATE",
    "text text, characters text, translations text",
    Type.NVARCHAR,
    fails="the two lists differ in length",
    example=("TRANSLATE('2*[3+4]', '[]', '()')", '"2*(3+4)"'),
)
def translate(text: str, characters: str, translations: str) -> str | Failure:
    """Return the text with each character of one list replaced by the one in the same place of the other."""
    if len(characters) != len(translations):
        return _OUT_OF_DOMAIN
    table: dict[int, str] = {}
    for character, translation in zip(characters, translations, strict=True):
        table.setdefault(ord(character), translation)
    return text.translate(table)


@_TEXT.by_columns("TRIM", "text text", Type.NVARCHAR, example=("TRIM('  a ')", '"a"'))
def trim(texts: Vector) -> Vector:
    """Return the text without leading and trailing white space."""
    return Vector.of_texts(pc.utf8_trim(texts.text_values(), characters=_WHITE_SPACE))


@_TEXT.by_rows("UNICODE", "text text", Type.BIGINT, nulls="the text is empty", example=("UNICODE('é')", "233"))
def unicode(text: str) -> int | None:
    """Return the code point of the first character."""
    return ord(text[0]) if text else None


@_TEXT.by_columns("UPPER", "text text", Type.NVARCHAR, example=("UPPER('àb')", '"ÀB"'))
def upper(texts: Vector) -> Vector:
    """Return the text in upper case, in which ß stays, as in .NET; Arrow makes it ẞ."""
    values = texts.text_values()
    raised = pc.utf8_upper(values)
    kept = pc.if_else(pc.match_substring(values, "ẞ"), raised, pc.replace_substring(raised, "ẞ", "ß"))
    return Vector.of_texts(kept)


def _filled(array: Any) -> Any:
    return pc.fill_null(array, 0).to_numpy(zero_copy_only=False).astype("int64")
