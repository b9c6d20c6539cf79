"""LIKE, PATINDEX and RegexMatch say what Python's backtracking engine says, and never take its time."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.engine.streams import Events, program, run, task
from tests.profiles import example_count
from tidegate.engine.functions import regular_expressions
from tidegate.engine.functions.logic import like
from tidegate.engine.functions.regular_expressions import find_each
from tidegate.engine.functions.text import patindex
from tidegate.engine.values.vectors import Failure, Reason, Vector
from tidegate.ordering import Carry, Policy

LETTERS = "ab%_[]^-!"


# The definition: a LIKE pattern as a regular expression that backtracks ----------------------------------------------


def expression(pattern: str, escape: str | None = None) -> re.Pattern[str] | None:
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
            parts.append(character_class(pattern[place:end]))
            place = end + 1
        else:
            parts.append(re.escape(character))
    return re.compile("".join(parts), re.DOTALL)


def character_class(inside: str) -> str:
    negated, inside = (True, inside[1:]) if inside.startswith("^") else (False, inside)
    parts = ""
    while inside:
        if len(inside) > 2 and inside[1] == "-":
            parts += f"{re.escape(inside[0])}-{re.escape(inside[2])}" if inside[0] <= inside[2] else ""
            inside = inside[3:]
        else:
            parts += re.escape(inside[0])
            inside = inside[1:]
    return f"[{'^' if negated else ''}{parts}]" if parts else "." if negated else "(?!)"


def slow_patindex(pattern: str, text: str) -> int:
    body, anywhere = (pattern[1:], True) if pattern.startswith("%") else (pattern, False)
    open_end = body.endswith("%")
    wanted = expression(body[:-1] if open_end else body)
    assert wanted is not None
    for at in range(len(text) + 1) if anywhere else (0,):
        if wanted.match(text, at) if open_end else wanted.fullmatch(text, at):
            return at + 1
    return 0


TEXTS = st.text(alphabet="aab%b\n", max_size=8)
PATTERNS = st.text(alphabet=LETTERS + "%%ab", max_size=8)


@settings(max_examples=example_count(400))
@given(TEXTS, PATTERNS, st.sampled_from([None, "!", "[", "%"]))
@example("ab", "_%_%_", None)
@example("aab", "%a[^a]", None)
@example("", "%%", None)
def test_like_is_its_definition(text: str, pattern: str, escape: str | None) -> None:
    wanted = expression(pattern, escape)
    expected = Failure(Reason.OUT_OF_DOMAIN) if wanted is None else wanted.fullmatch(text) is not None
    assert like(text, pattern, escape) == expected


@settings(max_examples=example_count(400))
@given(PATTERNS, TEXTS)
@example("%", "abc")
@example("%_%a", "aba")
@example("%b[a-b]%", "aabb")
def test_patindex_is_its_definition(pattern: str, text: str) -> None:
    assert patindex(pattern, text) == slow_patindex(pattern, text)


# Regular expressions --------------------------------------------------------------------------------------------------


def backtracking(text: str, pattern: str) -> int:
    flags = re.IGNORECASE | re.DOTALL | re.ASCII
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            compiled = re.compile(pattern, flags)
            if not text:
                # Before Python 3.14, an empty text had no place that is not the boundary of a word.
                compiled = re.compile(pattern.replace(r"\B", "(?:)"), flags)
    except (re.error, OverflowError):
        return 0
    found = compiled.search(text)
    return 0 if found is None else found.start() + 1


ATOMS = st.sampled_from(
    [
        *"abAK.^$kÉé1_ \u017f\u212a()|",
        *[
            r"\d",
            r"\w",
            r"\S",
            r"\s",
            r"\b",
            r"\B",
            r"\Z",
            r"\1",
            r"\x61",
            r"\.",
            r"[ab]",
            r"[^a]",
            r"[^k]",
            r"[A-Z]",
            r"[[:a]",
            r"[\s1]",
            r"[^\S]",
        ],
        *["(?i)", "(?m)", "(?:", "(?=a)", "(?<!b)", "(?P<n>a)"],
    ]
)
REPEATS = st.sampled_from(["", "", "", "*", "+", "?", "*?", "{2}", "{,2}", "{1,}", "*+", "{0}"])
EXPRESSIONS = st.lists(st.tuples(ATOMS, REPEATS).map("".join), max_size=5).map("".join)
SUBJECTS = st.text(alphabet="abAkKsÉé1_ \n\v\u017f\u212a", max_size=6)


@settings(max_examples=example_count(300))
@given(st.lists(st.tuples(SUBJECTS, EXPRESSIONS), min_size=1, max_size=4))
@example([("a\n", "a$"), ("a\n", "a$\n")])
@example([("\v", r"\s"), ("\v", r"[^\S]")])
@example([("\u212a", "k"), ("\u017f", "S"), ("É", "é")])
@example([("éa", "a"), ("éé", "")])
@example([("", r"\B"), ("", r"\Ba")])
def test_a_regular_expression_is_found_where_backtracking_finds_it(pairs: list[tuple[str, str]]) -> None:
    texts, patterns = zip(*pairs, strict=True)
    assert find_each(Vector.of(texts), Vector.of(patterns)).to_list() == [backtracking(*pair) for pair in pairs]


# Time -----------------------------------------------------------------------------------------------------------------

LONG = "a" * 16_000


def seconds(of: Callable[[], object]) -> float:
    started = time.process_time()
    of()
    return time.process_time() - started


@pytest.mark.parametrize(
    "pattern",
    [
        "%a%b%c",
        "%a" * 200 + "b",
        "%_a" * 100 + "%b",
        "%[ab]%[^b]%" * 40 + "c",
        "%" * 5_000 + "b",
        "_" * 8_000 + "%b",
        "%" + "_" * 8_000 + "b%",
        "%" + "[a-c]" * 2_000 + "b%",
        "%" + "a" * 8_000 + "b%a",
        "!%%a%!%!%%a%!%%b",
    ],
    ids=lambda pattern: pattern[:12],
)
def test_no_pattern_is_slow(pattern: str) -> None:
    assert seconds(lambda: like(LONG, pattern, "!")) < 2
    assert seconds(lambda: patindex(pattern, LONG)) < 2
    assert seconds(lambda: patindex(pattern.removeprefix("%"), LONG)) < 2


@pytest.mark.parametrize(
    "pattern", ["^(a+)+$x", "(a|aa)+b", "(.*)*x", "^(a|a)*$b", "(?:a?){50}a{50}b", "(x+x+)+y|(a+a+)+b"]
)
def test_no_regular_expression_is_slow(pattern: str) -> None:
    texts = Vector.of(["a" * 40, LONG, "é" + LONG])
    assert seconds(lambda: find_each(texts, Vector.constant(pattern, 3))) < 2
    assert find_each(texts, Vector.constant(pattern, 3)).to_list() == [0, 0, 0]


def test_a_regular_expression_that_backtracks_has_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regular_expressions, "TIME_LIMIT_S", 0.05)
    pattern = r"^(a|b|ab)*(?=c)\1$"
    of = program(f"SELECT RegexMatch(k, '{pattern}') AS at INTO o FROM input")
    events = [{"k": "ab" * 40}, {"k": "ac"}, {"k": None}]
    partial, _ = task(of, "input", "0", Events.of(events), Policy.none(), Carry())
    assert [(error.reason, error.rows.tolist()) for error in partial.errors] == [(Reason.TIME_LIMIT, [0])]
    assert run(of, events[1:]) == [{"at": 0}, {"at": None}]
