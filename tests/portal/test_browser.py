"""Every page in a real browser: its main task, no console errors, no serious axe-core findings, two widths.

The pictures stay in the folder that TIDEGATE_PICTURES names, for somebody to look at.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.portal.conftest import KEY
from tidegate.server import Server

BROWSER = Path(__file__).parent / "browser"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
LONGEST_S = 300
SCENARIOS = (
    "overview",
    "send-and-browse",
    "follow-a-generator",
    "send-by-keyboard",
    "browse-from-positions",
    "hub",
    "delete",
    "missing",
    "sign-in",
)


@pytest.fixture(scope="module")
def visited(server: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Run all scenarios in one browser, and return what went wrong in each."""
    chromium = next(filter(None, map(shutil.which, CHROMIUM)), None)
    assert chromium, "no Chromium: run `scripts/need chromium`"
    pictures = Path(os.environ.get("TIDEGATE_PICTURES") or tmp_path_factory.mktemp("pictures")).absolute()
    pictures.mkdir(exist_ok=True)
    port = server.http_port
    settings = {
        "url": f"http://127.0.0.1:{port}",
        "away": f"http://portal.test:{port}",
        "key": KEY,
        "chromiumPath": chromium,
        "pictures": str(pictures),
    }
    done = subprocess.run(
        ["node", "hub_pages.mjs", json.dumps(settings)],
        cwd=BROWSER,
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_S,
    )
    assert done.returncode == 0, done.stderr
    return {one["name"]: one["problems"] for one in json.loads(done.stdout)}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_page_does_its_task_without_a_problem(visited: dict[str, Any], scenario: str) -> None:
    assert visited[scenario] == []


def test_every_scenario_is_tested(visited: dict[str, Any]) -> None:
    assert set(visited) == set(SCENARIOS)


def test_the_bundle_is_what_the_lock_file_builds(tmp_path: Path) -> None:
    root = BROWSER.parent.parent.parent
    subprocess.run(["node", "build.mjs", str(tmp_path / "built")], cwd=root / "frontend", check=True, timeout=120)
    static = root / "src" / "tidegate" / "portal" / "static"
    assert {path.name: path.read_bytes() for path in (tmp_path / "built").iterdir()} == {
        path.name: path.read_bytes() for path in static.iterdir()
    }
