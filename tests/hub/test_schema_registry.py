"""The schema registry of a namespace: versions, ids, rules, deletions, and what a restart finds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tidegate.hub.schema_registry import EntriesMoved, LoggedSchemas, SchemaRegistry
from tidegate.hub.schema_state import (
    INCOMPATIBLE,
    INVALID_SCHEMA,
    INVALID_SUBJECT,
    INVALID_VERSION,
    NOT_PERMITTED,
    NOT_STORED,
    REFERENCE_EXISTS,
    SCHEMA_NOT_FOUND,
    SUBJECT_NOT_FOUND,
    SUBJECT_NOT_SOFT_DELETED,
    SUBJECT_SOFT_DELETED,
    VERSION_NOT_FOUND,
    VERSION_NOT_SOFT_DELETED,
    VERSION_SOFT_DELETED,
    Mode,
    SchemaRefused,
    SubjectName,
)
from tidegate.log import Committer, LogClock, LogError
from tidegate.schemas import Compatibility, Reference, SchemaFormat, SchemaText

G, S = "default", "tolls-value"


def avro(*names: str) -> SchemaText:
    fields = [{"name": name, "type": "int", "default": 0} for name in names]
    return SchemaText(SchemaFormat.AVRO, json.dumps({"type": "record", "name": "R", "fields": fields}))


@pytest.fixture
def open_registry(tmp_path: Path) -> Iterator[Callable[[], SchemaRegistry]]:
    with closing(Committer()) as committer, closing(LogClock(tmp_path / "clock")) as clock:
        yield lambda: SchemaRegistry(LoggedSchemas(tmp_path / "schemas", clock, committer), clock)


@pytest.fixture
def registry(open_registry: Callable[[], SchemaRegistry]) -> Iterator[SchemaRegistry]:
    with closing(open_registry()) as made:
        yield made


def code_of(call: Callable[..., Any], *arguments: Any, **named: Any) -> int:
    with pytest.raises(SchemaRefused) as refused:
        call(*arguments, **named)
    return refused.value.code


def test_the_same_schema_has_one_id_everywhere_and_one_version_in_a_subject(registry: SchemaRegistry) -> None:
    first = registry.register(G, S, avro("a"))
    assert registry.register(G, S, avro("a")) == first
    second = registry.register(G, S, avro("a", "b"))
    elsewhere = registry.register("other", "x", avro("a"))
    assert [(one.version, one.schema_id) for one in (first, second, elsewhere)] == [(1, 1), (2, 2), (1, 1)]
    assert len({first.own_id, second.own_id, elsewhere.own_id}) == 3
    assert registry.with_own_id(elsewhere.own_id) == elsewhere
    assert {(one.group, one.subject) for one in registry.with_id(1)} == {(G, S), ("other", "x")}
    assert registry.with_content_id(second.content_id) == [second]
    assert registry.find(G, S, avro("a")) == first
    assert registry.subjects() == [(G, S), ("other", "x")]
    assert code_of(registry.find, G, S, avro("c")) == SCHEMA_NOT_FOUND
    assert code_of(registry.version, G, S, 3) == VERSION_NOT_FOUND
    assert code_of(registry.versions, G, "none") == SUBJECT_NOT_FOUND


def test_a_restart_finds_what_was_there(open_registry: Callable[[], SchemaRegistry]) -> None:
    with closing(open_registry()) as registry:
        registry.register(G, S, avro("a"))
        registry.register(G, S, avro("a", "b"))
        registry.delete(G, S, 1, is_permanent=False)
        registry.set_compatibility(G, S, Compatibility.FULL)
        registry.set_mode(G, S, Mode.READONLY)
        registry.put_group(
            "g", schema_format=SchemaFormat.JSON, compatibility=Compatibility.FORWARD, properties={"x": "y"}
        )
        before = registry.versions(G, S, deleted=True), registry.groups()
    with closing(open_registry()) as registry:
        assert (registry.versions(G, S, deleted=True), registry.groups()) == before
        assert [one.version for one in registry.versions(G, S)] == [2]
        assert (registry.compatibility(G, S), registry.mode(G, S)) == (Compatibility.FULL, Mode.READONLY)
        assert registry.register("g2", "s", avro("z")).schema_id == 3


def test_ids_are_not_given_again_after_damage(
    open_registry: Callable[[], SchemaRegistry], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(open_registry()) as registry:
        for name in "abc":
            registry.register(G, name, avro(name))
    (segment,) = sorted((tmp_path / "schemas").glob("*.log"))
    data = bytearray(segment.read_bytes())
    data[data.index(b'"subject":"b"') + 12] ^= 1
    segment.write_bytes(data)
    with closing(open_registry()) as registry:
        assert [name for _, name in registry.subjects()] == ["a", "c"]
        assert "schemas are lost" in caplog.text
        assert registry.register(G, "d", avro("d")).schema_id >= 4


def test_what_may_not_follow_is_refused_with_the_reason(registry: SchemaRegistry) -> None:
    registry.register(G, S, avro("a"))
    text = '{"type":"record","name":"R","fields":[{"name":"b","type":"int"}]}'
    with pytest.raises(SchemaRefused, match="READER_FIELD_MISSING_DEFAULT_VALUE at /b") as refused:
        registry.register(G, S, SchemaText(SchemaFormat.AVRO, text))
    assert refused.value.code == INCOMPATIBLE
    registry.set_compatibility(G, S, Compatibility.NONE)
    assert registry.register(G, S, SchemaText(SchemaFormat.AVRO, text)).version == 2
    assert code_of(registry.register, G, S, SchemaText(SchemaFormat.AVRO, "{")) == INVALID_SCHEMA


def test_a_deletion_is_soft_at_first(registry: SchemaRegistry) -> None:
    for names in ("a", "ab", "abc"):
        registry.register(G, S, avro(*names))
    assert code_of(registry.delete, G, S, 1, is_permanent=True) == VERSION_NOT_SOFT_DELETED
    assert registry.delete(G, S, 1, is_permanent=False) == [1]
    assert code_of(registry.delete, G, S, 1, is_permanent=False) == VERSION_SOFT_DELETED
    assert registry.with_id(1)
    assert registry.register(G, S, avro("a")).version == 4
    assert registry.delete(G, S, 1, is_permanent=True) == [1]
    assert registry.with_id(1)[0].version == 4
    assert code_of(registry.delete, G, S, None, is_permanent=True) == SUBJECT_NOT_SOFT_DELETED
    assert registry.delete(G, S, None, is_permanent=False) == [2, 3, 4]
    assert code_of(registry.delete, G, S, None, is_permanent=False) == SUBJECT_SOFT_DELETED
    assert (registry.subjects(), registry.subjects(deleted=True)) == ([], [(G, S)])
    assert registry.delete(G, S, None, is_permanent=True) == [2, 3, 4]
    assert code_of(registry.with_id, 1) == SCHEMA_NOT_FOUND
    again = registry.register(G, S, avro("a"))
    assert (again.version, again.schema_id) == (1, 4)


def test_what_others_refer_to_stays(registry: SchemaRegistry) -> None:
    registry.register(G, "inner", avro("a"))
    references = [Reference("R", "inner", 1)]
    text = '{"type":"record","name":"O","fields":[{"name":"r","type":"R"}]}'
    schema = registry.schema(SchemaFormat.AVRO, text, references)
    outer = registry.register(G, "outer", schema)
    assert registry.referring(G, "inner", 1) == [outer]
    assert code_of(registry.delete, G, "inner", 1, is_permanent=False) == REFERENCE_EXISTS
    registry.delete(G, "outer", None, is_permanent=False)
    assert registry.delete(G, "inner", 1, is_permanent=False) == [1]
    missing = [Reference("R", "inner", 9)]
    assert code_of(registry.schema, SchemaFormat.AVRO, text, missing) == INVALID_SCHEMA


def test_modes(registry: SchemaRegistry) -> None:
    assert code_of(registry.register, G, S, avro("a"), schema_id=7) == NOT_PERMITTED
    registry.set_mode(G, S, Mode.IMPORT)
    assert code_of(registry.register, G, S, avro("a")) == NOT_PERMITTED
    imported = registry.register(G, S, avro("a"), schema_id=70, number=5)
    assert (imported.schema_id, imported.version) == (70, 5)
    assert code_of(registry.register, G, S, avro("z"), schema_id=70, number=6) == NOT_PERMITTED
    assert code_of(registry.register, G, S, avro("z"), schema_id=71, number=5) == INVALID_VERSION
    registry.set_mode(G, S, Mode.READONLY)
    assert registry.register(G, S, avro("a")) == imported
    assert code_of(registry.register, G, S, avro("b")) == NOT_PERMITTED
    assert code_of(registry.delete, G, S, None, is_permanent=False) == NOT_PERMITTED
    registry.set_mode(G, S, None)
    assert registry.register(G, S, avro("a", "b")).schema_id == 71


def test_groups(registry: SchemaRegistry) -> None:
    group = registry.put_group("Readings", schema_format=SchemaFormat.AVRO)
    assert (group.compatibility, group.mode) == (Compatibility.NONE, Mode.READWRITE)
    assert registry.put_group("readings", compatibility=Compatibility.BACKWARD).name == "Readings"
    assert code_of(registry.put_group, "readings", schema_format=SchemaFormat.JSON) == NOT_PERMITTED
    assert code_of(registry.register, "READINGS", "s", SchemaText(SchemaFormat.JSON, "{}")) == INVALID_SCHEMA
    assert registry.register("READINGS", "s", avro("a")).group == "Readings"
    assert code_of(registry.put_group, "a/b") == INVALID_SUBJECT
    registry.delete_group("readings")
    assert [one.name for one in registry.groups()] == ["default"]
    assert registry.subjects(deleted=True) == []


def test_names_of_subjects() -> None:
    for text, expected in (("a:b", (G, "a:b")), (":.g:a:b", ("g", "a:b")), (":.:a", (G, "a"))):
        assert SubjectName.parse(text) == expected
    assert SubjectName.text("g", "a") == ":.g:a"
    assert code_of(SubjectName.parse, "a\nb") == INVALID_SUBJECT


class SharedLog:
    """Entries that several registries share, as gateways do: each reads on only when it appends."""

    def __init__(self) -> None:
        self.entries: list[Any] = []
        self.before_append: Callable[[], None] = lambda: None

    def opened(self) -> SharedView:
        return SharedView(self)


class SharedView:
    """One gateway's view of the entries."""

    def __init__(self, shared: SharedLog) -> None:
        self._shared = shared
        self._read = 0

    def follow(self, apply: Callable[[Any], None]) -> None:
        self._apply = apply
        self.catch_up()

    def catch_up(self) -> None:
        for entry in self._shared.entries[self._read :]:
            self._apply(entry)
        self._read = len(self._shared.entries)

    def append(self, number: int, entry: Any) -> None:
        self._shared.before_append()
        if number != len(self._shared.entries) + 1:
            self.catch_up()
            raise EntriesMoved("moved")
        self._shared.entries.append(json.loads(json.dumps(entry)))
        self.catch_up()

    def close(self) -> None:
        """Nothing is held."""


def test_registries_of_gateways_agree_though_both_change_at_once(tmp_path: Path) -> None:
    shared = SharedLog()
    with closing(LogClock(tmp_path / "clock")) as clock:
        a, b = (SchemaRegistry(shared.opened(), clock) for _ in range(2))
        theirs: list[Any] = []

        def b_is_first() -> None:
            shared.before_append = lambda: None
            theirs.append(b.register(G, S, avro("b")))

        shared.before_append = b_is_first
        ours = a.register(G, S, avro("a"))
        assert [(one.version, one.schema_id) for one in (*theirs, ours)] == [(1, 1), (2, 2)]
        assert b.register(G, S, avro("a")) == ours

        def b_forbids_it() -> None:
            shared.before_append = lambda: None
            b.put_group(G, mode=Mode.READONLY)

        shared.before_append = b_forbids_it
        assert code_of(a.register, G, S, avro("c")) == NOT_PERMITTED


def test_a_change_gives_up_if_others_are_always_first(tmp_path: Path) -> None:
    shared = SharedLog()
    with closing(LogClock(tmp_path / "clock")) as clock:
        registry = SchemaRegistry(shared.opened(), clock)
        shared.before_append = lambda: shared.entries.append({"do": "remove-group", "group": "none"})
        assert code_of(registry.register, G, S, avro("a")) == NOT_STORED


def test_a_refusal_counts_only_if_nothing_was_missing(tmp_path: Path) -> None:
    shared = SharedLog()
    with closing(LogClock(tmp_path / "clock")) as clock:
        logs = shared.opened(), shared.opened()
        a, b = (SchemaRegistry(log, clock) for log in logs)
        registered = a.register(G, S, avro("a"))
        assert code_of(b.with_id, registered.schema_id) == SCHEMA_NOT_FOUND
        assert b.answer(lambda: b.with_id(registered.schema_id)) == [registered]
        asked: list[int] = []

        def ask() -> None:
            asked.append(1)
            b.with_id(99)

        assert code_of(b.answer, ask) == SCHEMA_NOT_FOUND
        assert len(asked) == 1

        def fail() -> None:
            raise LogError("no broker answers")

        logs[1].catch_up = fail
        assert code_of(b.answer, ask) == NOT_STORED
