"""Geospatial functions over GeoJSON records, GeoJSON text and well-known text, for whole columns.

Distances are along the WGS 84 ellipsoid, in meters, exact to nanometers also between opposite points (Karney,
"Algorithms for geodesics", 2013, as PROJ computes them). Whether areas and lines meet is decided in the plane of
longitude and latitude (`geometries`), by exact predicates; what lies on the border is inside.
https://learn.microsoft.com/stream-analytics-query/geospatial-functions
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from tidegate.engine.functions.declarations import FunctionGroup
from tidegate.engine.functions.geometries import Geometries, geometries, meet_too_often, moved
from tidegate.engine.values.budget import MOST_EDGE_PAIRS
from tidegate.engine.values.vectors import BoolArray, Failure, FloatArray, Kind, Reason, Vector
from tidegate.sql.plan.nodes import Type

_GEOGRAPHY = FunctionGroup("Geography")

_NOT_A_GEOMETRY = Failure(Reason.OPERAND_TYPE)
_OUT_OF_DOMAIN = Failure(Reason.OUT_OF_DOMAIN)
_AREA = 2
_POINT = 0


@_GEOGRAPHY.by_columns(
    "CreatePoint",
    "latitude number, longitude number",
    Type.RECORD,
    fails="there is no such place",
    example=("CreatePoint(47.0, 8.5)", '{"type":"Point","coordinates":[8.5,47.0]}'),
)
def create_point(latitudes: Vector, longitudes: Vector) -> Vector:
    """Return a point from degrees."""
    north, east = _numbers(latitudes), _numbers(longitudes)
    usable = (np.abs(north) <= 90) & (np.abs(east) <= 180)
    if len(north) > 1 and bool((north == north[0]).all()) and bool((east == east[0]).all()):
        # The same record in every row is read once by what takes it.
        return Vector.of(_points(north[:1], east[:1], usable[:1])).take(np.zeros(len(north), dtype=np.int64))
    return Vector.of(_points(north, east, usable))


def _points(north: FloatArray, east: FloatArray, usable: BoolArray) -> list[Any]:
    rows = zip(north.tolist(), east.tolist(), usable.tolist(), strict=True)
    return [
        {"type": "Point", "coordinates": [longitude, latitude]} if there else _OUT_OF_DOMAIN
        for latitude, longitude, there in rows
    ]


def _numbers(vector: Vector) -> FloatArray:
    floats = vector.float_values()
    if Kind.BIGINT not in vector.present():
        return floats
    return np.where(vector.kinds == Kind.BIGINT, vector.int_values().astype(np.float64), floats)


@_GEOGRAPHY.by_columns(
    "CreateLineString",
    "first geography, second geography, [more geography]…",
    Type.RECORD,
    fails="an argument is no point",
    example=(
        "CreateLineString(CreatePoint(1, 2), CreatePoint(3, 4))",
        '{"type":"LineString","coordinates":[[2.0,1.0],[4.0,3.0]]}',
    ),
)
def create_line_string(*points: Vector) -> Vector:
    """Return the line through points."""
    return _of_points(points, lambda places: {"type": "LineString", "coordinates": places})


@_GEOGRAPHY.by_columns(
    "CreatePolygon",
    "first geography, second geography, third geography, last geography…",
    Type.RECORD,
    fails="an argument is no point, or the last is not the first",
    example=(
        "CreatePolygon(CreatePoint(0, 0), CreatePoint(0, 1), CreatePoint(1, 1), CreatePoint(0, 0))",
        '{"type":"Polygon","coordinates":[[[0.0,0.0],[1.0,0.0],[1.0,1.0],[0.0,0.0]]]}',
    ),
)
def create_polygon(*points: Vector) -> Vector:
    """Return the area within points, the last of which is the first."""
    return _of_points(
        points,
        lambda ring: {"type": "Polygon", "coordinates": [ring]} if ring[0] == ring[-1] else _OUT_OF_DOMAIN,
    )


def _of_points(points: tuple[Vector, ...], make: Callable[[list[Any]], Any]) -> Vector:
    """Return a record of the points of each row; the same points give the same record."""
    places = [_places(geometries(point)[0]) for point in points]
    known: dict[tuple[Any, ...], Any] = {}
    made = []
    for row in zip(*places, strict=True):
        if row not in known:
            known[row] = _NOT_A_GEOMETRY if None in row else make([[*place] for place in row])
        made.append(known[row])
    return Vector.of(made)


def _places(points: Geometries) -> list[tuple[float, float] | None]:
    """Return the longitude and latitude of each point; None for what is no point."""
    import shapely

    is_point = shapely.get_type_id(points) == _POINT
    coordinates = np.stack([shapely.get_x(points), shapely.get_y(points)], axis=1).tolist()
    return [
        (place[0], place[1]) if there else None for place, there in zip(coordinates, is_point.tolist(), strict=True)
    ]


@_GEOGRAPHY.by_columns(
    "ST_DISTANCE",
    "one geography, other geography",
    Type.FLOAT,
    fails="an argument is no geography or exceeds a limit, or a latitude is beyond 90 degrees",
    example=("ST_DISTANCE('POINT (8 47)', 'POINT (8 47)')", "0.0"),
)
def distance(one: Vector, other: Vector) -> Vector:
    """Return the meters between two points; 0 if one is a polygon or a line."""
    import shapely

    (first, beyond_first), (second, beyond_second) = geometries(one), geometries(other)
    meters = np.zeros(len(one))
    rows = np.flatnonzero((shapely.get_type_id(first) == _POINT) & (shapely.get_type_id(second) == _POINT))
    if len(rows):
        ends = [
            place for points in (first[rows], second[rows]) for place in (shapely.get_x(points), shapely.get_y(points))
        ]
        meters[rows] = _ellipsoid().inv(*ends)[2]
    impossible = ~np.isfinite(meters)
    results = Vector.of_floats(np.where(impossible, 0.0, meters))
    results = results.failing(impossible, Reason.OUT_OF_DOMAIN).failing(
        _no_geometry(first, second), Reason.OPERAND_TYPE
    )
    return results.failing(beyond_first | beyond_second, Reason.LIMIT)


@_GEOGRAPHY.by_columns(
    "ST_INTERSECTS",
    "one geography, other geography",
    Type.BIGINT,
    fails="an argument is no geography, or exceeds a limit",
    example=("ST_INTERSECTS('LINESTRING (0 0, 2 2)', 'LINESTRING (0 2, 2 0)')", "1"),
)
def intersects(one: Vector, other: Vector) -> Vector:
    """Return 1 if the two have a point in common, else 0."""
    return _decided(one, other, _meet)


@_GEOGRAPHY.by_columns(
    "ST_OVERLAPS",
    "one geography, other geography",
    Type.BIGINT,
    fails="an argument is no geography, or exceeds a limit",
    example=("ST_OVERLAPS('POLYGON ((0 0, 2 0, 2 2, 0 0))', 'POLYGON ((1 0, 3 0, 3 2, 1 0))')", "1"),
)
def overlaps(one: Vector, other: Vector) -> Vector:
    """Return 1 if two polygons have points in common and neither is within the other, else 0."""
    return _decided(
        one,
        other,
        lambda first, second: _meet(first, second) & ~_is_within(first, second) & ~_is_within(second, first),
    )


@_GEOGRAPHY.by_columns(
    "ST_WITHIN",
    "one geography, other geography",
    Type.BIGINT,
    fails="an argument is no geography, or exceeds a limit",
    example=("ST_WITHIN('POINT (1 1)', 'POLYGON ((0 0, 3 0, 3 3, 0 0))')", "1"),
)
def within(one: Vector, other: Vector) -> Vector:
    """Return 1 if all of the first lies in the second, else 0."""
    return _decided(one, other, _is_within)


def _decided(one: Vector, other: Vector, predicate: Callable[[Geometries, Geometries], BoolArray]) -> Vector:
    (first, beyond_first), (second, beyond_second) = geometries(one), geometries(other)
    beyond = beyond_first | beyond_second | _meet_too_often(first, second)
    first[beyond] = None
    found = Vector.bigints(predicate(first, second).astype(np.int64))
    return found.failing(_no_geometry(first, second), Reason.OPERAND_TYPE).failing(beyond, Reason.LIMIT)


def _meet_too_often(first: Geometries, second: Geometries) -> BoolArray:
    """Return the rows whose two geometries have more edges that may meet than a row may spend time on."""
    import shapely

    pairs = shapely.get_num_coordinates(first).astype(np.int64) * shapely.get_num_coordinates(second)
    beyond: BoolArray = np.zeros(len(pairs), dtype=np.bool_)
    for row in np.flatnonzero(pairs > MOST_EDGE_PAIRS).tolist():
        beyond[row] = meet_too_often(first[row], second[row])
    return beyond


def _meet(first: Geometries, second: Geometries) -> BoolArray:
    import shapely

    return _also_across_the_date_line(shapely.intersects, second, first)


def _is_within(first: Geometries, second: Geometries) -> BoolArray:
    """Return which of the first lie in the second, which must be areas; the areas are prepared."""
    import shapely

    areas = shapely.get_dimensions(second) == _AREA
    inside: BoolArray = areas & _also_across_the_date_line(shapely.covers, second, first)
    return inside


def _also_across_the_date_line(
    predicate: Callable[[Geometries, Geometries], BoolArray], first: Geometries, second: Geometries
) -> BoolArray:
    """Return a predicate of geometries, for which longitudes −180 and 180 are the same."""
    import shapely

    result = predicate(first, second)
    bounds, others = shapely.bounds(first), shapely.bounds(second)
    for degrees, near in (
        (-360.0, (others[:, 2] >= 180) & (bounds[:, 0] <= -180)),
        (360.0, (others[:, 0] <= -180) & (bounds[:, 2] >= 180)),
    ):
        rows = np.flatnonzero(near & ~result)
        if len(rows):
            result[rows] = predicate(first[rows], moved(second[rows], degrees))
    return result


def _no_geometry(first: Geometries, second: Geometries) -> BoolArray:
    import shapely

    missing: BoolArray = shapely.is_missing(first) | shapely.is_missing(second)
    return missing


@cache
def _ellipsoid() -> Any:
    from pyproj import Geod

    return Geod(ellps="WGS84")
