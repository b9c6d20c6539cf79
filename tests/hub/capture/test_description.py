"""Settings of capture: the service's limits, and names in which no two files can meet."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tidegate.hub.capture.description import DEFAULT_NAME_FORMAT, NAME_PARTS, CaptureDescription, check_name_format

NAMES = {"Namespace": "ns1", "EventHub": "eh1", "PartitionId": "3"}
# 2025-08-02T03:04:05Z
TIME_S = 1754103845


def test_the_defaults_are_the_services() -> None:
    description = CaptureDescription(destination="archive")
    assert (description.interval_in_seconds, description.size_limit_in_bytes) == (300, 314_572_800)
    assert description.skip_empty_archives is False
    assert description.archive_name_format == DEFAULT_NAME_FORMAT


def test_a_name_is_zero_padded() -> None:
    name = CaptureDescription(destination="archive").archive_name(NAMES, TIME_S)
    assert name == "ns1/eh1/3/2025/08/02/03/04/05.avro"


def test_a_format_of_ones_own() -> None:
    text = "raw/{EventHub}/{Namespace}/date={Year}-{Month}-{Day}/{Hour}{Minute}{Second}_{PartitionId}"
    name = CaptureDescription(destination="archive", archive_name_format=text).archive_name(NAMES, TIME_S)
    assert name == "raw/eh1/ns1/date=2025-08-02/030405_3.avro"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("interval_in_seconds", 59),
        ("interval_in_seconds", 901),
        ("size_limit_in_bytes", 10_485_759),
        ("size_limit_in_bytes", 524_288_001),
        ("destination", ""),
        ("compression", "snappy"),
    ],
)
def test_what_the_service_refuses_is_refused(name: str, value: object) -> None:
    with pytest.raises(ValidationError):
        CaptureDescription.model_validate({"destination": "archive", name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("interval_in_seconds", 60),
        ("interval_in_seconds", 900),
        ("size_limit_in_bytes", 10_485_760),
        ("size_limit_in_bytes", 524_288_000),
    ],
)
def test_the_limits_themselves_are_allowed(name: str, value: object) -> None:
    CaptureDescription.model_validate({"destination": "archive", name: value})


@pytest.mark.parametrize("part", NAME_PARTS)
def test_each_part_is_needed(part: str) -> None:
    with pytest.raises(ValueError, match=f"{{{part}}} missing"):
        check_name_format(DEFAULT_NAME_FORMAT.replace(f"{{{part}}}", "x"))


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (DEFAULT_NAME_FORMAT + "{minute}", "did you mean {Minute}"),
        (DEFAULT_NAME_FORMAT + "{Week}", "the parts are"),
        ("../" + DEFAULT_NAME_FORMAT, "name of its own"),
        ("/" + DEFAULT_NAME_FORMAT, "name of its own"),
        (DEFAULT_NAME_FORMAT.replace("/{Year}", "//{Year}"), "name of its own"),
        (DEFAULT_NAME_FORMAT + "/", "name of its own"),
        (DEFAULT_NAME_FORMAT + "\\x", "only"),
        (DEFAULT_NAME_FORMAT + "{", "only"),
        (DEFAULT_NAME_FORMAT + "\n", "only"),
    ],
)
def test_a_bad_format_is_explained(text: str, hint: str) -> None:
    with pytest.raises(ValueError, match=hint):
        check_name_format(text)


@given(st.text(max_size=40), st.permutations(NAME_PARTS))
def test_no_format_leads_out_of_the_destination(text: str, order: list[str]) -> None:
    candidate = text + "/".join(f"{{{part}}}" for part in order) + text
    try:
        check_name_format(candidate)
    except ValueError:
        return
    name = CaptureDescription(destination="archive", archive_name_format=candidate).archive_name(NAMES, TIME_S)
    assert not name.startswith("/")
    assert not {"", ".", ".."} & set(name.removesuffix(".avro").split("/"))


@given(st.integers(0, 2**32), st.integers(0, 2**32))
def test_different_seconds_have_different_names(one_s: int, other_s: int) -> None:
    description = CaptureDescription(destination="archive")
    assert (description.archive_name(NAMES, one_s) == description.archive_name(NAMES, other_s)) == (one_s == other_s)
