"""What an address means, and which are refused because they could mean two things."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.hub.addresses import PublishTarget, ReceiveSource, path_of, publish_target, receive_source
from tidegate.hub.errors import ArgumentError, HubError, NotFound


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("tolls", PublishTarget("tolls")),
        ("/tolls", PublishTarget("tolls")),
        ("tolls/", PublishTarget("tolls")),
        ("amqps://ns.servicebus.windows.net:5671/tolls", PublishTarget("tolls")),
        ("sb://localhost/tolls/Partitions/3", PublishTarget("tolls", partition_id="3")),
        ("tolls/partitions/3", PublishTarget("tolls", partition_id="3")),
        ("tolls/Publishers/gate%201", PublishTarget("tolls", publisher="gate 1")),
        ("tolls/publishers/gate-1", PublishTarget("tolls", publisher="gate-1")),
    ],
)
def test_targets(address: str, expected: Any) -> None:
    assert publish_target(address) == expected


@pytest.mark.parametrize(
    "address",
    ["tolls/ConsumerGroups/cg1/Partitions/0", "amqps://h:5671/tolls/consumergroups/cg1/partitions/0"],
)
def test_sources(address: str) -> None:
    assert receive_source(address) == ReceiveSource("tolls", "cg1", "0")
    assert receive_source(address).path == ("tolls", "consumergroups", "cg1", "partitions", "0")


@pytest.mark.parametrize(
    "address", ["", "tolls/Partitions", "tolls/Partitions/0/1", "tolls/ConsumerGroups/cg1", "sb://host"]
)
def test_what_is_no_target(address: str) -> None:
    with pytest.raises(NotFound):
        publish_target(address)


@pytest.mark.parametrize("address", ["tolls", "tolls/ConsumerGroups/cg1", "tolls/Partitions/0"])
def test_what_is_no_source(address: str) -> None:
    with pytest.raises(NotFound):
        receive_source(address)


@pytest.mark.parametrize(
    "address",
    [
        "tolls/../other",
        "tolls/./x",
        "tolls//x",
        "//tolls",
        "tolls/%2e%2e/other",
        "tolls%2Fpartitions",
        "tolls%5Cx",
        "tolls\\x",
        "tolls%2525",
        "tolls?x=1",
        "tolls#x",
        "tolls\x00",
        "tolls/\u202e",
        "tolls/publishers/\N{KELVIN SIGN}",
        "sb://localhost\\tolls",
        "sb://localhost%2Ftolls",
        "sb://localhost?/tolls",
        "sb://local host/tolls",
        "://localhost/tolls",
        "other/://localhost/tolls",
        "tolls/sb://localhost",
        "x" * 5000,
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(address: Any) -> None:
    with pytest.raises(ArgumentError):
        path_of(address)


@given(st.text(max_size=200))
def test_any_text_is_a_path_or_refused(text: str) -> None:
    try:
        segments = path_of(text)
    except HubError:
        return
    assert all(segment and "/" not in segment for segment in segments)
