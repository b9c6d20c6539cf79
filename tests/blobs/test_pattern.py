"""Names that fit a path, and what they say."""

from pathlib import Path

import pytest

from tidegate.blobs import BlobError, PathPattern, PatternError, open_source
from tidegate.blobs.object_store import BlobGone


@pytest.mark.parametrize(
    ("pattern", "name", "partition", "time"),
    [
        ("/d/*.json", "x.json", None, None),
        ("/d/**/*.json", "a/b/x.json", None, None),
        ("/d/**/*.json", "x.json", None, None),
        ("az://c/in/{partition}/*", "in/12/x", "12", None),
        ("/d/{date}/{time}/x.csv", "2026-01-02/03-04/x.csv", None, (20_455 * 86_400 + 3 * 3600 + 240) * 10**7),
        ("/d/{date}/x.csv", "1970-01-02/x.csv", None, 86_400 * 10**7),
        ("az://c/in/{date}", "in/1970-01-02/05/x.csv", None, 86_400 * 10**7),
        ("az://c/in/{date}", "in/1970-01-02", None, 86_400 * 10**7),
        ("az://c/in/{date}/{partition}", "in/1970-01-02/7/x.csv", "7", 86_400 * 10**7),
    ],
)
def test_a_name_that_fits_says_where_and_when(pattern: str, name: str, partition: str | None, time: int | None) -> None:
    place = PathPattern.parse(pattern).place(name)
    assert place is not None
    assert (place.partition, place.time) == (partition, time)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("/d/*.json", "a/x.json"),
        ("/d/?.json", "xy.json"),
        ("/d/{partition}/x", "a/x"),
        ("/d/{date}/x.csv", "2026-02-30/x.csv"),
        ("/d/{date}/x.csv", "2026-2-3/x.csv"),
        ("az://c/in", "inside/x"),
        ("az://c/in/{partition}", "in/7a/x"),
    ],
)
def test_a_name_that_does_not_fit_is_left_out(pattern: str, name: str) -> None:
    assert PathPattern.parse(pattern).place(name) is None


def test_forms_of_date_and_time() -> None:
    pattern = PathPattern.parse("/d/{date}/{time}.csv", "DD/MM/YYYY", "HH")
    place = pattern.place("02/01/1970/05.csv")
    assert place is not None
    assert place.time == 29 * 3600 * 10**7


@pytest.mark.parametrize("pattern", ["/d/{time}/x", "/d/{date}/{date}", "/d/{day}/x"])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        PathPattern.parse(pattern)


def test_files_of_a_folder(tmp_path: Path) -> None:
    for name in ("a.json", "b/c.json", ".hidden.json", "_temporary/x.json", "b/_SUCCESS"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")

    def names(pattern: str) -> list[str]:
        parsed = PathPattern.parse(f"{tmp_path}{pattern}")
        return sorted(blob.name for blob, _ in parsed.find(open_source(parsed.root)))

    assert names("") == ["a.json", "b/c.json"]
    assert names("/*.json") == ["a.json"]
    assert names("/**/*.json") == ["a.json", "b/c.json"]
    assert names("/b/*") == ["c.json"]
    (tmp_path / "2026-01-02" / "deep").mkdir(parents=True)
    (tmp_path / "2026-01-02" / "deep" / "d.json").write_text("{}")
    assert names("/{date}") == ["2026-01-02/deep/d.json"]
    assert names("/a.json") == ["a.json"]
    assert names("/none.json") == []
    with pytest.raises(BlobError, match="there is no folder"):
        names("/none/*")


def test_a_file_that_has_changed_is_not_read_for_the_one_it_was(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    source = open_source(str(tmp_path))
    (blob,) = source.list("")
    assert source.read_blob(blob) == b"1"
    (tmp_path / "a").write_text("12")
    with pytest.raises(BlobGone, match="has changed"):
        source.read_blob(blob)
    (tmp_path / "a").unlink()
    with pytest.raises(BlobGone, match="not there any more"):
        source.read_blob(blob)
