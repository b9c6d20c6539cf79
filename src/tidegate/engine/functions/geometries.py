"""Geometries from GeoJSON records, GeoJSON text and well-known text, as shapely has them.

All kinds are read: points, lines and polygons with holes, several of them, and collections. A ring may lack its last
point. Coordinates are longitude and latitude in degrees. Edges are straight in their plane, and go the short way around
the globe: from 170 to −170 across the date line. What crosses it is cut there, and a ring around a pole contains it. A
ring encloses its area whichever way it is walked; one that crosses itself encloses what a ray from it crosses an odd
number of times.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from math import isfinite
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from tidegate.engine.values.budget import MOST_CROSSINGS, MOST_EDGE_PAIRS, MOST_VERTICES
from tidegate.engine.values.vectors import BoolArray, Vector

Geometries = npt.NDArray[np.object_]

_DEEPEST = 16
_MOST_SHIFTS = 8
_NEIGHBOURS = 3  # an edge meets itself, the one before it and the one after it
_MOST_PAIRS = 5_000_000  # looked at together
_LONGEST_KEPT = 16_384  # characters of a text whose geometry is kept for later rows
TOO_MUCH_WORK: Final = "too much work"
"""Stands for a geometry that exceeds a limit."""
_PARTS = {
    "multipoint": "point",
    "multilinestring": "linestring",
    "multipolygon": "polygon",
}
_TOKEN = re.compile(r"\s*(?:(?P<word>[A-Za-z]+)|(?P<sign>[(),])|(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?))")


class _NoGeometryError(Exception):
    """A value is no geometry."""


class _TooMuchWorkError(_NoGeometryError):
    """A geometry has more vertices, or crosses itself more often, than a row may spend time on."""


def geometries(vector: Vector) -> tuple[Geometries, BoolArray]:
    """Return the geometry of each value, None where it is none, and which values exceed a limit and have none either.

    Equal texts and the same record give the same geometry.
    """
    import shapely

    beyond = np.zeros(len(vector), dtype=np.bool_)
    made: Geometries = np.full(len(vector), None, dtype=object)
    rows: list[int] = []
    longitudes: list[float] = []
    latitudes: list[float] = []
    known: dict[Any, Any] = {}
    for row, value in enumerate(vector.to_list()):
        if type(value) is dict:
            place: Any = value.get("coordinates")
            if value.get("type") == "Point" and _are_two_floats(place):
                rows.append(row)
                longitudes.append(place[0])
                latitudes.append(place[1])
                continue
            # A constant is the same record in every row.
            key: Any = id(value)
        elif type(value) is str:
            key = value
        else:
            continue
        if key not in known:
            known[key] = geometry(value)
        if known[key] is TOO_MUCH_WORK:
            beyond[row] = True
        else:
            made[row] = known[key]
    if rows:
        made[rows] = shapely.points(_around(np.array(longitudes)), np.array(latitudes))
    return made, beyond


def _are_two_floats(place: Any) -> bool:
    return type(place) is list and len(place) == 2 and type(place[0]) is float and type(place[1]) is float


def geometry(value: Any) -> Any:
    """Return a record or text as a geometry of shapely; None if it is none."""
    if isinstance(value, str):
        return _of_short_text(value) if len(value) <= _LONGEST_KEPT else _of_text(value)
    return _tried(_of_record, value, 0)


def _tried(make: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a call makes, `TOO_MUCH_WORK`, or None if it makes no geometry."""
    from shapely.errors import GEOSException

    try:
        return make(*arguments)
    except _TooMuchWorkError:
        return TOO_MUCH_WORK
    except (_NoGeometryError, msgspec.DecodeError, RecursionError, GEOSException):
        # GEOS cannot intersect some areas whose coordinates differ by many orders of magnitude.
        return None


@lru_cache(maxsize=4096)
def _of_short_text(text: str) -> Any:
    return _of_text(text)


def _of_text(text: str) -> Any:
    if text.lstrip().startswith("{"):
        return _tried(lambda: _of_record(msgspec.json.decode(text), 0))
    return _tried(_of_well_known_text, text)


def _of_record(value: Any, depth: int) -> Any:
    if not isinstance(value, dict) or depth > _DEEPEST:
        raise _NoGeometryError
    fields = {name.lower(): inner for name, inner in value.items()}
    kind = str(fields.get("type")).lower()
    if kind == "geometrycollection":
        members = fields.get("geometries")
        if not isinstance(members, list):
            raise _NoGeometryError
        return _collected([_of_record(member, depth + 1) for member in members])
    return _made(kind, fields.get("coordinates"))


# Well-known text ------------------------------------------------------------------------------------------------------


def _of_well_known_text(text: str) -> Any:
    tokens = list(_tokens(text))
    made, end = _read_geometry(tokens, 0, 0)
    if end != len(tokens):
        raise _NoGeometryError
    return made


def _tokens(text: str) -> Iterator[str | float]:
    place, end = 0, len(text.rstrip())
    while place < end:
        match = _TOKEN.match(text, place, end)
        if match is None:
            raise _NoGeometryError
        place = match.end()
        yield float(match["number"]) if match["number"] else (match["word"] or match["sign"]).lower()


def _read_geometry(tokens: Sequence[str | float], at: int, depth: int) -> tuple[Any, int]:
    """Read a geometry that begins at a token, and return it with the place after it."""
    if depth > _DEEPEST or at >= len(tokens) or not isinstance(tokens[at], str):
        raise _NoGeometryError
    kind = str(tokens[at])
    at += 1
    if at < len(tokens) and tokens[at] in ("z", "m", "zm"):
        at += 1
    if kind != "geometrycollection":
        inner, at = _read_coordinates(tokens, at, depth)
        if kind == "point" and len(inner) == 1:
            inner = inner[0]
        if kind == "multipoint":
            # The parentheses around each point are optional.
            inner = [point[0] if point and isinstance(point[0], list) else point for point in inner]
        return _made(kind, inner), at
    members = []
    _expect(tokens, at, "(")
    while True:
        member, at = _read_geometry(tokens, at + 1, depth + 1)
        members.append(member)
        if at >= len(tokens) or tokens[at] != ",":
            break
    _expect(tokens, at, ")")
    return _collected(members), at + 1


def _read_coordinates(tokens: Sequence[str | float], at: int, depth: int) -> tuple[list[Any], int]:
    """Read a list in parentheses, of lists or of points, and return it with the place after it."""
    if depth > _DEEPEST:
        raise _NoGeometryError
    _expect(tokens, at, "(")
    found: list[Any] = []
    while True:
        at += 1
        if at < len(tokens) and tokens[at] == "(":
            inner, at = _read_coordinates(tokens, at, depth + 1)
            found.append(inner)
        else:
            point = []
            while at < len(tokens) and isinstance(tokens[at], float):
                point.append(tokens[at])
                at += 1
            found.append(point)
        if at >= len(tokens) or tokens[at] != ",":
            break
    _expect(tokens, at, ")")
    return found, at + 1


def _expect(tokens: Sequence[str | float], at: int, sign: str) -> None:
    if at >= len(tokens) or tokens[at] != sign:
        raise _NoGeometryError


# Geometries of coordinates --------------------------------------------------------------------------------------------


def _made(kind: str, coordinates: Any) -> Any:
    import shapely

    if not isinstance(coordinates, list):
        raise _NoGeometryError
    match kind:
        case "point":
            return shapely.points(_places([coordinates], 1))[0]
        case "linestring":
            return _within_the_globe(shapely.linestrings(_the_short_way(_places(coordinates, 2))))
        case "polygon":
            # A single ring may be given without the list of rings.
            flat = bool(coordinates) and isinstance(coordinates[0], list) and not isinstance(coordinates[0][:1], list)
            rings = [coordinates] if flat or _is_ring(coordinates) else coordinates
            return _polygon([_ring(ring) for ring in rings])
        case _ if kind in _PARTS:
            return _collected([_made(_PARTS[kind], part) for part in coordinates])
    raise _NoGeometryError


def _is_ring(value: list[Any]) -> bool:
    first = value[0] if value else None
    return isinstance(first, list) and bool(first) and type(first[0]) in (int, float)


def _places(points: Any, least: int) -> npt.NDArray[np.float64]:
    """Return float64[n, 2], the longitudes and latitudes of points."""
    if not isinstance(points, list) or len(points) < least:
        raise _NoGeometryError
    if len(points) > MOST_VERTICES:
        raise _TooMuchWorkError
    for point in points:
        if not isinstance(point, list) or len(point) < 2:
            raise _NoGeometryError
        for number in point[:2]:
            if type(number) not in (int, float) or not isfinite(number):
                raise _NoGeometryError
    places = np.array([[float(point[0]), float(point[1])] for point in points])
    places[:, 0] = _around(places[:, 0])
    return places


def _around(longitudes: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return longitudes between −180 and 180; those that are there already are kept to the bit."""
    beyond = np.abs(longitudes) > 180
    return np.where(beyond, (longitudes + 180) % 360 - 180, longitudes) if beyond.any() else longitudes


def _ring(points: Any) -> npt.NDArray[np.float64]:
    places = _places(points, 3)
    return places if bool((places[0] == places[-1]).all()) else np.concatenate([places, places[:1]])


def _the_short_way(places: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return places whose longitudes continue beyond 180 where an edge crosses the date line.

    An edge all around the globe, from −180 to 180, is kept: it is how areas of all longitudes are written.
    """
    steps = np.diff(places[:, 0])
    turns = np.where((steps > 180) & (steps < 360), -360.0, np.where((steps < -180) & (steps > -360), 360.0, 0.0))
    if not turns.any():
        return places
    moved = places.copy()
    moved[1:, 0] += np.cumsum(turns)
    return moved


def _polygon(rings: Sequence[npt.NDArray[np.float64]]) -> Any:
    import shapely

    if not rings:
        raise _NoGeometryError
    parts = []
    sizes = list(map(len, rings))
    if max(sizes) * (len(sizes) - 1) > MOST_EDGE_PAIRS:
        raise _TooMuchWorkError  # each hole is cut out of the shell
    for ring in rings:
        way = _the_short_way(ring)
        if way[0, 0] != way[-1, 0]:
            # It goes around a pole, the one that is nearer.
            pole = 90.0 if way[:, 1].mean() >= 0 else -90.0
            way = np.concatenate([way, [[way[-1, 0], pole], [way[0, 0], pole], way[0]]])
        if len(way) < 4:
            raise _NoGeometryError
        parts.append(_within_the_globe(_valid(shapely.polygons(way))))
    shell, *holes = parts
    if holes and _cross_too_often(parts):
        raise _TooMuchWorkError
    for hole in holes:
        shell = shapely.difference(shell, hole)
    shapely.prepare(shell)
    return shell


def _valid(one: Any) -> Any:
    import shapely

    if shapely.get_num_coordinates(one) ** 2 > MOST_EDGE_PAIRS:
        edges = _edge_boxes(one)
        if _more_meet(edges, edges, MOST_EDGE_PAIRS):
            raise _TooMuchWorkError  # each of these pairs is looked at, whether it crosses or not
    if shapely.is_valid(one):
        return one
    if _cross_too_often([one]):
        raise _TooMuchWorkError
    return shapely.make_valid(one, method="linework")


def _cross_too_often(parts: Sequence[Any]) -> bool:
    """Return whether the edges of geometries meet more often than can be computed quickly, by their bounding boxes."""
    import shapely

    count = int(shapely.get_num_coordinates(parts).sum())
    most = count * _NEIGHBOURS + 2 * MOST_CROSSINGS
    if count**2 <= most:
        return False
    edges = np.concatenate([_edge_boxes(part) for part in parts])
    return _more_meet(edges, edges, most)


def meet_too_often(one: Any, other: Any) -> bool:
    """Return whether more edges of one geometry may meet those of another than a row may spend time on."""
    import shapely

    boxes = _edge_boxes(one), _edge_boxes(other)
    near = [_near(own, shapely.bounds(against)) for own, against in zip(boxes, (other, one), strict=True)]
    return len(near[0]) * len(near[1]) > MOST_EDGE_PAIRS and _more_meet(near[0], near[1], MOST_EDGE_PAIRS)


def _edge_boxes(one: Any) -> npt.NDArray[np.float64]:
    """Return float64[n, 4], west, south, east and north of each edge."""
    import shapely

    places = shapely.get_coordinates(one)
    return np.concatenate([np.minimum(places[:-1], places[1:]), np.maximum(places[:-1], places[1:])], axis=1)


def _near(boxes: npt.NDArray[np.float64], bounds: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the boxes that meet another one."""
    return boxes[(boxes[:, :2] <= bounds[2:]).all(axis=1) & (boxes[:, 2:] >= bounds[:2]).all(axis=1)]


def _more_meet(ones: npt.NDArray[np.float64], others: npt.NDArray[np.float64], most: int) -> bool:
    """Return whether more than ``most`` pairs of boxes meet."""
    import shapely

    if not len(ones):
        return False
    tree, found = shapely.STRtree(shapely.box(*ones.T)), 0
    together = max(_MOST_PAIRS // len(ones), 1)
    for first in range(0, len(others), together):
        found += tree.query(shapely.box(*others[first : first + together].T)).shape[1]
        if found > most:
            return True
    return False


def _within_the_globe(one: Any) -> Any:
    """Return a geometry with what lies beyond −180 or 180 moved to where it is."""
    import shapely

    west, _, east, _ = shapely.bounds(one).tolist()
    if west >= -180 and east <= 180:
        return one
    if _cross_too_often([one]):
        raise _TooMuchWorkError
    globe = shapely.box(-180, -90, 180, 90)
    turns = range(max(int((west + 180) // 360), -_MOST_SHIFTS), min(int((east + 180) // 360), _MOST_SHIFTS) + 1)
    pieces = [shapely.intersection(moved(one, -360.0 * turn), globe) for turn in turns]
    pieces = [piece for piece in pieces if not shapely.is_empty(piece)]
    if _cross_too_often(pieces):
        raise _TooMuchWorkError
    return shapely.union_all(pieces)


def moved(one: Any, degrees: float) -> Any:
    """Return geometries moved to the east."""
    import shapely

    return shapely.transform(one, lambda places: places + np.array([degrees, 0.0]))


def _collected(parts: Sequence[Any]) -> Any:
    import shapely

    if not parts:
        raise _NoGeometryError
    if len(parts) == 1:
        return parts[0]
    if int(shapely.get_num_coordinates(parts).sum()) > MOST_VERTICES or _cross_too_often(parts):
        raise _TooMuchWorkError
    return shapely.union_all(list(parts))
