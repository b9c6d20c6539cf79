"""What a query may say, and hardly ever means."""

import pytest

from tests.saql.compiling import compile_query
from tidegate.saql.lint import lint

SESSION = "one session for every i.k: an event of any of them keeps it open for all"
NULL = "a comparison with NULL is never true"
PROCESSED = "EventProcessedUtcTime is the time of processing in the service, and the arrival here"
GAPS = "events between these windows are in none of them: the hop is longer than the window"


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT k, COUNT(*) FROM i GROUP BY k, SessionWindow(second, 5, 60)", [(39, SESSION)]),
        ("SELECT k FROM i GROUP BY k, SessionWindow(second, 5, 60) OVER (PARTITION BY K)", []),
        ("SELECT k FROM i GROUP BY k, l, SessionWindow(second, 5, 60) OVER (PARTITION BY k)", []),
        ("SELECT COUNT(*) FROM i GROUP BY SessionWindow(second, 5, 60)", []),
        (
            "SELECT System.Window().Id, k FROM i GROUP BY k, Windows(Tumbling(second, 5), Session(second, 5, 60))",
            [(78, SESSION)],
        ),
        ("SELECT COUNT(*) FROM i GROUP BY HoppingWindow(second, 5, 10)", [(33, GAPS)]),
        ("SELECT COUNT(*) FROM i GROUP BY HoppingWindow(second, 5, 5)", []),
        ("SELECT x FROM i WHERE x = NULL", [(23, NULL)]),
        ("SELECT CASE WHEN NULL <> x THEN 1 ELSE 0 END AS y FROM i WHERE x IS NOT NULL", [(18, NULL)]),
        ("SELECT LAG(x) OVER (LIMIT DURATION(second, 5) WHEN y <> NULL) AS y FROM i", [(52, NULL)]),
        ("SELECT a.x FROM a JOIN b ON DATEDIFF(second, a, b) = 0 AND a.x > NULL", [(60, NULL)]),
        ("SELECT SUM(CASE WHEN x = NULL THEN 1 END) AS y FROM i GROUP BY System.Timestamp()", [(22, NULL)]),
        ("WITH s AS (SELECT x FROM i WHERE x = NULL) SELECT x INTO a FROM s SELECT x INTO b FROM s", [(34, NULL)]),
        ("SELECT EventProcessedUTCTime AS t, i.EventEnqueuedUtcTime FROM i", [(8, PROCESSED)]),
        ("SELECT COALESCE(x, NULL) AS y FROM i WHERE x = 1", []),
    ],
)
def test_what_is_doubtful(sql: str, expected: list[tuple[int, str]]) -> None:
    assert [(found.column, found.message) for found in lint(compile_query(sql))] == expected
