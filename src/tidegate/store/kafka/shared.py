"""What gateways share: a state machine whose commands are the records of one compacted topic.

Every gateway applies the records in the order of their offsets, so all have the same state at the same offset. What a
record does depends only on the state before it; no clock takes part. A gateway that wants something writes a record,
and has what it wanted once it has read its own record back and the state machine has granted it.

    key                     value
    definitions/GATEWAY     version and state: what the namespace consists of; counts if the version is a higher one
    gateway/GATEWAY         the gateway serves the namespace from now on
    beat/GATEWAY            a sign of life, with what the gateway reports, such as the throughput units that it used
    silence/GATEWAY/BY      another gateway declares it dead: it has given no sign of life since an offset
    claim/GATEWAY/ID        a reader of a partition in a consumer group, with its owner level if it has one
    task/GATEWAY/NAME       the gateway does something that only one may do, such as the capture of a partition
    document/GATEWAY/NAME   version and content of a small document; counts if the version is a higher one
    entry/GATEWAY/ID        an entry of a list, such as that of the schema registry; counts if its number is the next

A record without a value withdraws what its key stands for. Keys name their gateway, so that a record which was not
granted never hides one that was when the topic is compacted: versions only rise, and a claim or task that was not
granted is withdrawn by its own gateway. Signs of life, of which only the last remains, have keys of their own for the
same reason: what a gateway was granted counts because its record `gateway/GATEWAY` comes first. Each attempt to write
an entry has an id of its own: were a record with an entry repeated, compaction would move the entry behind later ones.

A gateway gives a sign of life every second. If it does not read its own back for `LOST_AFTER_S`, it ends its links with
an owner level by itself. Others declare it dead only after twice as long, each by its own monotonic clock, and the
record that declares it names the last sign of life that its writer knew: a later one makes it void, and its writer
withdraws it. So two gateways never both let a reader own a partition, however wrong clocks are, as long as they run at
about the same speed. A gateway that was declared dead and is not begins anew with a record `gateway/GATEWAY`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

LOST_AFTER_S = 5.0
DEAD_AFTER_S = 10.0
BEAT_S = 1.0
MAX_READERS = 5


@dataclass(frozen=True, slots=True)
class Claim:
    """A reader of a partition in a consumer group.

    Attributes:
        claim_id: Drawn by its gateway.
        gateway: The gateway that the reader is connected to.
        resource: What is read: hub, partition and consumer group.
        level: The owner level, None for a reader without one.
        name: For people.
    """

    claim_id: str
    gateway: str
    resource: str
    level: int | None
    name: str


@dataclass(slots=True)
class Verdict:
    """What became of a claim when its record was applied.

    Attributes:
        claim: The claim.
        refusal: Why it was not granted, None if it was.
        highest_level: The highest owner level of those who have the partition, None if none has any.
        evicted: The claims that had to give way.
    """

    claim: Claim
    refusal: str | None = None
    highest_level: int | None = None
    evicted: list[Claim] = field(default_factory=list)


@dataclass(slots=True)
class SharedDocument:
    """A small document.

    Attributes:
        version: How often it was replaced, at least.
        by: The gateway that wrote it last.
        content: Its members.
        keys: The keys of all records that hold a version of it.
    """

    version: int
    by: str
    content: Mapping[str, Any]
    keys: set[str]


@dataclass(slots=True)
class SharedState:
    """The state after some records. `apply` is the whole of the state machine.

    Attributes:
        version: The version of the definitions, 0 before there are any.
        definitions: What the namespace consists of.
        gateways: The live gateways, with the offset of the last sign of life of each.
        reports: What each live gateway reported with its last sign of life.
        claims: The granted claims by resource, in the order in which they were granted.
        tasks: By name, the gateway that does what only one may do.
        documents: The documents by name.
        entries: The entries of each list in their order, with the keys of their records.
    """

    version: int = 0
    definitions: Any = None
    definitions_by: str = ""
    gateways: dict[str, int] = field(default_factory=dict)
    reports: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    claims: dict[str, list[Claim]] = field(default_factory=dict)
    tasks: dict[str, str] = field(default_factory=dict)
    documents: dict[str, SharedDocument] = field(default_factory=dict)
    entries: dict[str, list[tuple[str, Mapping[str, Any]]]] = field(default_factory=dict)

    def apply(self, offset: int, key: str, value: Mapping[str, Any] | None) -> Verdict | None:
        """Apply the record at an offset, and return the verdict if it is a claim. Unknown records change nothing."""
        kind, _, rest = key.partition("/")
        if kind == "definitions":
            if value is not None and int(value["version"]) > self.version:
                self.version, self.definitions, self.definitions_by = int(value["version"]), value["state"], rest
        elif kind == "gateway":
            if value is None:
                self._remove(rest)
            else:
                self.gateways[rest] = offset
                self.reports[rest] = {}
        elif kind == "beat":
            if value is not None and rest in self.gateways:
                self.gateways[rest] = offset
                self.reports[rest] = value.get("report") or {}
        elif kind == "silence":
            gateway = rest.partition("/")[0]
            if value is not None and self.gateways.get(gateway, offset) <= int(value["silent_since"]):
                self._remove(gateway)
        elif kind == "claim":
            return self._apply_claim(rest, value)
        elif kind == "task":
            self._apply_task(rest, value)
        elif kind == "document":
            self._apply_document(key, rest, value)
        elif kind == "entry" and value is not None:
            listed = self.entries.setdefault(str(value["list"]), [])
            if int(value["number"]) == len(listed) + 1:
                listed.append((key, value["entry"]))
        return None

    def counts(self, keys: Collection[str], name: str, number: int) -> bool:
        """Return whether one of some records is the entry of a number in a list."""
        listed = self.entries.get(name, [])
        return 0 < number <= len(listed) and listed[number - 1][0] in keys

    def _remove(self, gateway: str) -> None:
        self.gateways.pop(gateway, None)
        self.reports.pop(gateway, None)
        for resource in list(self.claims):
            self._keep(resource, [one for one in self.claims[resource] if one.gateway != gateway])
        for name in [name for name, by in self.tasks.items() if by == gateway]:
            del self.tasks[name]

    def _apply_task(self, rest: str, value: Mapping[str, Any] | None) -> None:
        gateway, _, name = rest.partition("/")
        if value is None:
            if self.tasks.get(name) == gateway:
                del self.tasks[name]
        elif gateway in self.gateways:
            self.tasks.setdefault(name, gateway)

    def _apply_document(self, key: str, rest: str, value: Mapping[str, Any] | None) -> None:
        gateway, _, name = rest.partition("/")
        known = self.documents.get(name)
        if value is not None:
            version, content = int(value["version"]), value["content"]
            if known is None:
                self.documents[name] = SharedDocument(version, gateway, content, {key})
                return
            known.keys.add(key)
            if version > known.version:
                known.version, known.by, known.content = version, gateway, content
        elif known is not None:
            known.keys.discard(key)
            if not known.keys:
                del self.documents[name]

    def _apply_claim(self, rest: str, value: Mapping[str, Any] | None) -> Verdict | None:
        gateway, _, claim_id = rest.partition("/")
        if value is None:
            for resource in list(self.claims):
                self._keep(resource, [one for one in self.claims[resource] if one.claim_id != claim_id])
            return None
        level = value.get("level")
        claim = Claim(claim_id, gateway, str(value["resource"]), level, str(value.get("name", "")))
        if gateway not in self.gateways:
            return Verdict(claim, "dead")
        holders = self.claims.get(claim.resource, [])
        if claim in holders:
            return Verdict(claim)  # the record was repeated
        highest = max((one.level for one in holders if one.level is not None), default=None)
        if level is None:
            if highest is not None:
                return Verdict(claim, "owned", highest)
            if len(holders) >= MAX_READERS:
                return Verdict(claim, "full")
            self._keep(claim.resource, [*holders, claim])
            return Verdict(claim)
        if highest is not None and highest > level:
            return Verdict(claim, "owned", highest)
        self._keep(claim.resource, [claim])
        return Verdict(claim, None, level, holders)

    def _keep(self, resource: str, claims: list[Claim]) -> None:
        if claims:
            self.claims[resource] = claims
        else:
            self.claims.pop(resource, None)
