"""The files of a job: pages of its log, rotation, and what is read of its state folder."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tidegate.durable_files import write_checked
from tidegate.service import job_files
from tidegate.service.job_files import LOG, read_last_output, read_log, read_versions, rotate, time_of_ticks


def write_log(folder: Path, numbers: range, end: str = "\n") -> None:
    with (folder / LOG).open("a") as file:
        file.write("\n".join(json.dumps({"message": str(number)}) for number in numbers) + end)


def messages(folder: Path, limit: int, after: int | None = None) -> tuple[list[str], int]:
    page = read_log(folder, limit=limit, after=after)
    return [line["message"] for line in page.lines], page.next


def test_a_log_is_read_from_its_end_and_followed(tmp_path: Path) -> None:
    assert messages(tmp_path, 5) == ([], 0)
    write_log(tmp_path, range(20_000))
    last, place = messages(tmp_path, 3)
    assert last == ["19997", "19998", "19999"]
    assert messages(tmp_path, 3, place) == ([], place)
    write_log(tmp_path, range(20_000, 20_005))
    first, place = messages(tmp_path, 3, place)
    assert first == ["20000", "20001", "20002"]
    assert messages(tmp_path, 3, place)[0] == ["20003", "20004"]


def test_a_line_that_is_being_written_comes_with_the_next_page(tmp_path: Path) -> None:
    write_log(tmp_path, range(2), end="")
    found, place = messages(tmp_path, 5)
    assert found == ["0"]
    write_log(tmp_path, range(0), end="\n")
    assert messages(tmp_path, 5, place)[0] == ["1"]


def test_what_a_library_printed_is_a_message(tmp_path: Path) -> None:
    (tmp_path / LOG).write_text("Segmentation fault\n")
    assert read_log(tmp_path, limit=5).lines == ({"time": None, "level": None, "message": "Segmentation fault"},)


def test_a_log_that_has_grown_is_moved_aside_and_read_from_its_new_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_files, "_LONGEST_LOG_BYTES", 1000)
    write_log(tmp_path, range(10))
    rotate(tmp_path)
    assert messages(tmp_path, 1)[0] == ["9"]
    write_log(tmp_path, range(10, 100))
    _, place = messages(tmp_path, 1)
    rotate(tmp_path)
    assert len((tmp_path / f"{LOG}.1").read_text().splitlines()) == 100
    write_log(tmp_path, range(100, 101))
    assert messages(tmp_path, 5, place)[0] == ["100"]


def test_each_version_ends_where_the_next_begins(tmp_path: Path) -> None:
    versions = [
        {"fingerprint": "a", "query": "A", "event_ordering": "", "since": "s", "results_from": None, "first_rows": {}},
        {"fingerprint": "b", "query": "B", "event_ordering": "", "since": "s", "results_from": "T", "first_rows": {}},
    ]
    write_checked(tmp_path / "versions.json", {"version": 1, "versions": versions})
    first, second = read_versions(tmp_path)
    assert (first.results_from, first.results_before) == (None, "T")
    assert (second.results_from, second.results_before) == ("T", None)


def test_the_last_output_is_the_journal_s(tmp_path: Path) -> None:
    assert read_last_output(tmp_path) is None
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    write_checked(tmp_path / "journal.json", {"version": 3, "released": int(noon.timestamp()) * 10_000_000})
    assert read_last_output(tmp_path) == noon


@pytest.mark.parametrize("ticks", [-(2**62), 2**62])
def test_the_beginning_and_the_end_of_time_are_no_times(ticks: int) -> None:
    assert time_of_ticks(ticks) is None
