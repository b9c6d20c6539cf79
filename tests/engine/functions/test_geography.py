"""Geospatial functions: the documents' examples, and rules that hold for all figures."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.streams import run
from tidegate.engine.functions.geography import distance, geometry, intersects, overlaps, within
from tidegate.engine.values.vectors import Failure


def point(longitude: float, latitude: float) -> dict[str, Any]:
    return {"type": "Point", "coordinates": [longitude, latitude]}


def polygon(*points: tuple[float, float]) -> dict[str, Any]:
    return {"type": "Polygon", "coordinates": [[list(one) for one in (*points, points[0])]]}


def line(*points: tuple[float, float]) -> dict[str, Any]:
    return {"type": "LineString", "coordinates": [list(one) for one in points]}


def square(low: float, high: float) -> dict[str, Any]:
    return polygon((low, low), (high, low), (high, high), (low, high))


def test_the_examples_of_the_documents() -> None:
    assert distance(point(-5.0, -5.0), point(0.0, 0.0)) == pytest.approx(784028.74077501823, abs=1e-2)
    assert intersects(line((-10, 0), (0, 0), (10, 0)), line((0, 10), (0, 0), (0, -10))) == 1
    assert intersects(line((-10, 0), (0, 0), (10, 0)), line((-10, 10), (0, 10), (10, 10))) == 0
    assert overlaps(square(0, 10), square(30, 40)) == 0
    assert overlaps(square(0, 20), polygon((10, 10), (40, 10), (40, 40), (40, 20))) == 1
    assert within(point(76.6, 10.1), square(0, 10)) == 0
    assert within(point(15, 15), square(10, 20)) == 1


def test_figures_are_made_in_queries() -> None:
    sql = (
        "SELECT CreatePoint(lat, lon) AS p, CreateLineString(CreatePoint(0, 0), CreatePoint(1, lat)) AS l, "
        "CreatePolygon(CreatePoint(lat, lon), CreatePoint(10.0, 10.0), CreatePoint(10.5, 10.5), CreatePoint(lat, lon)) "
        "AS g INTO out FROM input"
    )
    assert run(sql, [{"lat": 3.0, "lon": -10.2}, {"lat": 91, "lon": 0}]) == [
        {
            "p": point(-10.2, 3.0),
            "l": line((0, 0), (3, 1)),
            "g": polygon((-10.2, 3.0), (10, 10), (10.5, 10.5)),
        }
    ]


@pytest.mark.parametrize(
    "text",
    [
        "POINT(1 2)",
        " point ( 1.0  2e0 ) ",
        '{"type":"Point","coordinates":[1,2]}',
        '{"TYPE":"point","Coordinates":[1,2,9]}',
    ],
)
def test_text_is_a_figure(text: str) -> None:
    assert geometry(text) == geometry(point(1, 2))
    assert geometry("POLYGON((0 0,1 0,1 1,0 0))") == geometry(polygon((0, 0), (1, 0), (1, 1)))
    assert geometry("LINESTRING(0 0, 1 1)") == geometry(line((0, 0), (1, 1)))


@pytest.mark.parametrize(
    "value", ["", "POINT()", "POINT(1)", "POLYGON(0 0, 1 1)", "[]", "{", 1, None, {}, [], {"type": "Point"}]
)
def test_anything_else_is_not(value: Any) -> None:
    assert geometry(value) is None
    for function in (distance, intersects, overlaps, within):
        assert isinstance(function(value, point(0, 0)), Failure)


def test_a_border_that_bends_inwards() -> None:
    horseshoe = polygon((0, 0), (6, 0), (6, 6), (4, 6), (4, 2), (2, 2), (2, 6), (0, 6))
    assert within(line((1, 5), (5, 5)), horseshoe) == 0
    assert within(line((1, 1), (5, 1)), horseshoe) == 1
    assert within(square(0.5, 1.5), horseshoe) == 1
    assert within(point(3, 4), horseshoe) == 0
    assert within(point(2, 4), horseshoe) == 1


LONGITUDES, LATITUDES = st.floats(-180, 180), st.floats(-90, 90)
POINTS = st.builds(point, LONGITUDES, LATITUDES)
TRIANGLES = st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=3, max_size=3).map(
    lambda points: polygon(*points)
)


@given(POINTS, POINTS)
def test_distance_is_a_distance(one: Any, other: Any) -> None:
    meters = distance(one, other)
    assert isinstance(meters, float)
    assert 0 <= meters <= 20_040_000
    assert meters == pytest.approx(distance(other, one), rel=1e-6, abs=1e-3)
    assert distance(one, one) == 0
    (longitude, latitude), (longitude2, latitude2) = one["coordinates"], other["coordinates"]
    angle = math.acos(
        max(
            -1,
            min(
                1,
                math.sin(math.radians(latitude)) * math.sin(math.radians(latitude2))
                + math.cos(math.radians(latitude))
                * math.cos(math.radians(latitude2))
                * math.cos(math.radians(longitude - longitude2)),
            ),
        )
    )
    assert meters == pytest.approx(angle * 6_371_009, rel=0.006, abs=1)


@given(TRIANGLES, st.integers(-9, 9), st.integers(-9, 9))
def test_a_triangle_covers_what_is_on_one_side_of_all_its_edges(triangle: Any, x: int, y: int) -> None:
    a, b, c, _ = triangle["coordinates"][0]

    def side(p: list[float], q: list[float]) -> float:
        return (q[0] - p[0]) * (y - p[1]) - (q[1] - p[1]) * (x - p[0])

    area = (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
    sides = [side(a, b), side(b, c), side(c, a)]
    if area:
        assert within(point(x, y), triangle) == all(one * area >= 0 for one in sides)
        assert within(triangle, triangle) == 1
        assert intersects(point(x, y), triangle) == within(point(x, y), triangle)
