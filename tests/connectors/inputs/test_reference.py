"""Reference data: which table a row is joined to, when tables appear, change and vanish while the job runs."""

from __future__ import annotations

import errno
import gzip
import json
import math
import os
import shutil
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.job.logs import EPOCH, RevealedLog, TravellingTasks, logs, policies, travelling
from tests.profiles import example_count
from tidegate import durable_files
from tidegate.connectors.inputs import reference
from tidegate.connectors.inputs.recorded import RecordedLog
from tidegate.connectors.inputs.reference import ReferenceInput, References
from tidegate.connectors.model import state_file
from tidegate.connectors.model.errors import InputError
from tidegate.engine import CATALOG, Program
from tidegate.job import JobError, load_job, run_job
from tidegate.job.analysis.replay_source import open_replay_source
from tidegate.job.analysis.verification import verify
from tidegate.job.prepare.check import check_job
from tidegate.job.run import commit_coordinator
from tidegate.job.run.journal import Commit, Journal
from tidegate.job.run.run import in_this_process
from tidegate.job.runtime.step import Progress, Stepper, StepSettings
from tidegate.ordering import NO_TIME, TICKS_PER_SECOND, Policy, format_time
from tidegate.sql import compile_query

SECOND = TICKS_PER_SECOND
# Each example writes files and waits for the disk.
FEWER = example_count(20)


def definition(path: Path, **settings: Any) -> ReferenceInput:
    return ReferenceInput.model_validate(
        {"type": "reference", "path": str(path), "refresh_s": 1e-9, "settle_s": 0, **settings}
    )


def table(version: int) -> bytes:
    return json.dumps([{"k": key, "version": version} for key in "ab"]).encode()


def name_of(second: int) -> str:
    time = format_time(EPOCH + second * SECOND)
    return f"{time[:10]}/{time[11:13]}-{time[14:16]}-{time[17:19]}.json"


def put(folder: Path, second: int, version: int) -> None:
    path = folder / name_of(second)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(table(version))


def opened(folder: Path, state: Path | None = None) -> References:
    pattern = definition(folder / "{date}" / "{time}.json", time_format="HH-mm-ss")
    if state is not None:
        state.mkdir(exist_ok=True)
    references = References({"ref": pattern}, state)
    if state is not None:
        references.keep(state)
    return references


def counted(references: References) -> list[tuple[int, int]]:
    """From which second on which version counts."""
    return [
        (
            NO_TIME if one.effective_ticks == NO_TIME else (one.effective_ticks - EPOCH) // SECOND,
            json.loads(one.bodies[0])["version"],
        )
        for one in references.tables()["ref"]
    ]


def at(second: int) -> int:
    return EPOCH + second * SECOND


def test_each_file_counts_from_the_time_in_its_name(tmp_path: Path) -> None:
    for second, version in ((10, 1), (0, 0), (20, 2)):
        put(tmp_path, second, version)
    assert counted(opened(tmp_path)) == [(0, 0), (10, 1), (20, 2)]


def test_a_job_begins_with_every_table_there_is_however_new_its_file(tmp_path: Path) -> None:
    for second, version in ((0, 1), (10, 2), (20, 3)):
        put(tmp_path, second, version)
    pattern = definition(tmp_path / "{date}" / "{time}.json", time_format="HH-mm-ss", settle_s=10_000)
    references = References({"ref": pattern}, None)
    assert counted(references) == [(0, 1), (10, 2), (20, 3)]
    put(tmp_path, 30, 4)
    assert not references.refresh(at(0))


def test_a_table_that_comes_in_time_counts_from_its_time_and_a_late_one_from_what_is_still_to_come(
    tmp_path: Path,
) -> None:
    put(tmp_path, 0, 0)
    references = opened(tmp_path)
    put(tmp_path, 50, 5)
    assert references.refresh(at(30))
    assert not references.refresh(at(31))
    put(tmp_path, 20, 2)  # events up to 00:00:40 have been joined
    assert references.refresh(at(40))
    assert counted(references) == [(0, 0), (40, 2), (50, 5)]
    put(tmp_path, 10, 1)  # older than the one that counts: never effective
    assert not references.refresh(at(45))
    put(tmp_path, 50, 6)  # not yet in force: it may still change
    assert references.refresh(at(45))
    assert counted(references) == [(0, 0), (40, 2), (50, 6)]
    put(tmp_path, 50, 7)  # in force
    assert references.refresh(at(60))
    assert counted(references) == [(0, 0), (40, 2), (50, 6), (60, 7)]
    put(tmp_path, 20, 9)  # no longer in force
    assert not references.refresh(at(70))


def test_what_was_joined_is_kept_whatever_becomes_of_the_files(tmp_path: Path) -> None:
    put(tmp_path / "in", 0, 0)
    references = opened(tmp_path / "in", tmp_path / "state")
    put(tmp_path / "in", 10, 1)
    assert references.refresh(at(20))
    shutil.rmtree(tmp_path / "in")
    (tmp_path / "in").mkdir()
    again = opened(tmp_path / "in", tmp_path / "state")
    assert counted(again) == [(0, 0), (20, 1)]
    put(tmp_path / "in", 30, 3)
    assert again.refresh(at(25), needed_from=at(21))
    assert counted(again) == [(20, 1), (30, 3)]  # the first is needed no more
    assert len(list((tmp_path / "state" / "reference").iterdir())) == 2


def test_one_file_that_changes_is_a_new_table_from_then_on(tmp_path: Path) -> None:
    path = tmp_path / "ref.json"

    def write(version: int, second: int) -> None:
        path.write_bytes(table(version))
        os.utime(path, ns=(at(second) * 100, at(second) * 100))

    write(0, 100)
    references = References({"ref": definition(path)}, None)
    assert counted(references) == [(NO_TIME, 0)]
    write(0, 110)  # touched
    assert not references.refresh(at(120))
    write(1, 130)
    assert references.refresh(at(120))
    assert counted(references) == [(NO_TIME, 0), (130, 1)]
    write(2, 140)
    assert references.refresh(at(150))
    assert counted(references) == [(NO_TIME, 0), (130, 1), (150, 2)]
    assert not references.refresh(at(150))


@pytest.mark.parametrize("version", [1, 0], ids=["another", "the first one"])
def test_a_file_that_is_replaced_by_one_modified_earlier_is_a_new_table_from_then_on(
    tmp_path: Path, version: int
) -> None:
    """Such as by `cp -p` of a backup: the rows were joined to the other table for ever, without a word."""
    path, before = tmp_path / "ref.json", time.time_ns() // 100
    path.write_bytes(table(0))
    os.utime(path, ns=(at(100) * 100, at(100) * 100))
    references = References({"ref": definition(path)}, None)
    path.write_bytes(table(2))
    os.utime(path, ns=(at(140) * 100, at(140) * 100))
    assert references.refresh(at(120))
    path.write_bytes(table(version))
    os.utime(path, ns=(at(100) * 100, at(100) * 100))
    assert references.refresh(at(150))
    *_, last = references.tables()["ref"]
    assert json.loads(last.bodies[0])["version"] == version
    assert before <= last.effective_ticks <= time.time_ns() // 100
    assert not references.refresh(at(150))


def test_a_file_that_is_being_written_is_read_once_it_is_complete(tmp_path: Path) -> None:
    """A table of half the rows was joined to, if the job looked at that moment."""
    path = tmp_path / "ref.json"
    path.write_bytes(table(0))
    references = References({"ref": definition(path, settle_s=2)}, None)  # the first one is not waited for
    path.write_bytes(b"")
    assert not references.refresh(at(10))
    path.write_bytes(table(1))
    assert not references.refresh(at(10))
    settled = time.time_ns() - 2 * 10**9
    os.utime(path, ns=(settled, settled))
    assert references.refresh(at(10))
    assert [json.loads(one.bodies[0])["version"] for one in references.tables()["ref"]] == [0, 1]


@pytest.mark.parametrize(
    ("content", "settings", "told"),
    [
        (b'[{"k":1},2]', {}, "cannot be used"),
        (b'{"k":1}\n{"k":', {}, "row 2 of ref.json cannot be used"),
        (b"k,k\n1,2\n", {"format": "csv"}, "does not name the columns"),
        (b"k,v\n1,2\n3\n", {"format": "csv"}, "row 2 of ref.json"),
        (b"x", {"format": "parquet"}, "cannot be used"),
        (b"x", {"format": "avro"}, "cannot be used"),
        (b"x", {"compression": "gzip"}, "not compressed"),
    ],
)
def test_a_table_that_cannot_be_read_is_said(
    tmp_path: Path, content: bytes, settings: dict[str, str], told: str
) -> None:
    (tmp_path / "ref.json").write_bytes(content)
    with pytest.raises(InputError) as caught:
        References({"ref": definition(tmp_path / "ref.json", **settings)}, None).tables()
    assert told in str(caught.value)
    assert "reference data 'ref'" in str(caught.value)


def test_a_table_that_is_missing_or_ambiguous_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no file"):
        References({"ref": definition(tmp_path / "none.json")}, None)
    with pytest.raises(InputError, match="there is no file"):
        opened(tmp_path)
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_bytes(table(0))
    with pytest.raises(InputError, match="2 files fit"):
        References({"ref": definition(tmp_path / "*.json")}, None)


def test_a_store_that_is_away_is_asked_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    put(tmp_path / "in", 0, 0)
    references = opened(tmp_path / "in")
    (tmp_path / "in").rename(tmp_path / "away")
    assert not references.refresh(at(10))
    assert "there is no folder" in caplog.text
    (tmp_path / "away").rename(tmp_path / "in")
    put(tmp_path / "in", 20, 2)
    assert references.refresh(at(10))
    (tmp_path / "in" / name_of(30)).write_text("{")
    with pytest.raises(InputError, match="cannot be used"):
        references.refresh(at(10))


def test_a_job_that_goes_back_joins_with_the_tables_of_that_time(tmp_path: Path) -> None:
    kept = {"ref": definition(tmp_path / "in" / "{date}" / "{time}.json", time_format="HH-mm-ss", keep_s=60)}
    (tmp_path / "state").mkdir()
    put(tmp_path / "in", 0, 0)
    references = References(kept, tmp_path / "state")
    for second in (20, 40):
        put(tmp_path / "in", second, second)
    assert references.refresh(at(10))
    put(tmp_path / "in", 60, 60)
    assert references.refresh(at(55), at(50))
    assert [version for _, version in counted(references)] == [40, 60]
    again = References(kept, tmp_path / "state")
    again.go_back(at(45))
    assert [version for _, version in counted(again)] == [40, 60]
    again.go_back(at(30))
    assert [version for _, version in counted(again)] == [20, 40, 60]
    again.go_back(at(30))
    assert [version for _, version in counted(again)] == [20, 40, 60]


def test_a_job_that_goes_back_further_than_tables_were_kept_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A new query may look back further; rows found no table, and nothing said that they should have."""
    put(tmp_path / "in", 0, 0)
    references = opened(tmp_path / "in", tmp_path / "state")
    for second in (20, 40):
        put(tmp_path / "in", second, second)
    assert references.refresh(at(10))
    put(tmp_path / "in", 60, 60)
    assert references.refresh(at(55), at(50))
    opened(tmp_path / "in", tmp_path / "state").resume(at(55), 5 * SECOND)
    assert not caplog.messages
    opened(tmp_path / "in", tmp_path / "state").resume(at(55), 30 * SECOND)
    (message,) = caplog.messages
    assert message == (
        "reference data 'ref': results from 2026-01-01T00:00:55Z on need rows from 2026-01-01T00:00:25Z on, but tables "
        "from before 2026-01-01T00:00:40Z were not kept, and rows from before then are joined with none; keep_s keeps "
        "tables longer"
    )


def test_a_damaged_state_is_said(tmp_path: Path) -> None:
    put(tmp_path / "in", 0, 0)
    state = tmp_path / "state"
    opened(tmp_path / "in", state)
    path = state / "reference.json"
    whole = path.read_text()
    for damaged in ('{"version":1,"inputs":{"ref":[{"x":1}]}}', whole.replace('"size": 5', '"size": 4'), whole[:-9]):
        assert damaged != whole
        path.write_text(damaged)
        with pytest.raises(JobError, match=r"reference\.json is damaged"):
            opened(tmp_path / "in", state)
    (content,) = (state / "reference").iterdir()
    path.write_text(whole)
    content.write_bytes(content.read_bytes().replace(b"0", b"1"))
    with pytest.raises(JobError, match="its content is not what its name, a SHA-256, says"):
        opened(tmp_path / "in", state).tables()


# in jobs
# -----------------------------------------------------------------------------------------------------

QUERY = """
WITH counts AS (
  SELECT k, COUNT(*) AS n FROM i TIMESTAMP BY t GROUP BY k, TumblingWindow(second, 5)
)
SELECT i.k, i.v, ref.version, System.Timestamp() AS ts INTO rows FROM i TIMESTAMP BY t LEFT JOIN ref ON i.k = ref.k
SELECT counts.k, counts.n, ref.version, System.Timestamp() AS ts INTO counted FROM counts JOIN ref ON counts.k = ref.k
"""


def lines_of(step_rows: list[Any]) -> dict[str, bytes]:
    return {rows.output: rows.to_json_lines() for rows in step_rows}


def add(out: dict[str, bytes], more: Mapping[str, bytes]) -> None:
    for name, lines in more.items():
        out[name] = out.get(name, b"") + lines


@pytest.mark.slow
@settings(max_examples=FEWER)
@given(
    log=logs(),
    policy=policies,
    steps=st.lists(
        st.tuples(
            st.integers(0, 12).map(lambda halves: halves * SECOND // 2),
            st.one_of(st.none(), st.integers(-10, 40)),
            st.sampled_from(["go on", "go on", "die before", "die after"]),
        ),
        max_size=15,
    ),
    max_events=st.integers(1, 9),
)
def test_rows_are_joined_with_what_was_written_down_whatever_is_killed_when(
    tmp_path_factory: pytest.TempPathFactory,
    log: RecordedLog,
    policy: Policy,
    steps: list[tuple[int, int | None, str]],
    max_events: int,
) -> None:
    folder = tmp_path_factory.mktemp("reference")
    put(folder / "in", 0, 0)
    query = compile_query(QUERY, catalog=CATALOG, inputs=["i", "ref"], reference_inputs=["ref"])
    revealed = RevealedLog(log)
    revealed.clock = EPOCH
    out: dict[str, bytes] = {}
    progress = Progress()

    def begin() -> tuple[References, Stepper]:
        references = opened(folder / "in", folder / "state")
        if progress.released != NO_TIME:
            references.refresh(progress.released)
        program = Program.prepare(query, references.tables())
        placement = TravellingTasks(program, policy)
        return references, Stepper(program, policy, {"i": revealed}, placement, progress, StepSettings(max_events))

    references, stepper = begin()
    for number, (later, second, fate) in enumerate([*steps, (10**6 * SECOND, None, "go on")]):
        revealed.clock += later
        revealed.complete = number == len(steps)
        if second is not None:
            put(folder / "in", second, number + 1)
        if references.refresh(stepper.looked_at + 1):
            program = Program.prepare(query, references.tables())
            stepper.use(program)
        while True:
            step = stepper.step()
            if fate != "die before":
                add(out, lines_of(step.rows))
                progress = stepper.progress
            if fate != "go on":
                references, stepper = begin()
                break
            if step.caught_up:
                break
    program = Program.prepare(query, opened(folder / "in", folder / "state").tables())
    whole = Stepper(program, policy, {"i": log}, TravellingTasks(program, policy))
    assert out == lines_of(whole.step().rows)


def write_job(folder: Path, settings: str) -> Path:
    events = [
        {"partition": 0, "arrival": format_time(at(second)), "body": {"k": "ab"[second % 2], "v": second}}
        for second in range(0, 60, 3)
    ]
    (folder / "log.jsonl").write_text("\n".join(map(json.dumps, events)))
    path = folder / "job.toml"
    query = "SELECT i.v, r.version INTO rows FROM i JOIN Ref r ON i.k = r.k WHERE r.version > 0"
    path.write_text(
        f'name = "joined"\nquery = "{query}"\n[inputs.i]\ntype = "recorded"\npath = "log.jsonl"\n'
        f'[inputs.REF]\ntype = "reference"\n{settings}\n[outputs.rows]\ntype = "file"\npath = "rows.jsonl"\n'
    )
    return path


@pytest.mark.parametrize("packed", [False, True])
def test_a_job_joins_with_a_table_of_a_file(tmp_path: Path, packed: bool) -> None:
    content = b"k;version\na;1\nb;0\n"
    name = "ref.csv.gz" if packed else "ref.csv"
    (tmp_path / name).write_bytes(gzip.compress(content) if packed else content)
    path = write_job(tmp_path, f'path = "{name}"\nformat = "csv"\ndelimiter = ";"')
    job = load_job(path)
    summary = run_job(job, travelling(job))
    assert summary.why == "complete"
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert rows == [{"v": second, "version": "1"} for second in range(0, 60, 6)]
    (tmp_path / name).unlink()
    with open_replay_source(path) as source:  # what the job has joined with, not what is there
        assert verify(source, starts=2, cuts=2).difference is None


def test_check_says_what_is_wrong_with_reference_data(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="reference data 'REF': there is no file"):
        load_job(write_job(tmp_path, 'path = "none.json"'))
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(JobError, match=r"bad\.json cannot be used"):
        load_job(write_job(tmp_path, 'path = "bad.json"'))


def test_a_table_that_changes_while_the_job_runs(tmp_path: Path) -> None:
    """The first table counts up to what has been looked at when the second one appears."""
    path = write_job(tmp_path, 'path = "ref.json"\nrefresh_s = 1e-9')
    (tmp_path / "ref.json").write_bytes(table(1))
    job = load_job(path)

    def on_step(report: Any) -> None:
        if report.number == 3:
            (tmp_path / "ref.json").write_bytes(table(2))
            os.utime(tmp_path / "ref.json", ns=(at(0) * 100, at(0) * 100))

    run_job(
        job,
        in_this_process(job.policy),
        max_events_per_step=4,
        on_step=on_step,
    )
    versions = [json.loads(line)["version"] for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert versions == [1] * 12 + [2] * 8


def test_an_editor_is_told_where_the_path_of_a_wrong_table_stands(tmp_path: Path) -> None:
    path = write_job(tmp_path, 'path = "none.json"')
    text = path.read_text()
    _, (finding,) = check_job(text, path)
    assert text.splitlines()[finding.line - 1] == 'path = "none.json"'
    assert "there is no file" in finding.message
    (tmp_path / "none.json").write_bytes(table(0))
    assert check_job(text, path)[1] == []


class Killed(BaseException):
    """Stands for the end of a process."""


@pytest.mark.parametrize("keys", ["a", "abcd"])
@pytest.mark.parametrize("killed_at", [1, 2])
def test_a_table_that_comes_while_a_job_is_dead_changes_no_row_that_its_outputs_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: str, killed_at: int
) -> None:
    """Rows were skipped in an output by their number, so that some were missing or there twice."""
    timed = 'path = "ref/{date}/{time}.json"\ntime_format = "HH-mm-ss"'
    path = write_job(tmp_path, f"{timed}\nrefresh_s = 1e-9\nsettle_s = 0")
    content = path.read_text().replace('type = "file"\npath = "rows.jsonl"', 'type = "sqlite"\npath = "rows.db"')
    path.write_text(content + 'table = "rows"\n[event_ordering]\nlate_arrival_tolerance_s = 0\n')
    put(tmp_path / "ref", 0, 1)

    def write_commit(journal: Journal, commit: Commit) -> None:
        if commit.steps == killed_at:
            raise Killed
        written(journal, commit)

    written = Journal.write_commit
    monkeypatch.setattr(Journal, "write_commit", write_commit)
    with pytest.raises(Killed):
        run_job(job := load_job(path), travelling(job), max_events_per_step=7)
    monkeypatch.undo()
    with closing(sqlite3.connect(tmp_path / "rows.db")) as database:
        before = database.execute("SELECT v, version FROM rows ORDER BY rowid").fetchall()
        assert before
        late = json.dumps([{"k": key, "version": version} for key in keys for version in (2, 3)])
        (tmp_path / "ref" / name_of(3)).write_text(late)
        run_job(job := load_job(path), travelling(job), max_events_per_step=3)
        rows = database.execute("SELECT v, version FROM rows ORDER BY rowid").fetchall()
    assert rows[: len(before)] == before
    # There is one time up to which every event is joined to the first table, and from which on to the second.
    first = [v for v, version in rows if version == 1]
    assert first == list(range(0, first[-1] + 1, 3))
    second = [(v, version) for v in range(first[-1] + 3, 60, 3) if "ab"[v % 2] in keys for version in (2, 3)]
    assert second
    assert rows == [(v, 1) for v in first] + second


def test_a_table_is_kept_while_a_run_after_a_kill_may_join_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps without results are not committed at once, but their tables were given up when another one came."""
    timed = 'path = "ref/{date}/{time}.json"\ntime_format = "HH-mm-ss"'
    path = write_job(tmp_path, f"{timed}\nrefresh_s = 1e-9\nsettle_s = 0")
    path.write_text(path.read_text().replace("FROM i JOIN", "FROM i LEFT JOIN").replace("r.version > 0", "r.k IS NULL"))
    put(tmp_path / "ref", 0, 1)

    def on_step(report: Any) -> None:
        if report.number in (1, 4):
            put(tmp_path / "ref", 10 * report.number, 1 + report.number)
        if report.number == 5:
            raise Killed

    monkeypatch.setattr(commit_coordinator, "_COMMIT_EVERY_S", math.inf)
    with pytest.raises(Killed):
        run_job(job := load_job(path), travelling(job), max_events_per_step=3, on_step=on_step)
    run_job(job := load_job(path), travelling(job), max_events_per_step=3)
    assert (tmp_path / "rows.jsonl").read_text() == ""


@pytest.mark.slow
@pytest.mark.parametrize("refused", ["reference.json", "a table"])
def test_a_job_waits_while_the_disk_takes_no_new_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    """The job ended with 'cannot write', where it waits for what else it writes."""
    path = write_job(tmp_path, 'path = "ref.json"\nrefresh_s = 1e-9\nsettle_s = 0')
    (tmp_path / "ref.json").write_bytes(table(1))
    refusals = 0

    def replace_file(file: Path, content: bytes) -> None:
        nonlocal refusals
        is_table = file.parent.name == "reference"
        if (tmp_path / "new").exists() and refusals < 3 and is_table == (refused == "a table"):
            refusals += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        durable_files.replace_file(file, content)

    monkeypatch.setattr(reference, "replace_file", replace_file)
    monkeypatch.setattr(
        state_file, "write_checked", lambda file, content: replace_file(file, durable_files.encode_checked(content))
    )

    def on_step(report: Any) -> None:
        if report.number == 3:
            (tmp_path / "new").touch()
            (tmp_path / "ref.json").write_bytes(table(2))
            os.utime(tmp_path / "ref.json", ns=(at(0) * 100, at(0) * 100))

    said: list[str] = []
    job = load_job(path)
    run_job(job, travelling(job), max_events_per_step=4, on_step=on_step, notice=said.append)
    assert refusals == 3
    assert "No space left on device; waiting" in said[0]
    versions = [json.loads(line)["version"] for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert versions == [1] * 12 + [2] * 8
