from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.profiles import example_count
from tidegate.kafka.errors import ErrorCode
from tidegate.kafka.groups import GroupCoordinator, GroupLimits, GroupState, Joining

SESSION_S, REBALANCE_S, PARTITIONS = 10.0, 30.0, 6
Answered = list[Mapping[str, Any]]


def joining(member_id: str = "", instance_id: str | None = None, **fields: Any) -> Joining:
    given = {
        "group": "g",
        "client_id": "c",
        "client_host": "host",
        "session_timeout_ms": round(SESSION_S * 1000),
        "rebalance_timeout_ms": round(REBALANCE_S * 1000),
        "protocol_type": "consumer",
        "protocols": (("range", b"topics"),),
    }
    return Joining(**{"member_id": member_id, "instance_id": instance_id, **given, **fields})


def coordinator(**limits: Any) -> GroupCoordinator:
    numbers = count(1)
    return GroupCoordinator(GroupLimits(**{"initial_delay_s": 0.0, **limits}), lambda: str(next(numbers)))


def join(groups: GroupCoordinator, now_s: float = 0.0, **fields: Any) -> Answered:
    """Join, with the id that the coordinator asks to be used."""
    answers: Answered = []
    groups.join(joining(**fields), now_s, answers.append)
    if answers and answers[0]["error_code"] == ErrorCode.MEMBER_ID_REQUIRED:
        member_id = answers.pop()["member_id"]
        groups.join(joining(**{**fields, "member_id": member_id}), now_s, answers.append)
    return answers


def sync(groups: GroupCoordinator, joined: Mapping[str, Any], now_s: float = 0.0) -> Answered:
    answers: Answered = []
    division = [(one["member_id"], one["member_id"].encode()) for one in joined["members"]]
    groups.sync("g", joined["member_id"], joined["generation_id"], division, now_s, answers.append)
    return answers


def two_members(groups: GroupCoordinator) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return what the leader and another member of a stable group were answered."""
    (first,) = join(groups)
    sync(groups, first)
    second = join(groups)
    assert not second
    leader: Answered = []
    groups.join(joining(first["member_id"]), 0.0, leader.append)
    sync(groups, leader[0])
    sync(groups, second[0])
    return leader[0], second[0]


def test_a_first_member_leads_a_group_of_its_own() -> None:
    groups = coordinator()
    (joined,) = join(groups)
    assert (joined["error_code"], joined["generation_id"], joined["protocol_name"]) == (0, 1, "range")
    assert joined["leader"] == joined["member_id"]
    assert [one["metadata"] for one in joined["members"]] == [b"topics"]
    (assigned,) = sync(groups, joined)
    assert assigned["assignment"] == joined["member_id"].encode()
    assert groups.heartbeat("g", joined["member_id"], 1, 1.0) is ErrorCode.NONE
    assert groups.check_commit("g", joined["member_id"], 1, 1.0) is ErrorCode.NONE


def test_a_second_member_waits_until_the_first_has_joined_again() -> None:
    groups = coordinator()
    (first,) = join(groups)
    sync(groups, first)
    second = join(groups)
    assert not second
    assert groups.heartbeat("g", first["member_id"], 1, 1.0) is ErrorCode.REBALANCE_IN_PROGRESS
    assert groups.check_commit("g", first["member_id"], 1, 1.0) is ErrorCode.NONE  # before it gives partitions up
    again: Answered = []
    groups.join(joining(first["member_id"]), 1.0, again.append)
    assert again[0]["generation_id"] == second[0]["generation_id"] == 2
    assert len(again[0]["members"]) == 2
    assert second[0]["members"] == []
    assert groups.check_commit("g", first["member_id"], 1, 1.0) is ErrorCode.ILLEGAL_GENERATION
    assert groups.check_commit("g", first["member_id"], 2, 1.0) is ErrorCode.REBALANCE_IN_PROGRESS
    waiting = sync(groups, second[0])
    assert not waiting
    sync(groups, again[0])
    assert waiting[0]["assignment"] == second[0]["member_id"].encode()


def test_who_does_not_join_again_in_time_is_left_out() -> None:
    groups = coordinator()
    (first,) = join(groups)
    sync(groups, first)
    second = join(groups)
    for now_s in (9.0, 18.0, 27.0):
        groups.heartbeat("g", first["member_id"], 1, now_s)  # alive, and busy
        groups.expire(now_s)
    assert not second
    groups.expire(REBALANCE_S - 0.1)
    assert not second
    groups.expire(REBALANCE_S)
    assert second[0]["leader"] == second[0]["member_id"]
    assert groups.heartbeat("g", first["member_id"], 1, 31.0) is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_is_silent_for_its_session_is_left_out() -> None:
    groups = coordinator()
    leader, other = two_members(groups)
    groups.heartbeat("g", other["member_id"], 2, 8.0)
    groups.expire(SESSION_S)
    assert groups.heartbeat("g", leader["member_id"], 2, 10.0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.heartbeat("g", other["member_id"], 2, 10.0) is ErrorCode.REBALANCE_IN_PROGRESS
    again: Answered = []
    groups.join(joining(other["member_id"]), 10.0, again.append)
    assert again[0]["leader"] == other["member_id"]


def test_who_joins_and_never_syncs_is_left_out() -> None:
    groups = coordinator()
    (first,) = join(groups)
    sync(groups, first)
    second = join(groups)
    again: Answered = []
    groups.join(joining(first["member_id"]), 0.0, again.append)
    waiting = sync(groups, second[0])
    for now_s in range(0, 30, 5):
        groups.heartbeat("g", first["member_id"], 2, float(now_s))  # the leader, which does not sync
        groups.expire(float(now_s))
    assert not waiting
    groups.expire(REBALANCE_S)
    assert waiting[0]["error_code"] == ErrorCode.REBALANCE_IN_PROGRESS
    assert groups.heartbeat("g", first["member_id"], 2, 30.0) is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_leaves_is_gone_at_once_and_an_empty_group_is_forgotten() -> None:
    groups = coordinator()
    leader, other = two_members(groups)
    assert groups.leave("g", leader["member_id"], 1.0) is ErrorCode.NONE
    assert groups.heartbeat("g", other["member_id"], 2, 1.0) is ErrorCode.REBALANCE_IN_PROGRESS
    assert groups.leave("g", leader["member_id"], 1.0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.leave("g", other["member_id"], 1.0) is ErrorCode.NONE
    assert groups.groups == {}
    assert groups.leave("g", other["member_id"], 1.0) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_first_generation_waits_a_little_for_further_members() -> None:
    groups = coordinator(initial_delay_s=0.5)
    first, second = join(groups), join(groups)
    assert not first
    groups.expire(0.4)
    assert not first
    groups.expire(0.5)
    assert first[0]["generation_id"] == second[0]["generation_id"] == 1
    assert len(first[0]["members"]) == 2


def test_a_static_member_that_comes_back_takes_its_place_without_a_new_generation() -> None:
    groups = coordinator()
    (first,) = join(groups, instance_id="a")
    sync(groups, first)
    second = join(groups, instance_id="b")
    again: Answered = []
    groups.join(joining(first["member_id"], "a"), 0.0, again.append)
    sync(groups, again[0])
    sync(groups, second[0])
    (back,) = join(groups, instance_id="b")
    assert (back["error_code"], back["generation_id"]) == (0, 2)
    assert back["member_id"] != second[0]["member_id"]
    (assigned,) = sync(groups, back)
    assert assigned["assignment"] == second[0]["member_id"].encode()
    fenced = groups.heartbeat("g", second[0]["member_id"], 2, 1.0, "b")
    assert fenced is ErrorCode.FENCED_INSTANCE_ID
    assert groups.check_commit("g", second[0]["member_id"], 2, 1.0, "b") is ErrorCode.FENCED_INSTANCE_ID
    (leader,) = join(groups, instance_id="a", skips_assignment=True)
    assert (leader["generation_id"], leader["skip_assignment"]) == (2, True)


def test_a_static_member_is_removed_by_its_instance_id() -> None:
    groups = coordinator()
    (first,) = join(groups, instance_id="a")
    assert groups.leave("g", "somebody else", 0.0, "a") is ErrorCode.FENCED_INSTANCE_ID
    assert groups.leave("g", "", 0.0, "nobody") is ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.leave("g", "", 0.0, "a") is ErrorCode.NONE
    assert groups.heartbeat("g", first["member_id"], 1, 0.0, "a") is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_protocol_that_most_prefer_is_chosen_among_those_that_all_know() -> None:
    groups = coordinator(initial_delay_s=0.5)
    first = join(groups, protocols=(("sticky", b"s1"), ("range", b"r1")))
    join(groups, protocols=(("range", b"r2"), ("sticky", b"s2")))
    join(groups, protocols=(("range", b"r3"), ("sticky", b"s3"), ("other", b"")))
    groups.expire(1.0)
    assert first[0]["protocol_name"] == "range"
    assert [one["metadata"] for one in first[0]["members"]] == [b"r1", b"r2", b"r3"]
    (refused,) = join(groups, protocols=(("other", b""),))
    assert refused["error_code"] == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    (refused,) = join(groups, protocol_type="connect")
    assert refused["error_code"] == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group": "g" * 256}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 2**31 - 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": (("range", bytes(2 << 20)),)}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "made up"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_request_that_cannot_be_is_refused(fields: dict[str, Any], error: ErrorCode) -> None:
    groups = coordinator()
    (refused,) = join(groups, **fields)
    assert refused["error_code"] is error
    assert groups.groups == {}


def test_members_and_groups_are_limited() -> None:
    groups = coordinator(max_members=1, max_groups=1)
    join(groups)
    (refused,) = join(groups)
    assert refused["error_code"] == ErrorCode.GROUP_MAX_SIZE_REACHED
    (refused,) = join(groups, group="another")
    assert refused["error_code"] == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_members_whose_keys_cover_something_else_are_refused() -> None:
    groups = coordinator()
    (first,) = join(groups, scope=("hub1",))
    (refused,) = join(groups, scope=())
    assert refused["error_code"] == ErrorCode.GROUP_AUTHORIZATION_FAILED
    groups.leave("g", first["member_id"], 0.0)
    assert join(groups, scope=())[0]["error_code"] == ErrorCode.NONE


def test_a_promised_id_that_is_not_used_is_forgotten() -> None:
    groups = coordinator()
    answers: Answered = []
    groups.join(joining(), 0.0, answers.append)
    groups.expire(SESSION_S - 0.1)
    assert groups.groups
    groups.expire(SESSION_S)
    assert groups.groups == {}
    groups.join(joining(answers[0]["member_id"]), 11.0, answers.append)
    assert answers[1]["error_code"] == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_client_that_is_no_member_commits_only_while_there_are_none() -> None:
    groups = coordinator()
    assert groups.check_commit("g", "", -1, 0.0) is ErrorCode.NONE
    (first,) = join(groups)
    assert groups.check_commit("g", "", -1, 0.0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.delete("g") is ErrorCode.NON_EMPTY_GROUP
    groups.leave("g", first["member_id"], 0.0)
    assert groups.check_commit("g", "", -1, 0.0) is ErrorCode.NONE
    assert groups.delete("g") is ErrorCode.GROUP_ID_NOT_FOUND


@dataclass(eq=False)
class Client:
    """A consumer that follows the protocol, whose requests are on their way for as long as the test likes."""

    instance_id: str | None
    member_id: str = ""
    generation: int = -1
    owned: frozenset[int] = frozenset()
    is_member: bool = False
    joined: Mapping[str, Any] | None = None
    pending: Answered = field(default_factory=list)
    waits_for: str = ""


class GroupMachine(RuleBasedStateMachine):
    """Clients come, go, fall silent and restart; requests, answers and time come in any order."""

    @initialize(delay=st.sampled_from([0.0, 0.5]))
    def begin(self, delay: float) -> None:
        self.groups = coordinator(initial_delay_s=delay)
        self.now_s = 0.0
        self.clients: list[Client] = []
        self.names = count()

    @precondition(lambda self: len(self.clients) < 5)
    @rule(static=st.booleans())
    def start(self, static: bool) -> None:
        self.clients.append(Client(f"instance {next(self.names)}" if static else None))

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        self.clients.remove(data.draw(st.sampled_from(self.clients)))

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def restart(self, data: st.DataObject) -> None:
        """A process that starts again knows its instance id and nothing else."""
        client = data.draw(st.sampled_from(self.clients))
        self.clients[self.clients.index(client)] = Client(client.instance_id)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.clients))
        self.clients.remove(client)
        self.groups.leave("g", client.member_id, self.now_s, client.instance_id)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        self.advance(data.draw(st.sampled_from(self.clients)))

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0, 11.0, 31.0]))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.groups.expire(self.now_s)

    def advance(self, client: Client) -> None:
        """Let a client read an answer that is there, or send what comes next."""
        if client.waits_for:
            if client.pending:
                self.take(client, client.pending.pop())
            return
        if not client.is_member and client.joined is None:
            client.waits_for, client.pending = "join", []
            request = joining(client.member_id, client.instance_id)
            self.groups.join(request, self.now_s, client.pending.append)
        elif client.joined is not None:
            division = divide([one["member_id"] for one in client.joined["members"]])
            client.waits_for, client.pending = "sync", []
            self.groups.sync(
                "g",
                client.member_id,
                client.generation,
                division,
                self.now_s,
                client.pending.append,
                instance_id=client.instance_id,
            )
        else:
            error = self.groups.heartbeat("g", client.member_id, client.generation, self.now_s, client.instance_id)
            if error is not ErrorCode.NONE:
                self.fall_out(client, error)

    def take(self, client: Client, answer: Mapping[str, Any]) -> None:
        was_waiting_for, client.waits_for = client.waits_for, ""
        error = ErrorCode(answer["error_code"])
        if was_waiting_for == "join":
            client.member_id = answer["member_id"] or client.member_id
            if error is ErrorCode.NONE:
                client.joined, client.generation = answer, answer["generation_id"]
        else:
            client.joined = None
            if error is ErrorCode.NONE:
                client.is_member = True
                client.owned = frozenset(answer["assignment"])
        if error not in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.fall_out(client, error)

    def fall_out(self, client: Client, error: ErrorCode) -> None:
        client.is_member, client.joined, client.owned = False, None, frozenset()
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            client.member_id = ""

    @invariant()
    def members_of_the_present_generation_own_what_no_other_owns(self) -> None:
        group = self.groups.groups.get("g")
        if group is None:
            return
        owners = [c.owned for c in self.clients if c.is_member and c.generation == group.generation]
        assert sum(map(len, owners)) == len(frozenset().union(*owners))

    @invariant()
    def the_state_says_what_is_awaited(self) -> None:
        group = self.groups.groups.get("g")
        if group is None:
            return
        assert (group.state is GroupState.EMPTY) == (not group.members)
        assert set(group.instances.values()) <= set(group.members)
        assert not group.members or group.leader in group.members
        assert (group.join_deadline_s is not None) == (group.state is GroupState.PREPARING)
        if group.state is not GroupState.PREPARING:
            assert all(member.join is None for member in group.members.values())
        if group.state is not GroupState.COMPLETING:
            assert all(member.sync is None for member in group.members.values())

    def teardown(self) -> None:
        """Whatever happened, those that are left divide everything among themselves in the end."""
        if not hasattr(self, "groups"):
            return
        for _ in range(100):
            for _ in range(4):
                for client in self.clients:
                    self.advance(client)
            self.now_s += 1.0
            self.groups.expire(self.now_s)
        assert all(client.is_member for client in self.clients)
        if not self.clients:
            assert self.groups.groups == {}
            return
        group = self.groups.groups["g"]
        assert group.state is GroupState.STABLE
        assert {client.member_id for client in self.clients} == set(group.members)
        assert frozenset().union(*(client.owned for client in self.clients)) == frozenset(range(PARTITIONS))


def divide(members: list[str]) -> list[tuple[str, bytes]]:
    """Return an assignment of partitions to members, as a leader computes it."""
    return [(member, bytes(range(place, PARTITIONS, len(members)))) for place, member in enumerate(members)]


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(max_examples=example_count(60), stateful_step_count=40)
