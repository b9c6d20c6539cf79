"""The names of result columns that the query does not name.

No page of the documents states the rule. What they show: a column keeps its name as the query spells it; of a path
the last part is the name, of `System.Window().Id` it is `Id`. By the same rule a function gives its own name, in
lower case (`COUNT(*)` is `count`, `System.Timestamp()` is `timestamp`). Anything else is `column` and its place in
the SELECT list, as the columns of an input without names are column1, column2, … (CREATE TABLE page).
"""

from __future__ import annotations

from tidegate.saql.parsing import syntax
from tidegate.saql.parsing.syntax import Node


def default_name(node: Node, place: int) -> str:
    """`place` counts from 1."""
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
