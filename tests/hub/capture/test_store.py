"""Destinations: a folder takes a file whole."""

import os
from pathlib import Path

import pytest

from tidegate.hub.capture.store import Folder, StoreError, open_store


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
