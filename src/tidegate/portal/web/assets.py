"""The portal's scripts and styles, as `frontend/build.mjs` built them into `static`.

Their URLs hold a digest of their content, so that browsers keep them for ever and still see a new version at once.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.resources
from dataclasses import dataclass
from functools import cache

from starlette.requests import Request
from starlette.responses import Response

MEDIA_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
PREFIX = "/assets/"


@dataclass(frozen=True, slots=True)
class Asset:
    """One file with what a browser needs to know about it."""

    content: bytes
    compressed: bytes
    media_type: str
    digest: str


@cache
def assets() -> dict[str, Asset]:
    """Return the files by name."""
    found = {}
    for file in importlib.resources.files("tidegate.portal").joinpath("static").iterdir():
        media_type = MEDIA_TYPES.get("." + file.name.rpartition(".")[2])
        if media_type is not None:
            content = file.read_bytes()
            digest = hashlib.sha256(content).hexdigest()[:16]
            found[file.name] = Asset(content, gzip.compress(content, mtime=0), media_type, digest)
    return found


def asset_url(name: str) -> str:
    """Return the URL of an asset. Raises KeyError if there is none of that name."""
    return f"{PREFIX}{assets()[name].digest}/{name}"


def style_sheet(name: str) -> str:
    """Return a style sheet for a style element. A page that has it inside is painted without a second request.

    Raises KeyError if there is none of that name.
    """
    return assets()[name].content.decode()


async def serve_asset(request: Request) -> Response:
    """Answer a request for an asset; an outdated digest gets the current content, to be asked for again."""
    asset = assets().get(request.path_params["name"])
    if asset is None:
        return Response("no such file", status_code=404, media_type="text/plain")
    is_current = request.path_params["digest"] == asset.digest
    headers = {
        "Cache-Control": "public, max-age=31536000, immutable" if is_current else "no-cache",
        "X-Content-Type-Options": "nosniff",
        "Vary": "Accept-Encoding",
    }
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(asset.compressed, media_type=asset.media_type, headers=headers | {"Content-Encoding": "gzip"})
    return Response(asset.content, media_type=asset.media_type, headers=headers)
