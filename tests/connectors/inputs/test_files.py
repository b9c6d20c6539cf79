"""Files as a log: what order they have, what they hold, and what happens when they change."""

from __future__ import annotations

import gzip
import io
import json
import os
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.connectors.inputs.kit import Origin, StreamContract
from tests.job.logs import travelling
from tidegate.connectors.inputs.file_rows import file_rows
from tidegate.connectors.inputs.files import FilesInput, FilesLog
from tidegate.connectors.inputs.kinds import LogOpening
from tidegate.connectors.model.errors import InputError
from tidegate.connectors.model.events import InputLog
from tidegate.job import JobError, RunSummary, load_job, run_job
from tidegate.ordering import NO_TIME, format_time, parse_time

BEGIN = parse_time("2026-01-01T00:00:00Z")
SECOND = 10**7
ROWS = [{"k": "a", "v": 1}, {"k": "b", "v": 2}, {"k": "a", "v": 3}]


def put(path: Path, content: bytes, second: float) -> Path:
    """A file that was last modified a while after the beginning."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    nanoseconds = (BEGIN + round(second * SECOND)) * 100
    os.utime(path, ns=(nanoseconds, nanoseconds))
    return path


def lines(*numbers: int) -> bytes:
    return b"".join(b'{"v":%d}\n' % number for number in numbers)


def opened(path: Path, folder: Path | None = None, **settings: Any) -> FilesLog:
    definition = FilesInput.model_validate({"type": "files", "path": str(path), **settings})
    return FilesLog(definition, LogOpening("i", folder, live=folder is not None))


def events_of(log: FilesLog, partition: str = "0", batch_events: int = 100) -> list[tuple[int, float, str]]:
    end = log.ends()[partition]
    found = []
    for events in log.range(partition, end.begin, end.end).read_events(batch_events):
        rows = zip(events.sequence_numbers.tolist(), events.arrivals.tolist(), events.bodies, strict=True)
        found += [(number, (arrival - BEGIN) / SECOND, body.decode()) for number, arrival, body in rows]
    return found


def test_files_come_in_the_order_of_their_times_then_names(tmp_path: Path) -> None:
    put(tmp_path / "c.json", lines(1, 2), 1)
    put(tmp_path / "b" / "x.json", lines(4), 2)
    put(tmp_path / "a.json", lines(3), 2)
    put(tmp_path / "empty.json", b"", 1.5)
    log = opened(tmp_path)
    expected = [(0, 1, '{"v":1}'), (1, 1, '{"v":2}'), (2, 2, '{"v":3}'), (3, 2, '{"v":4}')]
    assert events_of(log) == events_of(log, batch_events=1) == expected
    assert [log.first_at("0", BEGIN + round(second * SECOND)) for second in (0, 1, 1.1, 2, 2.1)] == [0, 0, 2, 2, 4]


def test_a_file_that_is_found_later_comes_later_and_its_arrival_does_not_go_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.connectors.inputs.files.LOOK_EVERY_S", 0)
    put(tmp_path / "in" / "b.json", lines(1), 5)
    state = tmp_path / "state"
    log = opened(tmp_path / "in", state)
    assert len(events_of(log)) == 1
    put(tmp_path / "in" / "a.json", lines(2), 3)
    expected = [(0, 5, '{"v":1}'), (1, 5, '{"v":2}')]
    assert events_of(log) == expected
    log.close()
    # A reader of the recorded order gets the same; any other sees the folder's current content.
    assert events_of(opened(tmp_path / "in", state)) == expected
    assert [row[2] for row in events_of(opened(tmp_path / "in"))] == ['{"v":2}', '{"v":1}']


def test_a_line_that_a_crash_cut_off_is_written_again(tmp_path: Path) -> None:
    put(tmp_path / "in" / "a.json", lines(1), 1)
    opened(tmp_path / "in", tmp_path / "state").close()
    index = tmp_path / "state" / "files" / "i.jsonl"
    whole = index.read_bytes()
    index.write_bytes(whole[:-5])
    assert len(events_of(opened(tmp_path / "in", tmp_path / "state"))) == 1
    assert index.read_bytes() == whole
    index.write_bytes(b"nonsense\n" + whole)
    with pytest.raises(JobError, match=r"i\.jsonl is damaged: line 1: .*; restore the state folder"):
        opened(tmp_path / "in", tmp_path / "state")


def test_a_changed_digit_of_what_was_taken_in_is_found(tmp_path: Path) -> None:
    put(tmp_path / "in" / "a.json", lines(1, 2, 3), 1)
    opened(tmp_path / "in", tmp_path / "state").close()
    index = tmp_path / "state" / "files" / "i.jsonl"
    whole = index.read_text()
    assert '"count": 3' in whole
    index.write_text(whole.replace('"count": 3', '"count": 2'))
    with pytest.raises(JobError, match="line 2: its checksum differs from its content"):
        opened(tmp_path / "in", tmp_path / "state")


def test_a_file_that_changes_ends_the_job_or_is_left_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.connectors.inputs.files.LOOK_EVERY_S", 0)
    put(tmp_path / "a.json", lines(1), 1)
    log = opened(tmp_path)
    ignoring = opened(tmp_path, changed_files="ignore")
    put(tmp_path / "a.json", lines(1, 2), 3)
    with pytest.raises(InputError, match=r"a\.json has changed since it was taken in \(8 bytes"):
        log.ends()
    assert ignoring.ends()["0"].end == 1
    file_rows.cache_clear()
    with pytest.raises(InputError, match="has changed"):  # what was there cannot be read again
        list(ignoring.range("0", 0, 1).read_events(10))
    (tmp_path / "a.json").unlink()
    with pytest.raises(InputError, match="not there any more"):
        list(ignoring.range("0", 0, 1).read_events(10))


def test_a_file_that_may_still_be_written_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(lines(1))
    assert opened(tmp_path).ends()["0"].end == 0
    assert opened(tmp_path, settle_s=0).ends()["0"].end == 1
    assert opened(tmp_path, watch=False).ends()["0"].end == 1


def test_a_folder_that_is_not_watched_is_all_there_is(tmp_path: Path) -> None:
    assert opened(tmp_path, watch=False).ends()["0"].complete
    assert not opened(tmp_path).ends()["0"].complete
    with pytest.raises(InputError, match="there is no folder"):
        opened(tmp_path / "none" / "*.json")


def test_a_pattern_that_fits_no_file_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.json").write_bytes(lines(1))
    opened(tmp_path / "*.json", watch=False)
    opened(tmp_path / "*.csv")  # one may still come
    assert not caplog.records
    opened(tmp_path / "*.csv", watch=False)
    assert f"{tmp_path} has no file that fits '{tmp_path}/*.csv'" in caplog.text


def test_a_folder_that_is_away_is_looked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tidegate.connectors.inputs.files.LOOK_EVERY_S", 0)
    put(tmp_path / "in" / "a.json", lines(1), 1)
    log = opened(tmp_path / "in" / "*.json")
    (tmp_path / "in").rename(tmp_path / "away")
    assert log.ends()["0"].end == 1
    assert "there is no folder" in caplog.text
    monkeypatch.setattr("tidegate.connectors.inputs.files._STORE_UNAVAILABLE_S", 0)
    with pytest.raises(InputError, match="there is no folder"):
        log.ends()
    (tmp_path / "away").rename(tmp_path / "in")
    put(tmp_path / "in" / "b.json", lines(2, 3), 2)
    assert log.ends()["0"].end == 3
    assert [log.first_at("0", BEGIN + second * SECOND) for second in (1, 2, 3)] == [0, 1, 3]
    assert [events.bodies for events in log.range("0", 1, 2).read_events(9)] == [[b'{"v":2}']]


def test_partitions_are_in_the_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.connectors.inputs.files.LOOK_EVERY_S", 0)
    pattern = tmp_path / "{partition}" / "*.json"
    tmp_path.mkdir(exist_ok=True)
    assert list(opened(pattern).ends()) == ["0"]
    put(tmp_path / "1" / "a.json", lines(1, 2), 1)
    put(tmp_path / "02" / "a.json", lines(3), 2)
    log = opened(pattern)
    assert {partition: end.end for partition, end in log.ends().items()} == {"1": 2, "2": 1}
    assert list(opened(pattern, partitions=4).ends()) == ["0", "1", "2", "3"]
    put(tmp_path / "7" / "a.json", lines(3), 2)
    with pytest.raises(InputError, match="of partition 7, which did not exist when the job began"):
        log.ends()


def test_arrivals_out_of_a_column_do_not_go_back(tmp_path: Path) -> None:
    def csv(*times: str) -> bytes:
        return b"at,v\n" + b"".join(b"%s,%d\n" % (time.encode(), n) for n, time in enumerate(times))

    at = [format_time(BEGIN + second * SECOND) for second in range(10)]
    put(tmp_path / "a.csv", csv(at[3], "?", at[2], at[5]), 100)
    put(tmp_path / "b.csv", csv(at[4], at[9]), 101)
    log = opened(tmp_path, format="csv", arrival_column="AT")
    assert [arrival for _, arrival, _ in events_of(log)] == [3, 3, 3, 5, 5, 9]
    assert [log.first_at("0", BEGIN + second * SECOND) for second in (0, 4, 5, 6)] == [0, 3, 3, 5]
    put(tmp_path / "c" / "a.csv", csv("?"), 100)
    with pytest.raises(InputError, match=r"no row of a\.csv says in 'at' when it arrived"):
        opened(tmp_path / "c", format="csv", arrival_column="at")


# jobs over files
# --------------------------------------------------------------------------------------------


def avro(rows: list[dict[str, Any]]) -> bytes:
    fields = [{"name": "k", "type": "string"}, {"name": "v", "type": "long"}]
    buffer = io.BytesIO()
    fastavro.writer(buffer, {"type": "record", "name": "R", "fields": fields}, rows)
    return buffer.getvalue()


def parquet(rows: list[dict[str, Any]]) -> bytes:
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), buffer)
    return buffer.getvalue()


def csv_text(rows: list[dict[str, Any]]) -> bytes:
    return "".join(["k,v\n", *(f"{row['k']},{row['v']}\n" for row in rows)]).encode()


def json_text(rows: list[dict[str, Any]]) -> bytes:
    return b"\n".join(json.dumps(row).encode() for row in rows)


QUERY = """
SELECT k, SUM(CAST(v AS bigint)) AS total, MIN(PartitionId) AS p, System.Timestamp() AS ts
INTO totals FROM i GROUP BY k, TumblingWindow(second, 2)
SELECT GetMetadataPropertyValue(i, 'BlobName') AS name, GetMetadataPropertyValue(i, 'BlobLastModifiedUtcTime') AS at,
  v INTO names FROM i
"""


def write_job(folder: Path, settings: str, query: str = QUERY, *, ordering: str = "") -> Path:
    path = folder / "job.toml"
    path.write_text(
        f'name = "files"\nquery = """{query}"""\n[event_ordering]\n{ordering}\n[inputs.i]\ntype = "files"\n{settings}\n'
        '[outputs.totals]\ntype = "file"\npath = "totals.jsonl"\n[outputs.names]\ntype = "file"\npath = "names.jsonl"\n'
    )
    return path


def run(path: Path, **settings: Any) -> RunSummary:
    job = load_job(path)
    return run_job(job, travelling(job), **settings)


def rows_in(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("name", "encode"),
    [("json", json_text), ("csv", csv_text), ("avro", avro), ("parquet", parquet)],
)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("at_once", [1, 1000])
def test_a_job_over_files_of_each_format(tmp_path: Path, name: str, encode: Any, packed: bool, at_once: int) -> None:
    for number, second in enumerate((0.5, 1.5, 3.5)):
        content = encode(ROWS)
        packed_name = f"{number}.{name}" + (".gz" if packed else "")
        put(tmp_path / "in" / packed_name, gzip.compress(content) if packed else content, second)
    path = write_job(tmp_path, f'path = "in"\nformat = "{name}"\nwatch = false')
    summary = run(path, max_events_per_step=at_once)
    assert summary.why == "complete"
    assert summary.totals["Input Events"] == 9
    sizes = sum(file.stat().st_size for file in (tmp_path / "in").iterdir())
    assert packed or abs(summary.totals["Input Event Bytes"] - sizes) <= 9  # line feeds are nobody's
    assert rows_in(tmp_path / "totals.jsonl") == [
        {"k": "a", "total": 8, "p": 0, "ts": "2026-01-01T00:00:02.0000000Z"},
        {"k": "b", "total": 4, "p": 0, "ts": "2026-01-01T00:00:02.0000000Z"},
        {"k": "a", "total": 4, "p": 0, "ts": "2026-01-01T00:00:04.0000000Z"},
        {"k": "b", "total": 2, "p": 0, "ts": "2026-01-01T00:00:04.0000000Z"},
    ]
    names = rows_in(tmp_path / "names.jsonl")
    assert [row["name"].partition(".")[0] for row in names] == ["0"] * 3 + ["1"] * 3 + ["2"] * 3
    assert names[0]["at"] == "2026-01-01T00:00:00.5000000Z"


def test_what_cannot_be_read_is_counted_by_its_name_and_the_job_goes_on(tmp_path: Path) -> None:
    put(tmp_path / "in" / "a.csv.gz", b"no gzip", 1)
    put(tmp_path / "in" / "b.csv", b"k,K\n1,2\n", 2)
    put(tmp_path / "in" / "c.csv", b"k,v\nx,1\ny\n", 3)
    path = write_job(tmp_path, 'path = "in"\nformat = "csv"\nwatch = false')
    summary = run(path)
    assert summary.totals["Input Deserialization Errors"] == 3
    assert [row["total"] for row in rows_in(tmp_path / "totals.jsonl")] == [1]
    logged = [
        json.loads(line) for line in next((tmp_path / "files.state").glob("data-errors*")).read_text().splitlines()
    ]
    kinds = {entry["DataErrorType"].rpartition(".")[2] for entry in logged}
    assert kinds == {"InvalidCompressionType", "InvalidHeader", "InvalidData"}


@pytest.mark.slow
def test_a_job_that_watches_a_folder_takes_in_what_appears_and_lets_go_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder does not report that it is idle, so its clock advances by estimate."""
    monkeypatch.setattr("tidegate.connectors.inputs.files.LOOK_EVERY_S", 0)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_bytes(json_text(ROWS))
    path = write_job(tmp_path, 'path = "in/*.json"\nsettle_s = 0\nidle_after_s = 0')
    job = load_job(path)
    seen: list[int] = []

    def on_step(report: Any) -> None:
        seen.append(report.totals["Output Events"])
        if len(seen) == 1:
            (tmp_path / "in" / "b.json").write_bytes(json_text(ROWS))

    def enough() -> bool:
        names = tmp_path / "names.jsonl"
        return names.exists() and len(names.read_bytes().splitlines()) == 6 and bool(rows_in(tmp_path / "totals.jsonl"))

    summary = run_job(job, travelling(job), on_step=on_step, should_stop=enough)
    assert summary.why == "stopped"
    assert summary.totals["Input Events"] == 6
    assert summary.watermark > NO_TIME
    # What comes next goes behind it, whatever its time says.
    put(tmp_path / "in" / "0.json", json_text(ROWS), 0)
    looks = iter(range(3))
    again = run_job(load_job(path), travelling(job), should_stop=lambda: next(looks, None) is None)
    assert again.totals["Input Events"] == 9
    order = (tmp_path / "files.state" / "files" / "i.jsonl").read_text().splitlines()
    assert [json.loads(line)["blob"]["name"] for line in order[1:]] == ["a.json", "b.json", "0.json"]


def test_a_wrong_section_is_said(tmp_path: Path) -> None:
    for settings, told in [
        ('path = "in/{day}"', "{day}"),
        ('path = "in/{time}/x"', "has a {time} and no {date}"),
        ('path = "in"\nformat = "xml"', "inputs.i.format"),
        ('path = "in"\ndelimiter = "ab"', "inputs.i.delimiter"),
        ('path = "in"\nformat = "capture"\narrival_column = "x"', "remove arrival_column"),
        ('path = "in"\nsource = "iothub"', "source is of files of Capture"),
    ]:
        with pytest.raises(JobError) as caught:
            load_job(write_job(tmp_path, settings))
        assert told in str(caught.value)


class TestContract(StreamContract):
    @pytest.fixture
    def origin(self, tmp_path: Path) -> Origin:
        put(tmp_path / "in" / "a.json", lines(1, 2, 3), 1)
        put(tmp_path / "in" / "b.json", lines(4, 5), 2)
        return _Folder(tmp_path)


class _Folder:
    def __init__(self, path: Path) -> None:
        self._path = path

    def open_log(self) -> InputLog:
        return opened(self._path / "in", self._path / "state", settle_s=0)
