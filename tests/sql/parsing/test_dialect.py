"""Tokens lie where they say, and what is left open is found where it was opened."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sql.compiling import compile_query
from tidegate.sql.parsing.diagnostics import QueryError
from tidegate.sql.parsing.dialect import LineIndex, TokenKind, tokenize


@given(st.text(alphabet="ab'[]\"-/*.,()<>=!1e \n\r\té", max_size=30))
def test_tokens_cover_the_text(sql: str) -> None:
    try:
        tokens = tokenize(sql)
    except QueryError:
        return
    assert tokens[-1].kind is TokenKind.END
    for before, after in pairwise(tokens):
        assert before.start < before.end <= after.start
    for token in tokens[:-1]:
        source = sql[token.start : token.end]
        if token.kind in (TokenKind.WORD, TokenKind.NUMBER):
            assert token.text == source
        elif token.kind is TokenKind.TEXT:
            quote = source[0]
            assert quote in ("'", '"')
            assert source == quote + token.text.replace(quote, quote * 2) + quote


@given(st.text(alphabet="a\n\r", max_size=20), st.data())
def test_lines_and_columns_count_the_text_before(sql: str, data: st.DataObject) -> None:
    offset = data.draw(st.integers(0, len(sql)))
    position = LineIndex(sql).position(offset)
    # A line ends after its whole line end, so an offset between \r and \n is still on the line.
    before = sql[:offset] if sql[offset - 1 : offset + 1] != "\r\n" or not offset else sql[: offset - 1] + "a"
    lines = before.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    assert position.line == len(lines)
    if "\r\n" not in sql:
        assert position.column == len(lines[-1]) + 1


@pytest.mark.parametrize(
    ("sql", "column", "message"),
    [
        ("SELECT 'a", 8, "this text is never closed"),
        ("SELECT 'it''s", 8, "this text is never closed"),
        ("SELECT [a FROM i", 8, "this name is never closed"),
        ("SELECT /* 'a */ [b", 17, "this name is never closed"),
        ("SELECT 1 /* /* a */ b", 10, "this comment is never closed"),
        ("SELECT 1 -- 'a\n 'b", 2, "this text is never closed"),
    ],
)
def test_what_is_never_closed(sql: str, column: int, message: str) -> None:
    with pytest.raises(QueryError) as refused:
        tokenize(sql)
    (diagnostic,) = refused.value.diagnostics
    assert (diagnostic.column, diagnostic.message) == (column, message)


@pytest.mark.parametrize("text", ["1", "1.5", "1.", "1e5", "1.5E-3", "007"])
def test_numbers(text: str) -> None:
    token = tokenize(text)[0]
    assert (token.kind, token.text) == (TokenKind.NUMBER, text)


@pytest.mark.parametrize("text", ["1e", "0x1F", "1.2.3", "1..2", "5abc", "1.x", "1.2.x"])
def test_what_looks_like_a_number_and_is_none(text: str) -> None:
    with pytest.raises(QueryError):
        compile_query(f"SELECT {text} + 1 AS x FROM i")
