"""The grammar: precedence against a table, and recovery after a fault."""

from hypothesis import given
from hypothesis import strategies as st

from tidegate.engine import CATALOG
from tidegate.sql.parsing import syntax
from tidegate.sql.parsing.parser import Parser

# T-SQL's table, tightest first. Operators of one row associate to the left.
LEVELS = [["*", "/", "%"], ["+", "-", "&", "|", "^"]]


def parsed(expression: str) -> syntax.Node:
    parser = Parser(f"SELECT {expression} AS x FROM i", CATALOG)
    script = parser.script()
    assert not parser.diagnostics
    (select,) = script.queries
    assert isinstance(select, syntax.Select)
    return select.items[0].value


def bracketed(node: syntax.Node) -> str:
    """The structure alone, with all parentheses written."""
    match node:
        case syntax.Binary():
            return f"({bracketed(node.left)} {node.sign} {bracketed(node.right)})"
        case syntax.Path():
            return node.words[0].text
    raise AssertionError(node)


def model(words: list[str]) -> str:
    """Fold the operators of each level, from the tightest, from left to right."""
    words = list(words)
    for level in LEVELS:
        index = 1
        while index < len(words):
            if words[index] in level:
                words[index - 1 : index + 2] = [f"({words[index - 1]} {words[index]} {words[index + 1]})"]
            else:
                index += 2
    (whole,) = words
    return whole


@given(st.lists(st.sampled_from([sign for level in LEVELS for sign in level]), max_size=8))
def test_signs_bind_as_in_the_table(signs: list[str]) -> None:
    words = ["a"]
    for index, sign in enumerate(signs):
        words += [sign, "bcdefghi"[index]]
    assert bracketed(parsed(" ".join(words))) == model(words)


def test_a_sign_before_a_number_belongs_to_it() -> None:
    assert parsed("-9223372036854775808") == syntax.Constant(-(2**63), syntax.Span(7, 27))
    negated = parsed("- x")
    assert isinstance(negated, syntax.Unary)


def test_one_fault_hides_neither_the_other_statements_nor_the_steps() -> None:
    parser = Parser(
        "WITH a AS (SELECT x FROM), b AS (SELECT y FROM i), c AS (SELECT (z FROM i)\n"
        "SELECT FROM a; SELECT x FROM b WHERE; CREATE TABLE i (a bigint) SELECT ok FROM b UNION SELECT ok FROM c",
        CATALOG,
    )
    script = parser.script()
    # FROM without a name · the parenthesis never closed · SELECT without columns · WHERE without a condition
    assert len(parser.diagnostics) == 4
    assert [(step.name.text, step.query is not None) for step in script.steps] == [
        ("a", False),
        ("b", True),
        ("c", False),
    ]
    assert len(script.tables) == 1
    assert len(script.queries) == 1


def test_statements_need_no_semicolons() -> None:
    script = Parser(
        "CREATE TABLE i(a bigint) SELECT a INTO o FROM i SELECT a INTO p FROM i;;SELECT a INTO q FROM i",
        CATALOG,
    ).script()
    assert (len(script.tables), len(script.queries)) == (1, 3)
