"""A checked document is read back as written, or refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.durable_files import FileDamaged, decode_checked, encode_checked, read_checked, write_checked

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(st.text().filter(lambda name: name != "checksum"), VALUES, max_size=4)


@given(DOCUMENTS, st.booleans())
def test_what_is_written_is_read_and_is_json_for_everybody(document: dict[str, Any], indented: bool) -> None:
    data = encode_checked(document, indented=indented)
    assert decode_checked(data) == decode_checked(data + b"\n") == document
    assert (b"\n" in data) == indented
    plain = json.loads(data)
    assert plain.pop("checksum").startswith("crc32c:")
    assert plain == document


@given(DOCUMENTS, st.booleans(), st.data())
def test_no_change_of_a_byte_goes_unnoticed(document: dict[str, Any], indented: bool, data: st.DataObject) -> None:
    encoded = bytearray(encode_checked({**document, "version": 2}, indented=indented))
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ValueError, match=r"it is not JSON|it has no checksum|its checksum differs"):
        decode_checked(bytes(encoded))


@given(DOCUMENTS, st.data())
def test_no_part_is_taken_for_the_whole(document: dict[str, Any], data: st.DataObject) -> None:
    encoded = encode_checked(document)
    cut = encoded[: data.draw(st.integers(0, len(encoded) - 1))]
    with pytest.raises(ValueError, match=r"it is not JSON|it has no checksum|its checksum differs|not a JSON object"):
        decode_checked(cut)


def test_a_changed_digit_is_named_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "journal.json"
    assert read_checked(path) is None
    write_checked(path, {"version": 3, "released": 17})
    assert read_checked(path) == {"version": 3, "released": 17}
    path.write_bytes(path.read_bytes().replace(b"17", b"18"))
    with pytest.raises(FileDamaged, match=r"journal\.json is damaged: its checksum differs from its content"):
        read_checked(path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"version": 2}', "no checksum"),
        (b'{"version": 1, "checksum": "lost"}', "no checksum"),
        (b'{"version": true}', "no checksum"),
        (b'{"version": [1]}', "no checksum"),
        (b"{}", "no checksum"),
    ],
)
def test_foreign_content_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "state").write_bytes(content)
    with pytest.raises(FileDamaged, match=reason):
        read_checked(tmp_path / "state")


def test_what_json_cannot_hold_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="checksum"):
        encode_checked({"checksum": "mine"})
    with pytest.raises(ValueError, match="Out of range"):
        write_checked(tmp_path / "state", {"rate": float("nan")})
    assert not list(tmp_path.iterdir())
