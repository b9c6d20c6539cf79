import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.log.support import HeldCommitter, InlineCommitter, SetClock
from tidegate.durable_files import FileDamaged
from tidegate.hub import group_offsets
from tidegate.hub.group_offsets import GroupOffset, GroupOffsets, PartitionKey, read_offsets
from tidegate.log import LogClosed, LogError

KEY, OTHER = PartitionKey("hub-1", 0), PartitionKey("hub-1", 1)


def position(offset: int, committed_at_ms: int = 1) -> GroupOffset:
    return GroupOffset(offset, -1, "noted", committed_at_ms)


@contextmanager
def opened(directory: Path, clock: SetClock | None = None) -> Iterator[GroupOffsets]:
    with closing(GroupOffsets(directory, clock or SetClock(), InlineCommitter())) as offsets:
        yield offsets


def done(found: list[LogError | None]) -> None:
    assert found == [None]


def test_positions_are_there_after_a_restart(tmp_path: Path) -> None:
    answers: list[LogError | None] = []
    with opened(tmp_path) as offsets:
        offsets.commit("g", {KEY: position(3), OTHER: position(9)}, answers.append)
        done(answers)
        offsets.commit("g", {KEY: position(5)}, answers.append)
        offsets.commit("h", {KEY: position(1)}, answers.append)
    with opened(tmp_path) as offsets:
        assert offsets.of("g") == {KEY: position(5), OTHER: position(9)}
        assert sorted(offsets.groups()) == ["g", "h"]
        assert offsets.of("nobody") == {}


def test_positions_are_there_after_a_kill(tmp_path: Path) -> None:
    """The snapshot of a clean stop is missing, or older than the log."""
    killed = GroupOffsets(tmp_path, SetClock(), InlineCommitter())
    killed.commit("g", {KEY: position(3)}, lambda _: None)
    with opened(tmp_path) as offsets:
        assert offsets.of("g") == {KEY: position(3)}
    killed = GroupOffsets(tmp_path, SetClock(), InlineCommitter())
    killed.commit("g", {KEY: position(4)}, lambda _: None)
    killed.forget("g", [OTHER], lambda _: None)
    with opened(tmp_path) as offsets:
        assert offsets.of("g") == {KEY: position(4)}


def test_positions_are_forgotten_one_by_one_or_with_their_group(tmp_path: Path) -> None:
    with opened(tmp_path) as offsets:
        offsets.commit("g", {KEY: position(3), OTHER: position(9)}, lambda _: None)
        offsets.forget("g", [KEY], lambda _: None)
        assert offsets.of("g") == {OTHER: position(9)}
        offsets.forget("g", None, lambda _: None)
        assert offsets.groups() == []


def test_the_log_of_commits_does_not_grow_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_offsets, "SNAPSHOT_COMMITS", 50)
    committer = HeldCommitter()
    with closing(GroupOffsets(tmp_path, SetClock(), committer)) as offsets:
        sizes = set()
        for number in range(500):
            offsets.commit("g", {KEY: position(number)}, lambda _: None)
            committer.run()
            sizes.add(sum(path.stat().st_size for path in tmp_path.glob("*.log")))
        assert max(sizes) < 20_000
    with opened(tmp_path) as offsets:
        assert offsets.of("g") == {KEY: position(499)}


def test_what_is_committed_while_the_snapshot_is_written_is_there_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_offsets, "SNAPSHOT_COMMITS", 50)
    committer = HeldCommitter()
    killed = GroupOffsets(tmp_path, SetClock(), committer)
    write = group_offsets.write_checked

    def slow_write(path: Path, document: dict[str, object]) -> None:
        killed.commit("other", {OTHER: position(7)}, lambda _: None)
        committer.run()
        write(path, document)

    monkeypatch.setattr(group_offsets, "write_checked", slow_write)
    for number in range(50):
        killed.commit("g", {KEY: position(number)}, lambda _: None)
        committer.run()
    assert (tmp_path / "positions.json").exists()
    found = read_offsets(tmp_path)
    assert found == {"g": {KEY: position(49)}, "other": {OTHER: position(7)}}
    with opened(tmp_path) as offsets:
        assert offsets.of("other") == {OTHER: position(7)}


def test_the_end_waits_for_a_snapshot_that_is_being_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both write through the same temporary file."""
    monkeypatch.setattr(group_offsets, "SNAPSHOT_COMMITS", 50)
    committer = HeldCommitter()
    offsets = GroupOffsets(tmp_path, SetClock(), committer)
    ending = threading.Thread(target=offsets.close)
    write = group_offsets.write_checked
    overlapping = threading.Event()

    def slow_write(path: Path, document: dict[str, object]) -> None:
        if threading.current_thread() is ending:
            overlapping.set()
        else:
            ending.start()
            assert not overlapping.wait(0.2)
        write(path, document)

    monkeypatch.setattr(group_offsets, "write_checked", slow_write)
    for number in range(50):
        offsets.commit("g", {KEY: position(number)}, lambda _: None)
        committer.run()
    ending.join()
    assert overlapping.is_set()


def test_positions_expire_unless_they_are_in_use(tmp_path: Path) -> None:
    clock = SetClock()
    with opened(tmp_path, clock) as offsets:
        offsets.commit("g", {KEY: position(3, clock.now_ms()), OTHER: position(4, clock.now_ms())}, lambda _: None)
        offsets.expire(lambda group, key: False)
        assert len(offsets.of("g")) == 2
        clock.time_ms += group_offsets.RETENTION_MS + 1
        offsets.expire(lambda group, key: key == OTHER)
        assert list(offsets.of("g")) == [OTHER]


def test_a_damaged_snapshot_is_named(tmp_path: Path) -> None:
    with opened(tmp_path) as offsets:
        offsets.commit("g", {KEY: position(3)}, lambda _: None)
    path = tmp_path / "positions.json"
    path.write_bytes(path.read_bytes().replace(b"noted", b"voted"))
    with pytest.raises(FileDamaged, match=r"positions\.json"):
        GroupOffsets(tmp_path, SetClock(), InlineCommitter())


@pytest.mark.parametrize("is_older", [False, True])
def test_a_missing_or_older_snapshot_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_older: bool) -> None:
    """The commits before it are no longer in the log, which would otherwise be taken for all there were."""
    monkeypatch.setattr(group_offsets, "SNAPSHOT_COMMITS", 50)
    path, older, committer = tmp_path / "positions.json", None, HeldCommitter()
    with closing(GroupOffsets(tmp_path, SetClock(), committer)) as offsets:
        offsets.commit("other", {OTHER: position(7)}, lambda _: None)
        for number in range(120):
            offsets.commit("g", {KEY: position(number)}, lambda _: None)
            committer.run()
            if older is None and path.exists():
                older = path.read_bytes()
    assert older is not None
    if is_older:
        path.write_bytes(older)
    else:
        path.unlink()
    for read in (lambda: GroupOffsets(tmp_path, SetClock(), InlineCommitter()), lambda: read_offsets(tmp_path)):
        with pytest.raises(FileDamaged, match=r"positions\.json is damaged: it is missing, or older than .* begin at"):
            read()


def test_nothing_is_committed_after_the_end(tmp_path: Path) -> None:
    with opened(tmp_path) as offsets:
        pass
    with pytest.raises(LogClosed):
        offsets.commit("g", {KEY: position(3)}, lambda _: None)
