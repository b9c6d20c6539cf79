"""The bundled scripts are what the lock file builds, and browsers may keep them for ever."""

from __future__ import annotations

import gzip
import hashlib
import json

from tests.portal.conftest import Client
from tests.source import ROOT
from tidegate.portal.web.rendering import asset_url, assets

STATIC = ROOT / "src" / "tidegate" / "portal" / "static"
MANIFEST = json.loads((STATIC / "manifest.json").read_text(encoding="utf-8"))
LOCK = json.loads((ROOT / "frontend" / "package-lock.json").read_text(encoding="utf-8"))["packages"]


def test_every_file_is_the_one_that_the_manifest_names() -> None:
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in STATIC.iterdir()
        if path.name not in ("manifest.json", "LICENSES.txt")
    }
    assert found == MANIFEST["files"], "run `node frontend/build.mjs`"


def test_the_bundled_libraries_are_those_of_the_lock_file_with_their_licences() -> None:
    licences = (STATIC / "LICENSES.txt").read_text(encoding="utf-8")
    for name, library in MANIFEST["libraries"].items():
        locked = LOCK[f"node_modules/{name}"]
        assert library == {"version": locked["version"], "license": locked["license"]}
        assert f"{name} {library['version']}" in licences
        assert library["license"] == "MIT"


def test_the_lock_file_names_no_host() -> None:
    assert not [name for name, package in LOCK.items() if "resolved" in package]


def test_an_asset_is_kept_by_browsers_as_long_as_it_is_the_current_one(client: Client) -> None:
    current = client.request("GET", asset_url("portal.js"), Accept_Encoding="gzip")
    assert current.status == 200
    assert "immutable" in current.headers["cache-control"]
    assert gzip.decompress(current.body) == assets()["portal.js"].content
    outdated = client.request("GET", "/assets/0123/portal.js")
    assert outdated.headers["cache-control"] == "no-cache"
    assert outdated.body == assets()["portal.js"].content
    assert client.request("GET", "/assets/0123/..%2Fmanifest.json").status == 404
    assert client.request("GET", "/assets/0123/manifest.json").status == 404
