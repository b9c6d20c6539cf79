"""A change of a hub's capture: what it leaves alone, and what it refuses."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from tidegate.hub.capture.changes import changed_capture
from tidegate.hub.capture.description import CaptureDescription
from tidegate.hub.capture.store import StoreError


def test_a_change_leaves_the_other_settings_alone() -> None:
    former = CaptureDescription(destination="/archive", interval_in_seconds=60)
    changed = changed_capture(former, {"size_limit_in_bytes": 10_485_760, "interval_in_seconds": None})
    assert changed == CaptureDescription(destination="/archive", interval_in_seconds=60, size_limit_in_bytes=10_485_760)


def test_a_folder_is_absolute_also_one_that_was_inherited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    default = CaptureDescription(destination="archive")
    assert changed_capture(default, {}).destination == str(tmp_path / "archive")
    assert changed_capture(None, {"destination": "other"}).destination == str(tmp_path / "other")
    assert changed_capture(None, {"destination": "file:///archive"}).destination == "file:///archive"


def test_a_place_that_cannot_be_used_is_refused_unless_capture_is_off() -> None:
    with pytest.raises(StoreError):
        changed_capture(None, {"destination": "nothing://x"})
    assert not changed_capture(None, {"destination": "nothing://x", "enabled": False}).enabled


def test_capture_needs_a_destination() -> None:
    with pytest.raises(ValidationError, match="destination"):
        changed_capture(None, {"enabled": True})


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_extra(_destination: str) -> None:
        raise ModuleNotFoundError('install "tidegate[capture]"')

    monkeypatch.setattr("tidegate.hub.capture.changes.open_store", without_extra)
    with pytest.raises(StoreError, match="capture"):
        changed_capture(None, {"destination": "s3://bucket"})
