"""Geospatial functions over GeoJSON records, GeoJSON text and well-known text.

Distances are along the WGS 84 ellipsoid, in meters, by Vincenty's inverse formula ("Direct and Inverse Solutions of
Geodesics on the Ellipsoid", Survey Review 1975); for points nearly opposite each other, where that does not converge,
along a sphere. Whether areas and lines meet is decided in the plane of longitude and latitude: edges are straight
there, a ring encloses the finite area whichever way it is walked, and what lies on the border is inside.
https://learn.microsoft.com/stream-analytics-query/geospatial-functions
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import msgspec

from tidegate.engine.functions.declarations import Group
from tidegate.engine.values.vectors import Failure, Reason
from tidegate.saql.plan.nodes import Type

_GEOGRAPHY = Group("Geography")

Point = tuple[float, float]
"""Longitude and latitude in degrees."""

_NOT_A_GEOMETRY = Failure(Reason.OPERAND_TYPE)
_OUT_OF_DOMAIN = Failure(Reason.OUT_OF_DOMAIN)

_EQUATORIAL_RADIUS_M = 6_378_137.0
_FLATTENING = 1 / 298.257223563
_POLAR_RADIUS_M = _EQUATORIAL_RADIUS_M * (1 - _FLATTENING)
_MEAN_RADIUS_M = (2 * _EQUATORIAL_RADIUS_M + _POLAR_RADIUS_M) / 3
_MOST_ITERATIONS = 200

_WELL_KNOWN_TEXT = re.compile(r"\s*(POINT|LINESTRING|POLYGON)\s*(\(.*\))\s*", re.IGNORECASE | re.DOTALL)
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_COORDINATES = re.compile(rf"\s*({_NUMBER})\s+({_NUMBER})\s*")


@dataclass(frozen=True, slots=True)
class Geometry:
    """A point, a line or a ring; ``points`` of a ring end where they begin."""

    kind: str
    points: tuple[Point, ...]

    def edges(self) -> Iterator[tuple[Point, Point]]:
        """The stretches between neighbouring points."""
        return pairwise(self.points)


@_GEOGRAPHY.by_rows(
    "CreatePoint",
    "latitude number, longitude number",
    Type.RECORD,
    fails="there is no such place",
    example=("CreatePoint(47.0, 8.5)", '{"type":"Point","coordinates":[8.5,47.0]}'),
)
def create_point(latitude: float, longitude: float) -> Any:
    """Return a point from degrees."""
    if not (-90 <= latitude <= 90 and -180 <= longitude <= 180):
        return _OUT_OF_DOMAIN
    return {"type": "Point", "coordinates": [float(longitude), float(latitude)]}


@_GEOGRAPHY.by_rows(
    "CreateLineString",
    "first geography, second geography, [more geography]…",
    Type.RECORD,
    fails="an argument is no point",
    example=(
        "CreateLineString(CreatePoint(1, 2), CreatePoint(3, 4))",
        '{"type":"LineString","coordinates":[[2.0,1.0],[4.0,3.0]]}',
    ),
)
def create_line_string(*points: Any) -> Any:
    """Return the line through points."""
    geometries = [geometry(point) for point in points]
    if any(one is None or one.kind != "point" for one in geometries):
        return _NOT_A_GEOMETRY
    return {"type": "LineString", "coordinates": [list(one.points[0]) for one in geometries if one is not None]}


@_GEOGRAPHY.by_rows(
    "CreatePolygon",
    "first geography, second geography, third geography, last geography…",
    Type.RECORD,
    fails="an argument is no point, or the last is not the first",
    example=(
        "CreatePolygon(CreatePoint(0, 0), CreatePoint(0, 1), CreatePoint(1, 1), CreatePoint(0, 0))",
        '{"type":"Polygon","coordinates":[[[0.0,0.0],[1.0,0.0],[1.0,1.0],[0.0,0.0]]]}',
    ),
)
def create_polygon(*points: Any) -> Any:
    """Return the area within points, the last of which is the first."""
    line = create_line_string(*points)
    if isinstance(line, Failure):
        return line
    ring = line["coordinates"]
    if len(ring) < 4 or ring[0] != ring[-1]:
        return _OUT_OF_DOMAIN
    return {"type": "Polygon", "coordinates": [ring]}


@_GEOGRAPHY.by_rows(
    "ST_DISTANCE",
    "one geography, other geography",
    Type.FLOAT,
    fails="an argument is no geography",
    example=("ST_DISTANCE('POINT (8 47)', 'POINT (8 47)')", "0.0"),
)
def distance(one: Any, other: Any) -> float | Failure:
    """Return the meters between two points; 0 if one is a polygon or a line."""
    first, second = geometry(one), geometry(other)
    if first is None or second is None:
        return _NOT_A_GEOMETRY
    if first.kind != "point" or second.kind != "point":
        return 0.0
    return _meters(first.points[0], second.points[0])


@_GEOGRAPHY.by_rows(
    "ST_INTERSECTS",
    "one geography, other geography",
    Type.BIGINT,
    fails="an argument is no geography",
    example=("ST_INTERSECTS('LINESTRING (0 0, 2 2)', 'LINESTRING (0 2, 2 0)')", "1"),
)
def intersects(one: Any, other: Any) -> int | Failure:
    """Return 1 if the two have a point in common, else 0."""
    first, second = geometry(one), geometry(other)
    if first is None or second is None:
        return _NOT_A_GEOMETRY
    return int(_meet(first, second))


@_GEOGRAPHY.by_rows(
    "ST_OVERLAPS",
    "one geography, other geography",
    Type.BIGINT,
    fails="an argument is no geography",
    example=("ST_OVERLAPS('POLYGON ((0 0, 2 0, 2 2, 0 0))', 'POLYGON ((1 0, 3 0, 3 2, 1 0))')", "1"),
)
def overlaps(one: Any, other: Any) -> int | Failure:
    """Return 1 if two polygons have points in common and neither is within the other, else 0."""
    first, second = geometry(one), geometry(other)
    if first is None or second is None:
        return _NOT_A_GEOMETRY
    return int(_meet(first, second) and not _is_within(first, second) and not _is_within(second, first))


@_GEOGRAPHY.by_rows(
    "ST_WITHIN",
    "one geography, other geography",
    Type.BIGINT,
    fails="an argument is no geography",
    example=("ST_WITHIN('POINT (1 1)', 'POLYGON ((0 0, 3 0, 3 3, 0 0))')", "1"),
)
def within(one: Any, other: Any) -> int | Failure:
    """Return 1 if all of the first lies in the second, else 0."""
    first, second = geometry(one), geometry(other)
    if first is None or second is None:
        return _NOT_A_GEOMETRY
    return int(_is_within(first, second))


def geometry(value: Any) -> Geometry | None:
    """A record or text as a geometry; None if it is none."""
    if isinstance(value, str):
        return _of_text(value)
    if not isinstance(value, dict):
        return None
    fields = {name.lower(): inner for name, inner in value.items()}
    kind = str(fields.get("type")).lower()
    coordinates = fields.get("coordinates")
    if kind == "polygon" and isinstance(coordinates, list) and len(coordinates) == 1:
        coordinates = coordinates[0]
    points = [coordinates] if kind == "point" else coordinates
    if not isinstance(points, list) or not all(map(_is_point, points)):
        return None
    return _checked(kind, [(float(point[0]), float(point[1])) for point in points])


@lru_cache(maxsize=4096)
def _of_text(text: str) -> Geometry | None:
    match = _WELL_KNOWN_TEXT.fullmatch(text)
    if match is None:
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return None
        return geometry(value) if isinstance(value, dict) else None
    kind, inside = match.group(1).lower(), match.group(2).strip()[1:-1].strip()
    if kind == "polygon":
        if not (inside.startswith("(") and inside.endswith(")")):
            return None
        inside = inside[1:-1]
    points = [_COORDINATES.fullmatch(pair) for pair in inside.split(",")]
    if None in points:
        return None
    return _checked(kind, [(float(point[1]), float(point[2])) for point in points if point is not None])


def _is_point(value: Any) -> bool:
    return isinstance(value, list) and len(value) >= 2 and all(type(part) in (int, float) for part in value[:2])


def _checked(kind: str, points: Sequence[Point]) -> Geometry | None:
    least = {"point": 1, "linestring": 2, "polygon": 3}.get(kind)
    if least is None or len(points) < least:
        return None
    closing = [points[0]] if kind == "polygon" and points[0] != points[-1] else []
    return Geometry(kind, (*points, *closing))


# In the plane ---------------------------------------------------------------------------------------------------------


def _turn(a: Point, b: Point, c: Point) -> float:
    """Above 0 if a → b → c turns left, below 0 if right."""
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def _on_edge(point: Point, start: Point, end: Point) -> bool:
    return (
        _turn(start, end, point) == 0
        and min(start[0], end[0]) <= point[0] <= max(start[0], end[0])
        and min(start[1], end[1]) <= point[1] <= max(start[1], end[1])
    )


def _covers(ring: Geometry, point: Point) -> bool:
    """Whether a point is in a ring or on its border: a ray from it crosses the border an odd number of times."""
    inside = False
    for start, end in ring.edges():
        if _on_edge(point, start, end):
            return True
        if (start[1] > point[1]) != (end[1] > point[1]):
            left_of_edge = _turn(start, end, point) > 0
            inside ^= left_of_edge == (end[1] > start[1])
    return inside


def _cross(a: tuple[Point, Point], b: tuple[Point, Point], *, touching: bool) -> bool:
    """Whether two edges have a point in common; without ``touching``, one that is inside of both."""
    turns = _turn(*a, b[0]), _turn(*a, b[1]), _turn(*b, a[0]), _turn(*b, a[1])
    if turns[0] * turns[1] < 0 and turns[2] * turns[3] < 0:
        return True
    if not touching:
        return False
    return any(_on_edge(point, *b) for point in a) or any(_on_edge(point, *a) for point in b)


def _meet(one: Geometry, other: Geometry) -> bool:
    if any(_cross(a, b, touching=True) for a in one.edges() for b in other.edges()):
        return True
    for first, second in ((one, other), (other, one)):
        if second.kind == "polygon" and _covers(second, first.points[0]):
            return True
        if first.kind == "point" and any(_on_edge(first.points[0], *edge) for edge in second.edges()):
            return True
    return one.kind == other.kind == "point" and one.points == other.points


def _is_within(one: Geometry, ring: Geometry) -> bool:
    if ring.kind != "polygon" or not all(_covers(ring, point) for point in one.points):
        return False
    # A line between two points of the area may leave it where the border bends inwards.
    if any(_cross(a, b, touching=False) for a in one.edges() for b in ring.edges()):
        return False
    middles = [((a[0] + b[0]) / 2, (a[1] + b[1]) / 2) for a, b in one.edges()]
    return all(_covers(ring, middle) for middle in middles)


# On the ellipsoid -----------------------------------------------------------------------------------------------------


def _meters(one: Point, other: Point) -> float:
    difference = math.radians(other[0] - one[0])
    reduced = [math.atan((1 - _FLATTENING) * math.tan(math.radians(latitude))) for _, latitude in (one, other)]
    (sin1, cos1), (sin2, cos2) = ((math.sin(latitude), math.cos(latitude)) for latitude in reduced)
    longitude = difference
    for _ in range(_MOST_ITERATIONS):
        sin_longitude, cos_longitude = math.sin(longitude), math.cos(longitude)
        sin_arc = math.hypot(cos2 * sin_longitude, cos1 * sin2 - sin1 * cos2 * cos_longitude)
        if sin_arc == 0:
            return 0.0
        cos_arc = sin1 * sin2 + cos1 * cos2 * cos_longitude
        arc = math.atan2(sin_arc, cos_arc)
        sin_azimuth = cos1 * cos2 * sin_longitude / sin_arc
        cos2_azimuth = 1 - sin_azimuth**2
        cos_middle = cos_arc - 2 * sin1 * sin2 / cos2_azimuth if cos2_azimuth else 0.0
        part = _FLATTENING / 16 * cos2_azimuth * (4 + _FLATTENING * (4 - 3 * cos2_azimuth))
        inner = cos_middle + part * cos_arc * (2 * cos_middle**2 - 1)
        before = longitude
        longitude = difference + (1 - part) * _FLATTENING * sin_azimuth * (arc + part * sin_arc * inner)
        if abs(longitude - before) < 1e-12:
            return _along_ellipsoid(arc, sin_arc, cos_arc, cos2_azimuth, cos_middle)
        if abs(longitude) > math.pi:
            break
    return _along_sphere(one, other)


def _along_ellipsoid(arc: float, sin_arc: float, cos_arc: float, cos2_azimuth: float, cos_middle: float) -> float:
    square = cos2_azimuth * (_EQUATORIAL_RADIUS_M**2 - _POLAR_RADIUS_M**2) / _POLAR_RADIUS_M**2
    large = 1 + square / 16384 * (4096 + square * (-768 + square * (320 - 175 * square)))
    small = square / 1024 * (256 + square * (-128 + square * (74 - 47 * square)))
    last = small / 6 * cos_middle * (4 * sin_arc**2 - 3) * (4 * cos_middle**2 - 3)
    correction = small * sin_arc * (cos_middle + small / 4 * (cos_arc * (2 * cos_middle**2 - 1) - last))
    return _POLAR_RADIUS_M * large * (arc - correction)


def _along_sphere(one: Point, other: Point) -> float:
    (longitude1, latitude1), (longitude2, latitude2) = (tuple(map(math.radians, point)) for point in (one, other))
    half = (
        math.sin((latitude2 - latitude1) / 2) ** 2
        + math.cos(latitude1) * math.cos(latitude2) * math.sin((longitude2 - longitude1) / 2) ** 2
    )
    return 2 * _MEAN_RADIUS_M * math.asin(math.sqrt(min(half, 1.0)))
