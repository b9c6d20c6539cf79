"""The words that have a meaning in queries, and those that have one in T-SQL alone."""

# Words that cannot be an unquoted name, so that a forgotten comma or name is found where it is.
RESERVED = frozenset(
    [
        "SELECT",
        "FROM",
        "WHERE",
        "GROUP",
        "HAVING",
        "INTO",
        "UNION",
        "JOIN",
        "INNER",
        "LEFT",
        "RIGHT",
        "FULL",
        "CROSS",
        "OUTER",
        "ON",
        "AS",
        "AND",
        "OR",
        "NOT",
        "IN",
        "LIKE",
        "BETWEEN",
        "IS",
        "NULL",
        "CASE",
        "WHEN",
        "THEN",
        "ELSE",
        "END",
        "WITH",
        "CREATE",
        "ORDER",
        "DISTINCT",
        "OVER",
    ]
)

CLAUSES = ("SELECT", "FROM", "WHERE", "INTO", "HAVING", "UNION", "JOIN", "GROUP", "TIMESTAMP", "PARTITION", "APPLY")

# What T-SQL has and this language has not: the word, and what to do instead.
ELSEWHERE = {
    "ORDER": (
        "ORDER BY is not part of this language: a stream has no end to sort up to",
        "TopOne and CollectTop rank rows",
    ),
    "TOP": ("TOP is not part of this language: a stream has no end", "TopOne and CollectTop rank rows of a window"),
    "LIMIT": ("LIMIT is not part of this language here", "LIMIT DURATION belongs inside OVER (…)"),
    "QUALIFY": ("QUALIFY is not part of this language", "name the value in a WITH step and filter that"),
    "EXCEPT": ("EXCEPT is not part of this language", "UNION is the only set operator"),
    "INTERSECT": ("INTERSECT is not part of this language", "UNION is the only set operator"),
    "FOR": ("FOR is not part of this language here", "an output says in which format it writes"),
    "OFFSET": ("OFFSET is not part of this language here", None),
    "RIGHT": ("RIGHT JOIN is not part of this language", "change the sides and write LEFT JOIN"),
    "FULL": ("FULL JOIN is not part of this language", "JOIN and LEFT JOIN are"),
}

# Words that begin statements of T-SQL which this language has not, and what to do instead.
STATEMENTS = {
    **dict.fromkeys(("INSERT", "UPDATE", "DELETE", "MERGE", "TRUNCATE"), "SELECT … INTO output FROM input writes"),
    **dict.fromkeys(("DECLARE", "SET"), "there are no variables: write the value, or join reference data"),
    **dict.fromkeys(("USE", "GO", "EXEC", "EXECUTE", "PRINT", "BEGIN", "IF", "WHILE"), None),
    **dict.fromkeys(("DROP", "ALTER", "GRANT"), "CREATE TABLE declares the columns of an input"),
}

# Words of the grammar: where a page glues them to others by invisible characters, they are words of their own.
KEYWORDS = RESERVED | {*CLAUSES, *ELSEWHERE, "BY", "DURATION", "TABLE", "MATCH_RECOGNIZE", "ASC", "DESC"}
