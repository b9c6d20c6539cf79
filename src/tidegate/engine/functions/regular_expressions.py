"""Regular expressions over columns of text, without the time bomb that backtracking is.

``^(a+)+$x`` takes a backtracking engine 2^n steps for n letters. RE2 (which Arrow's kernels contain) compiles a
pattern to an automaton and reads each text once: https://swtch.com/~rsc/regexp/regexp1.html. It has no lookaround,
backreferences, atomic groups and possessive quantifiers. A pattern that needs those, or that the two dialects read
differently, goes to an engine that backtracks, with a time limit for each text; a text that takes longer fails.

Patterns are those of Python's `re` with IGNORECASE, DOTALL and ASCII, whichever engine runs them; `\\B` fits an empty
text, as in Python 3.14 and .NET.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import regex

from tidegate.engine.values.budget import LARGEST_EXPRESSION, LONGEST_PATTERN
from tidegate.engine.values.vectors import BoolArray, Failure, Int64Array, Reason, Texts, Vector

TIME_LIMIT_S = 1.0
"""How long an engine that backtracks may look at one text."""

_READ_DIFFERENTLY = re.compile(
    r"""
      [^\x00-\x7F]       # ignoring case, RE2 folds letters outside of ASCII, too
    | \\[0-9xuUN]        # escapes of characters (see above), octal numbers and backreferences
    | \\B                # RE2 may find it inside a letter of several bytes
    | \{,                # {,n}: RE2 takes it literally
    | \[:                # [:alpha:] is a class of POSIX for RE2
    | \(\?(?!:|P<)       # flags, lookaround and atomic groups
    | [*+?}]\+           # possessive quantifiers
    """,
    re.VERBOSE,
)
_PART = re.compile(
    r"""
      \\.                                       # an escaped character
    | \[\^?\]?(?:\\.|[^\]\\])*\]               # a class
    | (?P<open>\()
    | (?P<close>\))
    | (?P<times>\{[0-9]*,?[0-9]+\}|\{[0-9]+,\})
    | (?P<sign>[*+?])
    | .
    """,
    re.VERBOSE | re.DOTALL,
)
_WHITE_SPACE = re.compile(r"\\[sS]")
_FOLDED_TO_ASCII = "[\u017f\u212a]"
"""What RE2 takes for an s and a k when case is ignored."""


@dataclass(frozen=True, slots=True)
class _Expression:
    """A pattern that compiles.

    Attributes:
        linear: for RE2; None if it cannot run it.
        hazards: a pattern of the texts that RE2 would read differently; None if there are none in ASCII.
        backtracking: for the engine with a time limit.
    """

    linear: str | None
    hazards: str | None
    backtracking: Any


@lru_cache(maxsize=1024)
def expression_size(pattern: str) -> int:
    """Return how large a regular expression is at most, with its repetitions written out as engines do.

    Compiling `x{999999999}` takes as much memory as a billion letters, so this is estimated first.
    """
    if len(pattern) > LONGEST_PATTERN:
        return LARGEST_EXPRESSION + 1
    sizes, last = [0], 0
    for token in _PART.finditer(pattern):
        match token.lastgroup:
            case "open":
                sizes.append(0)
                last = 0
            case "close" if len(sizes) > 1:
                last = sizes.pop()
                sizes[-1] += last
            case "times":
                times = max(int(number[:12]) for number in re.findall("[0-9]+", token[0]))
                sizes[-1] += last * max(times - 1, 0)
                last *= max(times, 1)
            case "sign":
                sizes[-1] += 1
            case _:
                last = 1
                sizes[-1] += 1
    return sum(sizes)


@lru_cache(maxsize=1024)
def _expression(pattern: str) -> _Expression | None:
    """Compile a pattern; None if it is not a regular expression."""
    flags = regex.IGNORECASE | regex.DOTALL | regex.ASCII | regex.VERSION0
    try:
        with warnings.catch_warnings():
            # What a later Python may read differently is not the concern of the pattern's author.
            warnings.simplefilter("ignore", FutureWarning)
            re.compile(pattern, re.IGNORECASE | re.DOTALL | re.ASCII)
            backtracking = regex.compile(pattern, flags)
    except (re.error, regex.error, RecursionError, OverflowError):
        return None
    if _READ_DIFFERENTLY.search(pattern):
        return _Expression(None, None, backtracking)
    linear = f"(?s){pattern}"
    try:
        pc.find_substring_regex(pa.scalar("", pa.large_string()), pattern=linear, ignore_case=True)
    except pa.ArrowInvalid:
        return _Expression(None, None, backtracking)
    hazards = ["\\v"] if _WHITE_SPACE.search(pattern) else []  # \s of RE2 leaves out \v.
    if "$" in pattern:
        hazards.append("\\n\\z")  # The end is also before a last line end.
    return _Expression(linear, "|".join(hazards) or None, backtracking)


def find_each(texts: Vector, patterns: Vector) -> Vector:
    """Return where each pattern first fits in its text, counted from 1.

    Returns:
        A bigint for each pair: 0 where the pattern does not fit or is no regular expression, a failure where it took
        too long. Pairs with a NULL have any value.
    """
    dictionary = pc.dictionary_encode(patterns.text_values())
    dictionary = dictionary.combine_chunks() if isinstance(dictionary, pa.ChunkedArray) else dictionary
    places = np.zeros(len(texts), dtype=np.int64)
    slow = np.zeros(len(texts), dtype=np.bool_)
    values = texts.text_values()
    codes = pc.fill_null(dictionary.indices, -1).to_numpy(zero_copy_only=False)
    too_large = np.zeros(len(texts), dtype=np.bool_)
    for code, pattern in enumerate(dictionary.dictionary.to_pylist()):
        if expression_size(pattern) > LARGEST_EXPRESSION:
            too_large |= codes == code
            continue
        expression = _expression(pattern)
        if expression is not None:
            rows = np.flatnonzero(codes == code)
            places[rows], slow[rows] = _find(expression, values if len(rows) == len(values) else values.take(rows))
    failing = (slow | too_large).any()
    found = Vector.bigints(places)
    if not failing:
        return found
    failures = [Vector.errors(reason, len(texts)) for reason in (Reason.TIME_LIMIT, Reason.LIMIT)]
    return Vector.choose(np.where(too_large, 2, slow).astype(np.int64), [found, *failures])


def _find(expression: _Expression, texts: Texts) -> tuple[Int64Array, BoolArray]:
    """Return the places in each text, and which took too long."""
    slow = np.zeros(len(texts), dtype=np.bool_)
    if expression.linear is None:
        places = np.zeros(len(texts), dtype=np.int64)
        _find_backtracking(expression, texts, np.arange(len(texts)), places, slow)
        return places, slow
    offsets = pc.find_substring_regex(texts, pattern=expression.linear, ignore_case=True)
    places = pc.fill_null(offsets, -1).to_numpy(zero_copy_only=False).astype(np.int64) + 1
    unsure = np.zeros(len(texts), dtype=np.bool_) if expression.hazards is None else _fits(texts, expression.hazards)
    beyond_ascii = ~pc.fill_null(pc.string_is_ascii(texts), True).to_numpy(zero_copy_only=False)
    if beyond_ascii.any():
        unsure |= _fits(texts, _FOLDED_TO_ASCII)
        # Offsets count bytes.
        for row in np.flatnonzero(beyond_ascii & (places > 1)).tolist():
            places[row] = len(texts[row].as_py().encode()[: places[row] - 1].decode()) + 1
    _find_backtracking(expression, texts, np.flatnonzero(unsure), places, slow)
    return places, slow


def _fits(texts: Texts, pattern: str) -> BoolArray:
    found: BoolArray = pc.fill_null(pc.match_substring_regex(texts, pattern=pattern), False).to_numpy(
        zero_copy_only=False
    )
    return found


def _find_backtracking(
    expression: _Expression, texts: Texts, rows: Int64Array, places: Int64Array, slow: BoolArray
) -> None:
    """Set the places of these rows, and which of them took too long. Equal texts are looked at once."""
    known: dict[str | None, int | Failure] = {None: 0}
    for row in rows.tolist():
        text = texts[row].as_py()
        if text not in known:
            try:
                found = expression.backtracking.search(text, timeout=TIME_LIMIT_S)
                known[text] = 0 if found is None else found.start() + 1
            except TimeoutError:
                known[text] = Failure(Reason.TIME_LIMIT)
        place = known[text]
        if isinstance(place, Failure):
            slow[row] = True
        else:
            places[row] = place
