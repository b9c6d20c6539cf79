"""Requests to `$management` whose token is in the request itself, as Microsoft's client for Java sends it."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.server.conftest import KEY, RULE, RawClient
from tidegate.hub.access import sign
from tidegate.hub.access_rules import AccessRule, Right
from tidegate.server import Server

READ_HUB = {"operation": "READ", "type": "com.microsoft:eventhub"}
READ_PARTITION = {"operation": "READ", "type": "com.microsoft:partition"}
SOON, AGO = 600, -1


def signed(resource: str, expires_in_s: int = SOON, *, rule: str = RULE, key: str = KEY) -> str:
    return sign(f"sb://localhost/{resource}", rule, key, int(time.time()) + expires_in_s)


TOKENS: list[tuple[str, Callable[[str], object], int]] = [
    ("the hub's", signed, 200),
    ("the namespace's", lambda hub: signed(""), 200),
    ("the management node's", lambda hub: signed(f"{hub}/$management"), 200),
    ("a consumer group's", lambda hub: signed(f"{hub}/ConsumerGroups/cg1"), 200),
    ("another hub's", lambda hub: signed("wide"), 401),
    ("a hub's whose name it begins with", lambda hub: signed(hub[:-1]), 401),
    ("a publisher's", lambda hub: signed(f"{hub}/Publishers/p"), 401),
    ("an expired one", lambda hub: signed(hub, AGO), 401),
    ("a forged one", lambda hub: signed(hub, key="forged"), 401),
    ("one of an unknown rule", lambda hub: signed(hub, rule="nobody"), 401),
    ("one that was altered", lambda hub: signed(hub).replace("&se=", "&se=9"), 401),
    ("an empty one", lambda hub: "", 401),
    ("bytes", lambda hub: signed(hub).encode(), 400),
    ("a number", lambda hub: 7, 400),
]


def test_a_partition_has_what_each_client_asks_for(server: Server, sign_in: Callable[..., RawClient], hub: str) -> None:
    raw = sign_in(server, hub)
    body = raw.request("$management", READ_PARTITION | {"name": hub, "partition": "0"})["body"]
    assert body["last_enqueued_sequence_number_epoch"] == 0  # the client for Rust refuses an answer without it
    assert {
        "begin_sequence_number",
        "last_enqueued_sequence_number",
        "last_enqueued_offset",
        "last_enqueued_time_utc",
        "is_partition_empty",
        "name",
        "partition",
        "type",
    } <= set(body)


@pytest.mark.parametrize("signed_in", [False, True], ids=["alone", "with a token on $cbs"])
@pytest.mark.parametrize(("token", "status"), [pytest.param(t, s, id=name) for name, t, s in TOKENS])
def test_a_request_is_decided_by_the_token_it_holds(
    server: Server,
    sign_in: Callable[..., RawClient],
    hub: str,
    token: Callable[[str], object],
    status: int,
    signed_in: bool,
) -> None:
    raw = sign_in(server, hub, signed_in=signed_in)
    arguments = READ_HUB | {"name": hub}
    answer = raw.request("$management", arguments | {"security_token": token(hub)})
    assert answer["status-code"] == status
    assert (answer["body"] or {}).get("name") == (hub if status == 200 else None)
    # It counted for that request only.
    assert raw.request("$management", arguments)["status-code"] == (200 if signed_in else 401)


def test_only_those_who_may_read_the_events_are_told_where_the_log_is(
    server: Server, sign_in: Callable[..., RawClient], hub: str
) -> None:
    rules = server.namespace.management
    for right in (Right.SEND, Right.LISTEN):
        rules.set_access_rule(AccessRule(right.value, frozenset({right}), f"key of {right.value}", "other"), hub)
    raw = sign_in(server, hub, signed_in=False)
    told = {}
    for right in (Right.SEND, Right.LISTEN):
        token = signed(hub, rule=right.value, key=f"key of {right.value}")
        body = raw.request("$management", READ_PARTITION | {"name": hub, "partition": "0", "security_token": token})[
            "body"
        ]
        assert body["last_enqueued_sequence_number"] == -1
        told[right] = {name for name in body if name in ("tidegate:log-directory", "tidegate:log-id")}
    assert told == {Right.SEND: set(), Right.LISTEN: {"tidegate:log-directory", "tidegate:log-id"}}


@pytest.mark.parametrize(
    ("asked", "statuses"),
    [
        ({"tidegate:with-jobs": True}, {"Send": 401, "Listen": 200, "cg1": 200}),
        ({"tidegate:with-kafka-groups": True}, {"Send": 401, "Listen": 200, "cg1": 200}),
        ({"tidegate:consumer-group": "CG1"}, {"Send": 401, "Listen": 200, "cg1": 200}),
        ({"tidegate:consumer-group": "cg2"}, {"Send": 401, "Listen": 200, "cg1": 401}),
    ],
)
def test_only_those_who_may_read_the_events_see_who_reads_them_and_are_noted_as_readers(
    server: Server, sign_in: Callable[..., RawClient], hub: str, asked: dict[str, object], statuses: dict[str, int]
) -> None:
    for right in (Right.SEND, Right.LISTEN):
        rule = AccessRule(right.value, frozenset({right}), f"key of {right.value}", "other")
        server.namespace.management.set_access_rule(rule, hub)
    tokens = {name: signed(hub, rule=name, key=f"key of {name}") for name in ("Send", "Listen")}
    tokens["cg1"] = signed(f"{hub}/ConsumerGroups/cg1")
    raw = sign_in(server, hub, signed_in=False)
    group = str(asked.get("tidegate:consumer-group", ""))
    found = {}
    for name, token in tokens.items():
        report = {"tidegate:job": name, "tidegate:position": 0, "tidegate:read-events": 0} if group else {}
        arguments = READ_PARTITION | {"name": hub, "partition": "0", "security_token": token} | asked | report
        found[name] = raw.request("$management", arguments)["status-code"]
    assert found == statuses
    jobs = server.namespace.event_hub(hub).partition("0").reader_slots(group).jobs
    assert {job.name for job in jobs} == {name for name, status in statuses.items() if group and status == 200}


def test_a_token_in_a_request_opens_no_link(
    server: Server, sign_in: Callable[..., RawClient], hub: str, refused: type[Exception]
) -> None:
    raw = sign_in(server, hub, signed_in=False)
    raw.request("$management", READ_HUB | {"name": hub, "security_token": signed(hub)})
    with pytest.raises(refused, match="unauthorized-access"):
        raw.publisher(hub)


def test_a_refused_token_in_a_request_is_logged_with_its_signer_and_no_secret(
    server: Server, sign_in: Callable[..., RawClient], hub: str, caplog: pytest.LogCaptureFixture
) -> None:
    raw = sign_in(server, hub, signed_in=False)
    token = signed(hub, rule="somebody", key="forged")
    with caplog.at_level("INFO", logger="tidegate"):
        raw.request("$management", READ_HUB | {"name": hub, "security_token": token})
    assert f"$management 'READ' by 'somebody' of '{hub}'" in caplog.text
    assert token not in caplog.text
    assert "sig=" not in caplog.text
