"""The coordinator of consumer groups, without sockets and without a clock.

The theory. A group divides partitions among its members, and no two members may believe in the same division at
different times. So membership advances in *generations*: a number, the members it has, and the assignment that one of
them, the leader, computed for them. A member learns its generation by joining and its assignment by syncing; whatever
it says later carries both its id and the generation, and is refused once either is over. There are five states:

    EMPTY         no members, perhaps positions
    PREPARING     a generation has ended, and its successor waits for members to join (the first barrier)
    COMPLETING    the members are fixed, and the leader's assignment is awaited (the second barrier)
    STABLE        everybody has been given its assignment
    DEAD          the group is gone; who still has it in hand asks again

              join                     all have joined, or the       the leader syncs
      EMPTY ────────▶ PREPARING ──────▶ rebalance timeout ──▶ COMPLETING ────────▶ STABLE
        ▲                │  ▲                                    │  ▲                │
        │ the last one   │  │ join, leave, expiry of a member    │  └────────────────┘ never: a generation ends first
        └────────────────┘  └────────────────────────────────────┴────────────────── (also from STABLE)

Who does not come back in time is left out: a member that is silent for its session timeout, one that does not join
within the rebalance timeout, and one that joins and then does not sync. A request at a barrier is answered when the
barrier opens, which is why every method takes a function that is called with the answer, at once or later.

*Static* members (KIP-345) have an instance id. One that comes back under its instance id takes over the place and the
assignment of its predecessor without a new generation, and the predecessor is fenced. *Cooperative* rebalancing
(KIP-429) needs nothing here: members join twice and keep what they have meanwhile. Generations are not kept across a
restart of the coordinator, and need not be: ids of members are never used again, so all members join anew.

The caller passes the time, calls `expire` several times a second, and keeps positions elsewhere.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from tidegate.kafka.errors import ErrorCode

Answer = Callable[[Mapping[str, object]], None]
"""Called once with the fields of the response."""

NO_GENERATION = -1
MAX_GROUP_NAME = 255


class GroupState(Enum):
    """A state, as responses spell it."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """Bounds on what members may ask for, and on how many there are."""

    min_session_timeout_ms: int = 100
    max_session_timeout_ms: int = 1_800_000
    initial_delay_s: float = 0.3
    """How long the first generation of an empty group waits for further members."""
    max_members: int = 1000
    max_groups: int = 10_000
    max_metadata_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True)
class Joining:
    """A request to join.

    Attributes:
        scope: What the client's key covers. All members of a group have the same, so that none learns of hubs that it
            has no right to from the subscriptions of others.
        names_itself: Whether the client knows how to come back with an id that it is given first (KIP-394).
    """

    group: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    scope: tuple[str, ...] = ()
    names_itself: bool = True
    skips_assignment: bool = False


@dataclass(eq=False, slots=True)
class Member:
    """A member of a group. `join` and `sync` are the answers that it waits for."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_s: float
    rebalance_timeout_s: float
    protocols: tuple[tuple[str, bytes], ...]
    expires_at_s: float
    assignment: bytes = b""
    join: Answer | None = None
    sync: Answer | None = None
    must_sync_by_s: float | None = None

    def metadata(self, protocol: str) -> bytes:
        """Return what the member said for a protocol."""
        return next((data for name, data in self.protocols if name == protocol), b"")


@dataclass(eq=False, slots=True)
class Group:
    """A group: its members by id, in the order in which they came."""

    name: str
    scope: tuple[str, ...]
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str = ""
    protocol: str | None = None
    leader: str = ""
    members: dict[str, Member] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    """The member of each instance id."""
    promised: dict[str, float] = field(default_factory=dict)
    """Ids that were given out and not used yet, and until when they may be."""
    join_deadline_s: float | None = None
    may_complete_early: bool = True
    """Whether the first barrier opens as soon as all known members are there."""


class GroupCoordinator:
    """The groups of a namespace."""

    def __init__(
        self, limits: GroupLimits | None = None, new_id: Callable[[], str] = lambda: str(uuid.uuid4())
    ) -> None:
        self.limits = limits or GroupLimits()
        self.groups: dict[str, Group] = {}
        self._new_id = new_id

    # -- requests

    def join(self, request: Joining, now_s: float, answer: Answer) -> None:
        """Take part in the next generation; answered when it begins."""
        error = self._check_join(request)
        if error is not ErrorCode.NONE:
            answer(_join_error(error, request.member_id))
            return
        group = self.groups.get(request.group)
        if group is None:
            if request.member_id:
                answer(_join_error(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
                return
            if len(self.groups) >= self.limits.max_groups:
                answer(_join_error(ErrorCode.GROUP_MAX_SIZE_REACHED))
                return
            group = self.groups[request.group] = Group(request.group, request.scope)
        if group.members and group.scope != request.scope:
            answer(_join_error(ErrorCode.GROUP_AUTHORIZATION_FAILED, request.member_id))
        elif not self._has_common_protocol(group, request):
            answer(_join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
        elif request.member_id:
            self._rejoin(group, request, now_s, answer)
        elif request.instance_id is not None and request.instance_id in group.instances:
            self._replace(group, request, now_s, answer)
        elif len(group.members) + len(group.promised) >= self.limits.max_members:
            answer(_join_error(ErrorCode.GROUP_MAX_SIZE_REACHED))
        else:
            self._join_first(group, request, now_s, answer)

    def sync(
        self,
        group_name: str,
        member_id: str,
        generation: int,
        assignments: Sequence[tuple[str, bytes]],
        now_s: float,
        answer: Answer,
        *,
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> None:
        """Learn the assignment; the leader's request brings everybody's. Answered when the leader's is there."""
        group, error = self._known(group_name, member_id, generation, instance_id)
        if group is None or error is not ErrorCode.NONE:
            answer({"error_code": error})
            return
        if protocol_type not in (None, group.protocol_type) or protocol not in (None, group.protocol):
            answer({"error_code": ErrorCode.INCONSISTENT_GROUP_PROTOCOL})
            return
        member = group.members[member_id]
        self._hear(member, now_s)
        if group.state is GroupState.PREPARING:
            answer({"error_code": ErrorCode.REBALANCE_IN_PROGRESS})
            return
        member.must_sync_by_s = None
        if group.state is GroupState.STABLE:
            answer(_assigned(group, member))
        else:
            _supersede(member.sync)
            member.sync = answer
            if member_id == group.leader:
                found = dict(assignments)
                for one in group.members.values():
                    one.assignment = found.get(one.member_id, b"")
                group.state = GroupState.STABLE
                for one in group.members.values():
                    _answer_sync(group, one)

    def heartbeat(
        self, group_name: str, member_id: str, generation: int, now_s: float, instance_id: str | None = None
    ) -> ErrorCode:
        """Note that a member is alive, and return whether it has to join again."""
        group, error = self._known(group_name, member_id, generation, instance_id)
        if group is None or error is not ErrorCode.NONE:
            return error
        self._hear(group.members[member_id], now_s)
        return ErrorCode.REBALANCE_IN_PROGRESS if group.state is GroupState.PREPARING else ErrorCode.NONE

    def leave(self, group_name: str, member_id: str, now_s: float, instance_id: str | None = None) -> ErrorCode:
        """Remove a member by its id, or by its instance id alone, as administrators do."""
        group = self.groups.get(group_name)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if instance_id is not None:
            known = group.instances.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if member_id not in ("", known):
                return ErrorCode.FENCED_INSTANCE_ID
            member_id = known
        if group.promised.pop(member_id, None) is not None:
            self._forget_if_unused(group)
            return ErrorCode.NONE
        if member_id not in group.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self._remove(group, group.members[member_id], now_s)
        return ErrorCode.NONE

    def check_commit(
        self, group_name: str, member_id: str, generation: int, now_s: float, instance_id: str | None = None
    ) -> ErrorCode:
        """Return whether positions may be committed; a commit counts as a sign of life.

        Without a generation it is a client that is no member, which may commit for a group that has none.
        """
        group = self.groups.get(group_name)
        if generation < 0 and not member_id:
            is_free = group is None or not group.members
            return ErrorCode.NONE if is_free else ErrorCode.UNKNOWN_MEMBER_ID
        group, error = self._known(group_name, member_id, generation, instance_id)
        if group is None or error is not ErrorCode.NONE:
            return error
        if group.state is GroupState.COMPLETING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._hear(group.members[member_id], now_s)
        return ErrorCode.NONE

    def delete(self, group_name: str) -> ErrorCode:
        """Forget a group without members."""
        group = self.groups.get(group_name)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.members or group.promised:
            return ErrorCode.NON_EMPTY_GROUP
        group.state = GroupState.DEAD
        del self.groups[group_name]
        return ErrorCode.NONE

    # -- time

    def expire(self, now_s: float) -> None:
        """Remove the members whose time is up, and open the barriers that have waited long enough."""
        for group in list(self.groups.values()):
            group.promised = {known: until for known, until in group.promised.items() if until > now_s}
            for member in list(group.members.values()):
                too_late = member.must_sync_by_s is not None and member.must_sync_by_s <= now_s
                if too_late or (member.join is None and member.sync is None and member.expires_at_s <= now_s):
                    self._remove(group, member, now_s)
            if group.join_deadline_s is not None and group.join_deadline_s <= now_s:
                self._begin_generation(group, now_s)
            self._forget_if_unused(group)

    # -- joining

    def _check_join(self, request: Joining) -> ErrorCode:
        limits = self.limits
        if not 0 < len(request.group) <= MAX_GROUP_NAME:
            return ErrorCode.INVALID_GROUP_ID
        if not limits.min_session_timeout_ms <= request.session_timeout_ms <= limits.max_session_timeout_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if not request.protocols or not request.protocol_type:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if sum(len(data) for _, data in request.protocols) > limits.max_metadata_bytes:
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE

    def _has_common_protocol(self, group: Group, request: Joining) -> bool:
        others = [member for member in group.members.values() if member.member_id != request.member_id]
        others = [
            member for member in others if member.instance_id is None or member.instance_id != request.instance_id
        ]
        if not others:
            return True
        names = {name for name, _ in request.protocols}
        return request.protocol_type == group.protocol_type and bool(names & _common_protocols(others))

    def _join_first(self, group: Group, request: Joining, now_s: float, answer: Answer) -> None:
        prefix = request.instance_id or request.client_id or "member"
        member_id = f"{prefix}-{self._new_id()}"
        if request.instance_id is None and request.names_itself:
            group.promised[member_id] = now_s + request.session_timeout_ms / 1000
            answer(_join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        else:
            self._add(group, request, member_id, now_s, answer)

    def _add(self, group: Group, request: Joining, member_id: str, now_s: float, answer: Answer) -> None:
        session_s = request.session_timeout_ms / 1000
        rebalance_s = max(request.rebalance_timeout_ms, request.session_timeout_ms) / 1000
        member = Member(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            session_s,
            rebalance_s,
            request.protocols,
            now_s + session_s,
        )
        member.join = answer
        if not group.members:
            group.scope, group.protocol_type = request.scope, request.protocol_type
        group.members[member_id] = member
        if request.instance_id is not None:
            group.instances[request.instance_id] = member_id
        if not group.leader:
            group.leader = member_id
        self._rebalance(group, now_s)

    def _rejoin(self, group: Group, request: Joining, now_s: float, answer: Answer) -> None:
        member = group.members.get(request.member_id)
        if request.instance_id is not None:
            known = group.instances.get(request.instance_id)
            if known is not None and known != request.member_id:
                answer(_join_error(ErrorCode.FENCED_INSTANCE_ID, request.member_id))
                return
        if member is None:
            if group.promised.pop(request.member_id, None) is None:
                answer(_join_error(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
            else:
                self._add(group, request, request.member_id, now_s, answer)
            return
        has_changed = member.protocols != request.protocols
        member.protocols = request.protocols
        self._hear(member, now_s)
        is_leader = group.leader == member.member_id
        if group.state is GroupState.COMPLETING and not has_changed:
            answer(_joined(group, member))  # the answer was lost
        elif group.state is GroupState.STABLE and not has_changed and not is_leader:
            answer(_joined(group, member))
        else:
            _supersede(member.join)
            member.join = answer
            self._rebalance(group, now_s)

    def _replace(self, group: Group, request: Joining, now_s: float, answer: Answer) -> None:
        """Let an instance that was started again take over from its predecessor."""
        assert request.instance_id is not None
        before = group.members.pop(group.instances[request.instance_id])
        for waiting in (before.join, before.sync):
            if waiting is not None:
                waiting({"error_code": ErrorCode.FENCED_INSTANCE_ID, "member_id": before.member_id})
        member_id = f"{request.instance_id}-{self._new_id()}"
        was_leader = group.leader == before.member_id
        before.member_id, before.join, before.sync = member_id, None, None
        unchanged = before.protocols == request.protocols
        before.protocols = request.protocols
        before.session_timeout_s = request.session_timeout_ms / 1000
        before.client_id, before.client_host = request.client_id, request.client_host
        group.members[member_id] = before
        group.instances[request.instance_id] = member_id
        if was_leader:
            group.leader = member_id
        self._hear(before, now_s)
        if group.state is GroupState.STABLE and unchanged and (not was_leader or request.skips_assignment):
            answer({**_joined(group, before), "skip_assignment": was_leader})
        else:
            before.join = answer
            self._rebalance(group, now_s)

    # -- generations

    def _rebalance(self, group: Group, now_s: float) -> None:
        """End the generation, and begin the next one if everybody is there."""
        if group.state is not GroupState.PREPARING:
            for member in group.members.values():
                if member.sync is not None:
                    answer, member.sync = member.sync, None
                    answer({"error_code": ErrorCode.REBALANCE_IN_PROGRESS})
                member.must_sync_by_s = None
            is_first = group.state is GroupState.EMPTY and self.limits.initial_delay_s > 0
            group.may_complete_early = not is_first
            longest_s = max(member.rebalance_timeout_s for member in group.members.values())
            group.join_deadline_s = now_s + (self.limits.initial_delay_s if is_first else longest_s)
            group.state = GroupState.PREPARING
        if group.may_complete_early and all(member.join is not None for member in group.members.values()):
            self._begin_generation(group, now_s)

    def _begin_generation(self, group: Group, now_s: float) -> None:
        """Open the first barrier for those who have joined; the others are no longer members."""
        group.join_deadline_s = None
        for member in list(group.members.values()):
            if member.join is None and (member.instance_id is None or member.expires_at_s <= now_s):
                self._drop(group, member)
        present = [member for member in group.members.values() if member.join is not None]
        if not group.members:
            self._become_empty(group)
            return
        if not present:  # static members keep their places while they restart
            longest_s = max(member.rebalance_timeout_s for member in group.members.values())
            group.join_deadline_s = now_s + longest_s
            return
        if group.leader not in {member.member_id for member in present}:
            group.leader = present[0].member_id
        group.generation += 1
        group.protocol = _chosen_protocol(list(group.members.values()))
        group.state = GroupState.COMPLETING
        for member in present:
            answer, member.join = member.join, None
            member.assignment = b""
            self._hear(member, now_s)
            member.must_sync_by_s = now_s + member.rebalance_timeout_s
            if answer is not None:
                answer(_joined(group, member))

    def _remove(self, group: Group, member: Member, now_s: float) -> None:
        self._drop(group, member)
        if not group.members:
            self._become_empty(group)
        else:
            if group.leader == member.member_id:
                group.leader = next(iter(group.members))
            self._rebalance(group, now_s)
        self._forget_if_unused(group)

    def _drop(self, group: Group, member: Member) -> None:
        group.members.pop(member.member_id, None)
        if member.instance_id is not None and group.instances.get(member.instance_id) == member.member_id:
            del group.instances[member.instance_id]
        for waiting in (member.join, member.sync):
            if waiting is not None:
                waiting({"error_code": ErrorCode.UNKNOWN_MEMBER_ID, "member_id": member.member_id})
        member.join = member.sync = None

    def _become_empty(self, group: Group) -> None:
        group.state, group.leader, group.protocol, group.join_deadline_s = GroupState.EMPTY, "", None, None

    def _forget_if_unused(self, group: Group) -> None:
        if not group.members and not group.promised and self.groups.get(group.name) is group:
            del self.groups[group.name]

    # -- members

    def _known(
        self, group_name: str, member_id: str, generation: int, instance_id: str | None
    ) -> tuple[Group | None, ErrorCode]:
        group = self.groups.get(group_name)
        if group is None:
            return None, ErrorCode.UNKNOWN_MEMBER_ID
        if instance_id is not None and group.instances.get(instance_id, member_id) != member_id:
            return group, ErrorCode.FENCED_INSTANCE_ID
        if member_id not in group.members:
            return group, ErrorCode.UNKNOWN_MEMBER_ID
        if generation != group.generation:
            return group, ErrorCode.ILLEGAL_GENERATION
        return group, ErrorCode.NONE

    def _hear(self, member: Member, now_s: float) -> None:
        member.expires_at_s = now_s + member.session_timeout_s


def _common_protocols(members: Sequence[Member]) -> set[str]:
    common = {name for name, _ in members[0].protocols}
    for member in members[1:]:
        common &= {name for name, _ in member.protocols}
    return common


def _chosen_protocol(members: Sequence[Member]) -> str:
    """Return the protocol that most members prefer among those that all of them know."""
    common = _common_protocols(members)
    votes: dict[str, int] = {}
    for member in members:
        choice = next(name for name, _ in member.protocols if name in common)
        votes[choice] = votes.get(choice, 0) + 1
    return max(votes, key=lambda name: votes[name])


def _joined(group: Group, member: Member) -> dict[str, object]:
    protocol = group.protocol or ""
    is_leader = member.member_id == group.leader
    members = [
        {"member_id": one.member_id, "group_instance_id": one.instance_id, "metadata": one.metadata(protocol)}
        for one in (group.members.values() if is_leader else ())
    ]
    return {
        "error_code": ErrorCode.NONE,
        "generation_id": group.generation,
        "protocol_type": group.protocol_type,
        "protocol_name": protocol,
        "leader": group.leader,
        "member_id": member.member_id,
        "members": members,
    }


def _join_error(error: ErrorCode, member_id: str = "") -> dict[str, object]:
    return {"error_code": error, "generation_id": NO_GENERATION, "protocol_name": "", "member_id": member_id}


def _assigned(group: Group, member: Member) -> dict[str, object]:
    return {
        "error_code": ErrorCode.NONE,
        "protocol_type": group.protocol_type,
        "protocol_name": group.protocol,
        "assignment": member.assignment,
    }


def _answer_sync(group: Group, member: Member) -> None:
    answer, member.sync = member.sync, None
    if answer is not None:
        answer(_assigned(group, member))


def _supersede(answer: Answer | None) -> None:
    """Answer a request that the same member has sent again."""
    if answer is not None:
        answer({"error_code": ErrorCode.REBALANCE_IN_PROGRESS})
