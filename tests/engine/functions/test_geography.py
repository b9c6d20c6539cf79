"""Geospatial functions: the documents' examples, and rules that hold for all figures."""

from __future__ import annotations

import math
from typing import Any

import pytest
import shapely
from geographiclib.geodesic import Geodesic
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.streams import run
from tidegate.engine.expressions.evaluation import SCALARS
from tidegate.engine.functions.declarations import OverColumns
from tidegate.engine.functions.geometries import geometry
from tidegate.engine.values.vectors import Failure, Vector


def function(name: str) -> Any:
    """A function of columns as one of values."""
    implementation = SCALARS[name].implementation
    assert isinstance(implementation, OverColumns)

    def of_values(*values: Any) -> Any:
        (result,) = implementation.apply([Vector.of([value]) for value in values]).to_list()
        return result

    return of_values


distance, intersects, overlaps, within = map(function, ("st_distance", "st_intersects", "st_overlaps", "st_within"))


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
    "value",
    [
        *(
            "",
            "POINT()",
            "POINT(1)",
            "POLYGON(0 0, 1 1)",
            "POLYGON((0 0, 1 1))",
            "[]",
            "{",
            "POINT(1 2) 3",
            "POINT(1 2",
        ),
        *("GEOMETRYCOLLECTION()", "CIRCULARSTRING(0 0, 1 1, 2 0)", "POINT EMPTY", "POINT(1e999 2)", "(" * 10_000),
        *(
            '{"type":"Point","coordinates":[1]}',
            "GEOMETRYCOLLECTION(" * 5000,
            1,
            {},
            [],
            {"type": "Point"},
            point("a", 1),
        ),
        {"type": "Polygon", "coordinates": []},
        {"type": "GeometryCollection", "geometries": [1]},
    ],
)
def test_anything_else_is_not(value: Any) -> None:
    assert geometry(value) is None
    for of_values in (distance, intersects, overlaps, within):
        assert isinstance(of_values(value, point(0, 0)), Failure)
        assert isinstance(of_values(point(0, 0), value), Failure)
        assert of_values(None, point(0, 0)) is None


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
    assert 0 <= meters <= 20_003_932
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
    known = Geodesic.WGS84.Inverse(latitude, longitude, latitude2, longitude2)["s12"]
    assert meters == pytest.approx(known, abs=1e-6)


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


def test_opposite_points_are_half_a_meridian_apart() -> None:
    assert distance(point(0, 0), point(180, 0)) == pytest.approx(20003931.4586, abs=1e-3)
    assert distance(point(0, 0), point(179.7, 0.3)) == pytest.approx(
        Geodesic.WGS84.Inverse(0, 0, 0.3, 179.7)["s12"], abs=1e-6
    )
    assert distance("POINT (179.5 10)", "POINT (-179.5 10)") < 110_000
    assert distance("POINT (370 10)", "POINT (10 10)") == 0
    assert isinstance(distance("POINT (0 91)", "POINT (0 0)"), Failure)


RING = "(0 0, 10 0, 10 10, 0 10, 0 0)"
HOLE = "(4 4, 6 4, 6 6, 4 6, 4 4)"


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        ("POINT (2 2)", 1),
        ("POINT (5 5)", 0),
        ("POINT (4 5)", 1),
        ("LINESTRING (1 1, 9 9)", 0),
        ("LINESTRING (1 1, 9 1)", 1),
        (f"POLYGON ({HOLE})", 0),
        ("MULTIPOINT (1 1, (2 2))", 1),
        ("MULTIPOINT ((1 1), (5 5))", 0),
    ],
)
def test_a_hole_is_outside(inner: str, expected: int) -> None:
    assert within(inner, f"POLYGON ({RING}, {HOLE})") == expected


def test_areas_of_several_parts() -> None:
    text = "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 1, 0 0)), ((5 5, 6 5, 6 6, 5 6, 5 5)))"
    record = {"type": "MultiPolygon", "coordinates": [square(0, 1)["coordinates"], square(5, 6)["coordinates"]]}
    collection = {"type": "GeometryCollection", "geometries": [square(0, 1), square(5, 6), point(3, 3)]}
    for areas in (text, record, f"GEOMETRYCOLLECTION ({text}, POINT (3 3))", collection):
        assert within(point(5.5, 5.5), areas) == 1
        assert within("MULTIPOINT (0.5 0.5, 5.5 5.5)", areas) == 1
        assert within(point(2, 2), areas) == 0
        assert intersects("LINESTRING (2 2, 5.5 5.5)", areas) == 1
        assert overlaps(square(0.5, 3), areas) == 1
    assert intersects(point(3, 3), collection) == 1
    assert intersects("MULTILINESTRING ((0 5, 5 0), (7 7, 9 9))", text) == 0


def test_edges_go_the_short_way_across_the_date_line() -> None:
    fiji = polygon((177, -20), (-178, -20), (-178, -15), (177, -15))
    for inside in (point(179, -17), point(-179, -17), point(180, -17), point(-180, -17), line((178, -18), (-179, -16))):
        assert within(inside, fiji) == 1
    for outside in (point(0, -17), point(176, -17), point(-177, -17), line((178, -18), (-170, -16))):
        assert within(outside, fiji) == 0
    assert intersects(line((170, 0), (-170, 0)), line((180, -5), (180, 5))) == 1
    assert intersects(line((170, 0), (-170, 0)), line((-180, -5), (-180, 5))) == 1
    assert intersects(line((170, 0), (-170, 0)), line((0, -5), (0, 5))) == 0
    assert within(point(0, 80), polygon((-180, -90), (180, -90), (180, 90), (-180, 90))) == 1


def test_a_ring_around_a_pole_contains_it() -> None:
    arctic = polygon((0, 66), (90, 66), (180, 66), (-90, 66))
    antarctic = polygon((-90, -66), (180, -66), (90, -66), (0, -66))
    for longitude in (-180, -135, 0, 45, 179.9):
        assert [within(point(longitude, latitude), arctic) for latitude in (90, 70, 60, -70)] == [1, 1, 0, 0]
        assert [within(point(longitude, latitude), antarctic) for latitude in (-90, -70, -60, 70)] == [1, 1, 0, 0]


def test_a_ring_that_crosses_itself_encloses_its_loops() -> None:
    bow = polygon((0, 0), (4, 4), (4, 0), (0, 4))
    assert [within(point(*place), bow) for place in ((0.5, 2), (3.5, 2), (2, 3), (2, 2))] == [1, 1, 0, 1]


def test_columns_of_constants_and_of_values_give_the_same() -> None:
    sql = (
        "SELECT ST_WITHIN(CreatePoint(lat, lon), CreatePolygon(CreatePoint(0, 0), CreatePoint(0, 5), "
        "CreatePoint(5, 5), CreatePoint(5, 0), CreatePoint(0, 0))) AS inside, "
        "ST_WITHIN(CreatePoint(lat, lon), area) AS again, "
        "ST_DISTANCE(CreatePoint(lat, lon), CreatePoint(0, 0)) AS meters INTO out FROM input"
    )
    area = polygon((0, 0), (5, 0), (5, 5), (0, 5))
    rows = run(sql, [{"lat": x / 2, "lon": 3, "area": area} for x in range(-4, 14)])
    assert [row["inside"] for row in rows] == [int(0 <= x / 2 <= 5) for x in range(-4, 14)]
    assert all(row["again"] == row["inside"] for row in rows)
    assert [row["meters"] for row in rows] == [distance(point(3, x / 2), point(0, 0)) for x in range(-4, 14)]


SHAPES = st.recursive(
    st.sampled_from(["1 2", "1", "", "EMPTY", "a b", "-180 90", "1e3 1e-3", "0 0, 1 0, 1 1, 0 0", "179 0, -9 0, 0 5"]),
    lambda inner: st.lists(inner, max_size=3).map(lambda parts: f"({', '.join(parts)})"),
    max_leaves=8,
)
NAMES = st.sampled_from(["POINT", "linestring", "POLYGON Z", "MULTIPOINT", "MULTIPOLYGON", "GEOMETRYCOLLECTION", ""])
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers(-400, 400) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from(["type", "coordinates"]), inner),
    max_leaves=20,
)
KINDS = ["Point", "LineString", "Polygon", "MultiPoint", "MultiLineString", "MultiPolygon", "GeometryCollection"]
RECORDS = st.fixed_dictionaries(
    {"type": st.sampled_from(KINDS), "coordinates": JSON, "geometries": st.lists(JSON, max_size=3)}
)


@given(st.builds(str.__add__, NAMES, SHAPES) | st.text(max_size=40) | RECORDS | JSON)
def test_no_value_is_more_than_a_geometry_or_none(value: Any) -> None:
    found = geometry(value)
    assert found is None or isinstance(found, shapely.Geometry)


PLACES = st.tuples(st.floats(-180, 180), st.floats(-90, 90))


@given(st.lists(PLACES, min_size=3, max_size=8), st.lists(PLACES, min_size=2, max_size=4))
def test_whatever_is_drawn_is_decided(ring: list[tuple[float, float]], way: list[tuple[float, float]]) -> None:
    area, path = polygon(*ring), line(*way)
    assert intersects(path, area) in (0, 1)
    if within(path, area) == 1:
        assert intersects(path, area) == 1
    assert within(area, area) in (0, 1)


@given(st.builds(point, LONGITUDES, LATITUDES), st.lists(PLACES, min_size=1, max_size=3))
def test_well_known_text_is_what_the_record_is(one: Any, places: list[tuple[float, float]]) -> None:
    text = ", ".join(f"{longitude!r} {latitude!r}" for longitude, latitude in places)
    assert geometry(f"MULTIPOINT ({text})") == geometry({"type": "MultiPoint", "coordinates": [*map(list, places)]})
