"""What a namespace keeps over a restart, and what can be changed while it runs."""

from __future__ import annotations

import json
import stat
import time
from pathlib import Path

import pytest

from tests.hub.support import CONFIG, NOW_S, events, grant, message, open_namespace, publish, token
from tests.log.support import SetClock
from tidegate.durable_files import DirectoryLocked, FileDamaged
from tidegate.hub import ConfigError, EventHubConfig, Namespace, NamespaceConfig
from tidegate.hub.access_rules import EMULATOR_KEY, ROOT_RULE, AccessRule, Right
from tidegate.hub.errors import AlreadyExists, ArgumentError, NotFound, QuotaExceeded, Unauthorized
from tidegate.hub.group_offsets import GroupOffset, GroupOffsets, PartitionKey


def config(*hubs: EventHubConfig) -> NamespaceConfig:
    return NamespaceConfig(name="ns", event_hubs=hubs)


def send(namespace: Namespace, target: str, body: bytes = b"x") -> None:
    publish(namespace.open_publisher(target, [grant(namespace)], NOW_S), message(body))


def test_events_and_state_are_there_after_a_restart(tmp_path: Path) -> None:
    clock = SetClock(5000)
    namespace = open_namespace(tmp_path, clock=clock)
    send(namespace, "tolls/Partitions/1")
    namespace.management.create_event_hub(EventHubConfig(name="made-later", partition_count=3))
    namespace.management.create_consumer_group("tolls", "added")
    namespace.management.set_access_rule(AccessRule("r", frozenset({Right.SEND}), "one", "two"), "tolls")
    rolled = namespace.management.roll_key("r", "primary", "tolls")
    namespace.management.revoke_publisher("tolls", "gate")
    before = {name: hub.properties() for name, hub in namespace.event_hubs.items()}
    stored = events(namespace)
    namespace.close()
    clock.time_ms = 99_000
    again = open_namespace(tmp_path, clock=clock)
    assert {name: hub.properties() for name, hub in again.event_hubs.items()} == before
    assert events(again) == stored
    assert again.event_hub("tolls").consumer_groups == ("$Default", "cg1", "added")
    assert again.access.rule_table.rule("r", "tolls") == rolled
    assert again.event_hub("tolls").is_revoked("GATE")
    assert again.event_hub("made-later").definition.created_at_ms == 5000
    again.close()


def test_a_partition_count_is_fixed_at_creation(tmp_path: Path) -> None:
    open_namespace(tmp_path, config(EventHubConfig(name="tolls", partition_count=4))).close()
    with pytest.raises(ConfigError, match=r"Tolls.*8 partitions.*created with 4"):
        open_namespace(tmp_path, config(EventHubConfig(name="Tolls", partition_count=8)))
    again = open_namespace(tmp_path, config(EventHubConfig(name="tolls", partition_count=4)))
    assert len(again.event_hub("tolls").partitions) == 4
    again.close()


def test_a_hub_that_the_configuration_no_longer_names_stays(tmp_path: Path) -> None:
    namespace = open_namespace(tmp_path)
    send(namespace, "tolls/Partitions/0")
    namespace.close()
    again = open_namespace(tmp_path, config(EventHubConfig(name="new")))
    assert sorted(again.event_hubs) == ["new", "other", "tolls"]
    assert events(again)
    again.close()


def test_an_initial_configuration_is_for_a_namespace_without_hubs(tmp_path: Path) -> None:
    hub = EventHubConfig(name="eh1", partition_count=4)
    initial = NamespaceConfig(name="first", event_hubs=(hub,), is_initial=True)
    open_namespace(tmp_path, config(EventHubConfig(name="eh1", partition_count=2))).close()
    again = open_namespace(tmp_path, initial)
    assert (again.name, len(again.event_hub("eh1").partitions)) == ("ns", 2)
    again.management.create_event_hub(EventHubConfig(name="orders"))
    again.management.delete_event_hub("eh1")
    again.close()
    open_namespace(tmp_path, initial).close()
    for one in (tmp_path, tmp_path / "new"):
        served = open_namespace(one, initial)
        assert sorted(served.event_hubs) == (["orders"] if one == tmp_path else ["eh1"])
        served.close()


def test_one_process_has_the_directory(tmp_path: Path) -> None:
    namespace = open_namespace(tmp_path)
    with pytest.raises(DirectoryLocked, match="in use by process"):
        open_namespace(tmp_path)
    namespace.close()
    open_namespace(tmp_path).close()


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"name": "x", "rules": 7}', "\ud800"])
def test_a_state_file_that_cannot_be_used_is_named(tmp_path: Path, text: str) -> None:
    open_namespace(tmp_path).close()
    (tmp_path / "namespace.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(
        (ConfigError, FileDamaged), match=r"namespace\.json (cannot be used|is damaged).*restore it from a backup"
    ):
        open_namespace(tmp_path)
    assert (tmp_path / "namespace.json").read_bytes() == text.encode("utf-8", "surrogatepass"), "it is left as it was"


def test_the_state_file_is_for_its_owner_only(tmp_path: Path) -> None:
    open_namespace(tmp_path).close()
    assert stat.S_IMODE((tmp_path / "namespace.json").stat().st_mode) == 0o600
    assert json.loads((tmp_path / "namespace.json").read_text())["name"] == "ns"


def test_a_hub_that_is_deleted_takes_its_events_and_rules_along(tmp_path: Path) -> None:
    namespace = open_namespace(tmp_path)
    namespace.management.set_access_rule(AccessRule("r", frozenset({Right.SEND}), "one", "two"), "tolls")
    send(namespace, "tolls/Partitions/0")
    namespace.management.delete_event_hub("TOLLS")
    with pytest.raises(NotFound):
        send(namespace, "tolls")
    assert not list(tmp_path.glob("hubs/tolls*"))
    namespace.management.create_event_hub(EventHubConfig(name="tolls", partition_count=1))
    assert events(namespace) == {}
    assert namespace.access.rule_table.rules("tolls") == []
    with pytest.raises(Unauthorized):
        namespace.access.check_token(token("tolls", rule="r", key="one"), NOW_S)
    with pytest.raises(ArgumentError, match="already"):
        namespace.management.create_event_hub(EventHubConfig(name="Tolls"))
    namespace.close()


def test_a_missing_consumer_group_is_answered_with_no_name_but_the_default(tmp_path: Path) -> None:
    hub = open_namespace(tmp_path, CONFIG).event_hub("tolls")
    with pytest.raises(NotFound, match=r"no consumer group 'nobody'; create it, or read in \$Default"):
        hub.consumer_group("nobody")


def test_consumer_groups_come_and_go(tmp_path: Path) -> None:
    namespace = open_namespace(tmp_path, CONFIG.model_copy(update={"throughput_units": 1}))
    for number in range(19):
        namespace.management.create_consumer_group("tolls", f"g{number}")
    with pytest.raises(QuotaExceeded):
        namespace.management.create_consumer_group("tolls", "one-more")
    namespace.management.delete_consumer_group("tolls", "G3")
    namespace.management.create_consumer_group("tolls", "one-more")
    namespace.management.delete_consumer_group("tolls", "one-more")
    for wrong in ("g1", "no spaces", "x" * 51, ""):
        with pytest.raises(ArgumentError):
            namespace.management.create_consumer_group("tolls", wrong)
    with pytest.raises(ArgumentError):
        namespace.management.delete_consumer_group("tolls", "$default")
    with pytest.raises(NotFound):
        namespace.management.delete_consumer_group("tolls", "nobody")
    with pytest.raises(NotFound):
        namespace.management.create_consumer_group("nowhere", "g")
    namespace.close()


def test_what_can_be_changed_of_a_hub_and_what_cannot(tmp_path: Path) -> None:
    namespace = open_namespace(tmp_path)
    namespace.management.update_event_hub("TOLLS", retention_ms=3_600_000, user_metadata="the bridge's")
    namespace.management.update_consumer_group("tolls", "CG1", "for billing")
    namespace.management.update_event_hub("tolls", partition_count=4)
    with pytest.raises(ArgumentError, match="created with 4 partitions, which cannot change"):
        namespace.management.update_event_hub("tolls", partition_count=8, user_metadata="lost")
    for wrong in ({"retention_ms": -1}, {"user_metadata": "x" * 1025}, {"nonsense": 1}):
        with pytest.raises(ArgumentError):
            namespace.management.update_event_hub("tolls", **wrong)
    with pytest.raises(NotFound):
        namespace.management.update_event_hub("nowhere", retention_ms=1)
    with pytest.raises(NotFound):
        namespace.management.update_consumer_group("tolls", "nobody", "x")
    namespace.close()
    again = open_namespace(tmp_path)
    config = again.event_hub("tolls").config
    assert (config.retention_ms, config.user_metadata) == (3_600_000, "the bridge's")
    assert config.group_metadata == {"cg1": "for billing"}
    again.close()


def test_rules_get_other_rights_and_keep_their_keys(tmp_path: Path) -> None:
    namespace = open_namespace(tmp_path)
    first = AccessRule.create("r", [Right.SEND])
    namespace.management.create_access_rule(first, "tolls")
    with pytest.raises(AlreadyExists):
        namespace.management.create_access_rule(AccessRule.create("R", [Right.SEND]), "tolls")
    changed = namespace.management.update_access_rule("r", [Right.LISTEN], "tolls")
    assert (changed.rights, changed.keys) == (frozenset({Right.LISTEN}), first.keys)
    with pytest.raises(ArgumentError, match="keep at least one rule"):
        namespace.management.update_access_rule(ROOT_RULE, [Right.SEND])
    with pytest.raises(NotFound):
        namespace.management.update_access_rule("nobody", [Right.SEND])
    namespace.close()


def test_who_holds_on_to_a_deleted_hub_is_told(tmp_path: Path) -> None:
    namespace = open_namespace(tmp_path)
    grants = [grant(namespace)]
    publisher = namespace.open_publisher("tolls/Partitions/0", grants, NOW_S)
    reader = namespace.open_reader("tolls/ConsumerGroups/cg1/Partitions/0", grants, NOW_S, on_stolen=lambda _: None)
    other = namespace.open_reader("other/ConsumerGroups/$Default/Partitions/0", grants, NOW_S, on_stolen=lambda _: None)
    publisher.check()
    reader.check()
    namespace.management.delete_consumer_group("tolls", "cg1")
    with pytest.raises(NotFound):
        reader.check()
    namespace.management.delete_event_hub("tolls")
    for held in (publisher.check, lambda: publish(publisher, message(b"x"))):
        with pytest.raises(NotFound):
            held()
    other.check()
    namespace.close()


def test_a_deletion_that_a_crash_cut_short_is_finished_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = open_namespace(tmp_path)
    send(namespace, "tolls")
    send(namespace, "other")
    monkeypatch.setattr("shutil.rmtree", lambda path: (_ for _ in ()).throw(OSError("the machine stopped here")))
    namespace.management.delete_event_hub("tolls")
    monkeypatch.undo()
    assert list(tmp_path.glob("hubs/tolls*"))
    namespace.close()
    again = open_namespace(tmp_path, config())
    assert not list(tmp_path.glob("hubs/tolls*"))
    assert events(again, "other")
    again.close()


def test_what_of_a_deleted_hub_could_not_be_removed_is_removed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    namespace = open_namespace(tmp_path)
    monkeypatch.setattr("shutil.rmtree", lambda path: (_ for _ in ()).throw(OSError("not empty")))
    namespace.management.delete_event_hub("tolls")
    assert "cannot be removed yet: not empty" in caplog.text
    monkeypatch.undo()
    namespace.apply_retention()
    assert not list(tmp_path.glob("hubs/tolls*"))
    namespace.close()


def test_properties(tmp_path: Path) -> None:
    clock = SetClock(5000)
    namespace = open_namespace(tmp_path, clock=clock)
    grants = [grant(namespace)]
    hub = namespace.open_management("tolls", grants, NOW_S)
    assert (hub.properties().name, hub.properties().partition_ids) == ("tolls", ("0", "1", "2", "3"))
    assert namespace.open_management("sb://host/TOLLS", grants, NOW_S) is hub
    empty = hub.partition("1").properties()
    assert (empty.begin_sequence_number, empty.last_enqueued_sequence_number) == (-1, -1)
    assert (empty.last_enqueued_offset, empty.last_enqueued_time_ms, empty.is_empty) == ("-1", 0, True)
    clock.time_ms = 7000
    send(namespace, "tolls/Partitions/1")
    send(namespace, "tolls/Partitions/1")
    state = hub.partition("1").properties()
    assert (state.name, state.partition_id) == ("tolls", "1")
    assert (state.begin_sequence_number, state.last_enqueued_sequence_number) == (0, 1)
    assert state.last_enqueued_offset == str(hub.partition("1").log.last_offset)
    assert (state.last_enqueued_time_ms, state.is_empty) == (7000, False)
    for wrong in ("", "sb://host"):
        with pytest.raises(ArgumentError):
            namespace.open_management(wrong, grants, NOW_S)
    namespace.close()


def test_a_machine_whose_clock_was_ahead_for_a_moment_deletes_nothing_early(tmp_path: Path) -> None:
    day_ms = 86_400_000
    clock = SetClock(time.time_ns() // 1_000_000)
    namespace = open_namespace(tmp_path, config(EventHubConfig(name="kept", retention_ms=day_ms)), clock=clock)
    send(namespace, "kept")
    key, offsets = PartitionKey("kept", 0), namespace.group_offsets
    assert isinstance(offsets, GroupOffsets)
    offsets.commit("g", {key: GroupOffset(1, -1, None, offsets.now_ms())}, lambda _: None)
    clock.time_ms += 30 * day_ms  # where it stays, as it never goes back
    assert namespace.apply_retention() == 0
    offsets.expire(lambda group, key: False)
    namespace.close()
    namespace = open_namespace(tmp_path, config(EventHubConfig(name="kept", retention_ms=day_ms)), clock=clock)
    assert events(namespace, "kept") != {}
    assert namespace.group_offsets.groups() == ["g"]
    namespace.close()


def test_retention_goes_by_each_hubs_own_time(tmp_path: Path) -> None:
    clock = SetClock(1000)
    namespace = open_namespace(
        tmp_path, config(EventHubConfig(name="short", retention_ms=500), EventHubConfig(name="long")), clock=clock
    )
    for hub in ("short", "long"):
        send(namespace, hub)
    clock.time_ms = 1400
    assert namespace.apply_retention() == 0
    clock.time_ms = 1600
    assert namespace.apply_retention() == 1
    assert events(namespace, "short") == {}
    assert events(namespace, "long") != {}
    state = namespace.event_hub("short").partition("0").properties()
    assert (state.begin_sequence_number, state.last_enqueued_sequence_number, state.is_empty) == (1, 0, True)
    namespace.close()


def test_events_are_gone_soon_after_their_time_although_others_follow(tmp_path: Path) -> None:
    """Segments are what is deleted: an active one must not grow so old that retention is not kept to."""
    clock = SetClock(1_000_000)
    hour = 3_600_000
    namespace = open_namespace(tmp_path, config(EventHubConfig(name="slow", retention_ms=8 * hour)), clock=clock)
    log = namespace.event_hub("slow").partition("0").log
    for _ in range(4 * 24):
        clock.time_ms += hour // 4
        send(namespace, "slow")
        namespace.apply_retention()
        batches = log.read_batches(log.begin_sequence_number, max_events=1)
        age_ms = clock.time_ms - batches[0].enqueued_time_ms
        assert age_ms <= 8 * hour + hour + hour // 4
    assert age_ms >= 8 * hour - hour // 4
    namespace.close()


def test_retention_by_size_keeps_the_newest_and_a_reader_behind_goes_on_at_the_oldest(tmp_path: Path) -> None:
    namespace = open_namespace(tmp_path, config(EventHubConfig(name="small", partition_count=1)))
    grants = [grant(namespace)]
    log = namespace.event_hub("small").partition("0").log
    send(namespace, "small", b"0")
    address = "small/ConsumerGroups/$Default/Partitions/0"
    reader = namespace.open_reader(address, grants, NOW_S, on_stolen=lambda _: None)
    namespace.management.update_event_hub("small", retention_bytes=8_000_000)
    for _ in range(30):
        send(namespace, "small", b"x" * 500_000)
        namespace.apply_retention()
        assert log.size_bytes <= 8_000_000
    begin = log.begin_sequence_number
    assert 31 - 16 <= begin <= 31 - 16 * 7 // 8 + 2
    first = reader.read_batches(max_events=1, max_bytes=1 << 20)[0]
    assert first.base_sequence_number == begin
    assert reader.next_sequence_number == begin + 1
    later = namespace.open_reader(
        address, grants, NOW_S, selector="amqp.annotation.x-opt-sequence-number > '3'", on_stolen=lambda _: None
    )
    assert later.next_sequence_number == begin
    namespace.close()


@pytest.mark.parametrize("known", ["from the beginning", "since", "too late"])
def test_retention_by_size_keeps_most_of_it_however_much_came_at_once(tmp_path: Path, known: str) -> None:
    own = {"retention_bytes": 8_000_000} if known == "from the beginning" else {}
    namespace = open_namespace(tmp_path, config(EventHubConfig(name="small", partition_count=1, **own)))
    log = namespace.event_hub("small").partition("0").log
    if known == "since":
        namespace.management.update_event_hub("small", retention_bytes=8_000_000)
        namespace.apply_retention()
    for _ in range(50):
        send(namespace, "small", b"x" * 500_000)
    namespace.management.update_event_hub("small", retention_bytes=8_000_000)
    namespace.apply_retention()
    # all in one segment, nothing of it could go and 8 MB be left
    assert log.begin_sequence_number == 0 if known == "too late" else 50 - 16 <= log.begin_sequence_number <= 50 - 12
    for _ in range(20):
        send(namespace, "small", b"x" * 500_000)
    namespace.apply_retention()
    assert 70 - 16 <= log.begin_sequence_number <= 70 - 12
    namespace.close()


def test_a_state_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    namespace = open_namespace(tmp_path, CONFIG)
    (tmp_path / ".namespace.json.new").mkdir()
    with pytest.raises(OSError, match=r"namespace\.json\.new"):
        namespace.management.create_consumer_group("tolls", "g")
    with pytest.raises(OSError, match=r"namespace\.json\.new"):
        namespace.management.create_event_hub(EventHubConfig(name="another"))
    assert not list((tmp_path / "hubs").glob("another*"))
    with pytest.raises(OSError, match=r"namespace\.json\.new"):
        namespace.management.delete_event_hub("tolls")
    with pytest.raises(OSError, match=r"namespace\.json\.new"):
        namespace.management.roll_key(ROOT_RULE, "primary")
    # nor in memory
    assert namespace.event_hub("tolls").consumer_groups == ("$Default", "cg1")
    assert sorted(namespace.event_hubs) == ["other", "tolls"]
    assert namespace.access.rule_table.root_rule.primary_key == EMULATOR_KEY
    send(namespace, "tolls")
    (tmp_path / ".namespace.json.new").rmdir()
    namespace.close()
    again = open_namespace(tmp_path, CONFIG)
    assert again.event_hub("tolls").consumer_groups == ("$Default", "cg1")
    assert again.access.rule_table.root_rule.primary_key == EMULATOR_KEY
    again.close()
