"""The walker visits every relation once, and every expression of it."""

from tests.sql.compiling import compile_query
from tidegate.sql.plan.nodes import Column, Input, StepReference
from tidegate.sql.plan.walking import depth_of, expressions_of, parts_in, relations_of, sources_of


def test_a_shared_step_is_visited_once() -> None:
    query = compile_query(
        "WITH s AS (SELECT x FROM i WHERE x > 1) SELECT x INTO a FROM s "
        "SELECT a.x INTO b FROM s AS a UNION SELECT x FROM s"
    )
    relations = list(relations_of(query))
    assert len(relations) == len({id(relation) for relation in relations})
    assert sum(isinstance(relation, Input) for relation in relations) == 1
    assert sum(isinstance(relation, StepReference) for relation in relations) == 3
    places = {id(relation): place for place, relation in enumerate(relations)}
    assert all(id(source) in places for relation in relations for source in sources_of(relation))
    assert depth_of(query.outputs[0].relation) == 5


def test_every_expression_of_a_query_is_found() -> None:
    query = compile_query(
        "SELECT c0, UPPER(c1) AS u, p.ArrayValue, "
        "LAG(c4, 1, c5) OVER (PARTITION BY c6 LIMIT DURATION(hour, 1) WHEN c7 = 1) AS l "
        "INTO o FROM i TIMESTAMP BY c8 CROSS APPLY GetArrayElements(c9) AS p"
        " SELECT c0, SUM(c2) AS s, TopOne() OVER (ORDER BY c3) AS o INTO q FROM i WHERE c10 IS NULL "
        "GROUP BY c0, SessionWindow(second, 1, 5) OVER (PARTITION BY c0, c11) HAVING MAX(c12) > 1"
        " SELECT i.c0 INTO r FROM i JOIN j ON DATEDIFF(second, i, j) BETWEEN 0 AND 1 AND i.c13 = j.c14 AND i.c15 < 1"
        " SELECT m.t INTO z FROM i MATCH_RECOGNIZE (LIMIT DURATION(minute, 1) PARTITION BY c16 "
        "MEASURES Last(A.c17) AS t AFTER MATCH SKIP TO NEXT ROW PATTERN (A) DEFINE A AS A.c18 > 1) AS m"
    )
    found = {
        part.path[0]
        for relation in relations_of(query)
        for expr in expressions_of(relation)
        for part in parts_in(expr)
        if isinstance(part, Column)
    }
    assert found == {f"c{number}" for number in range(19)} | {"ArrayValue", "t"}
