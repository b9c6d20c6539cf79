"""The names of result columns that the query does not name.

No page of Microsoft's documentation states the rule. Its examples show that a column keeps its name as the query spells
it, and that a path is named after its last part (`System.Window().Id` is `Id`). By the same rule a function call has
the function's name in lower case (`COUNT(*)` is `count`, `System.Timestamp()` is `timestamp`). Anything else is
`column` with its place in the SELECT list, like the unnamed columns of an input (column1, column2, …; CREATE TABLE
page).
"""

from __future__ import annotations

from tidegate.sql.parsing import syntax
from tidegate.sql.parsing.syntax import Node


def default_name(node: Node, place: int) -> str:
    """Return the name of an unnamed result column. `place` counts from 1."""
    match node:
        case syntax.Path():
            last = node.words[-1].text
            return last.lower() if node.words[0].text.lower() == "system" and len(node.words) == 2 else last
        case syntax.Member():
            return node.field.text
        case syntax.Function() if node.name[0].text.lower() in ("udf", "uda"):
            return node.name[-1].text
        case syntax.Function():
            return node.name[-1].text.lower()
    return f"column{place}"
