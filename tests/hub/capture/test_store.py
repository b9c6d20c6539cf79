"""Destinations: a folder takes a file whole."""

import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from tidegate.hub.capture.description import CaptureDescription
from tidegate.hub.capture.store import Folder, StoreError, changed_capture, open_store


@pytest.fixture
def content(tmp_path: Path) -> Path:
    path = tmp_path / "content"
    path.write_bytes(b"content")
    return path


def test_a_folder_is_made_when_it_is_needed(tmp_path: Path, content: Path) -> None:
    store = open_store(str(tmp_path / "archive"))
    assert store.head("a/b/c.avro", 3) is None
    assert not (tmp_path / "archive").exists()
    store.put("a/b/c.avro", content)
    assert store.head("a/b/c.avro", 3) == b"con"
    assert store.head("a/b/c.avro", 100) == b"content"
    assert [path.name for path in (tmp_path / "archive").rglob("*") if path.is_file()] == ["c.avro"]


def test_a_url_may_name_a_folder(tmp_path: Path, content: Path) -> None:
    open_store(f"file://{tmp_path}/archive").put("x.avro", content)
    assert (tmp_path / "archive" / "x.avro").read_bytes() == b"content"


def test_a_file_appears_whole(tmp_path: Path, content: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", interrupted)
    store = Folder(tmp_path / "archive")
    with pytest.raises(StoreError, match=r"x\.avro cannot be written: No space left on device"):
        store.put("x.avro", content)
    assert store.head("x.avro", 10) is None
    assert not list((tmp_path / "archive").iterdir()), "what was written before takes the space that is missing"


def test_what_is_in_the_way_of_a_folder_is_said(tmp_path: Path, content: Path) -> None:
    with pytest.raises(StoreError, match="cannot be written"):
        Folder(content).put("x.avro", content)
    assert Folder(content).head("x.avro", 10) is None
    (tmp_path / "archive" / "x.avro").mkdir(parents=True)
    with pytest.raises(StoreError, match="cannot be read"):
        Folder(tmp_path / "archive").head("x.avro", 10)


def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(StoreError, match="nowhere://archive cannot be used"):
        open_store("nowhere://archive", {})


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

    monkeypatch.setattr("tidegate.hub.capture.store.open_store", without_extra)
    with pytest.raises(StoreError, match="capture"):
        changed_capture(None, {"destination": "s3://bucket"})
