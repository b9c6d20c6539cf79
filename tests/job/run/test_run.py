"""A run: what is made durable when, where a restart resumes, and what it refuses."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.job.logs import travelling
from tests.patience import PATIENCE_S
from tidegate.client import ConnectionString
from tidegate.client.producer import OutgoingEvent, Producer
from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.job import Job, JobError, RunSummary, StepReport, load_job, run_job
from tidegate.job.run.journal import Journal
from tidegate.job.run.run import Ending, Placements, in_this_process
from tidegate.job.runtime.placement import DriverPlacement
from tidegate.job.runtime.task import RangeResult
from tidegate.ordering import format_time, parse_time
from tidegate.server import BackgroundServer

START = parse_time("2026-01-01T00:00:00Z")

QUERY = """
SELECT System.Timestamp() AS ts, k, COUNT(*) AS n, AVG(v) AS mean INTO counted FROM i TIMESTAMP BY t
GROUP BY k, TumblingWindow(second, 5)
SELECT System.Timestamp() AS ts, k, v INTO large FROM i TIMESTAMP BY t WHERE v > 90
"""


FILES = """
[outputs.counted]
type = "file"
path = "counted.jsonl"
[outputs.large]
type = "file"
path = "large.jsonl"
"""


def write_job(
    folder: Path,
    events: int,
    query: str = QUERY,
    ordering: str = "late_arrival_tolerance_s = 4",
    outputs: str = FILES,
    settings: str = "",
) -> Path:
    """A job over a recorded log of several partitions with events out of order, late and malformed."""
    dice = random.Random(7)
    clock = START
    lines = []
    for _ in range(events):
        clock += dice.randrange(0, 2_000_000)
        body = {
            "t": format_time(clock - dice.randrange(0, 80_000_000)),
            "k": dice.choice("abc"),
            "v": dice.random() * 100,
        }
        shown = "{broken" if dice.random() < 0.01 else body
        lines.append(json.dumps({"partition": dice.randrange(3), "arrival": format_time(clock), "body": shown}))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "log.jsonl").write_text("\n".join(lines), encoding="utf-8")
    job = folder / "job.toml"
    job.write_text(
        f'name = "crash"\ndata_error_warning_share = 1\n{settings}\nquery = """{query}"""\n'
        f"[event_ordering]\n{ordering}\n"
        f'[inputs.i]\ntype = "recorded"\npath = "log.jsonl"\n{outputs}',
        encoding="utf-8",
    )
    return job


def run_here(
    path: Path, max_events_per_step: int = 1_000_000, on_step: Callable[[StepReport], None] | None = None
) -> RunSummary:
    job: Job = load_job(path)
    placements = travelling(job)
    return run_job(job, placements, max_events_per_step=max_events_per_step, on_step=on_step)


def outputs_of(folder: Path) -> tuple[bytes, bytes]:
    return (folder / "counted.jsonl").read_bytes(), (folder / "large.jsonl").read_bytes()


def test_a_finished_job_run_again_adds_nothing(tmp_path: Path) -> None:
    path = write_job(tmp_path, 300)
    first = run_here(path)
    written = outputs_of(tmp_path)
    again = run_here(path, max_events_per_step=7)
    assert outputs_of(tmp_path) == written
    assert again.totals == first.totals


def test_the_last_period_has_its_file_when_the_log_has_ended(tmp_path: Path) -> None:
    """With `write_mode = "once"` it waited for a later period for ever, and its results were in no file."""
    query = "SELECT k, v INTO large FROM i TIMESTAMP BY t"
    kept: list[bytes] = []
    for name, output in (
        ("one", 'type = "file"\npath = "large.jsonl"'),
        ("periods", 'type = "files"\npath = "large/{date}/{time}"\nwrite_mode = "once"'),
    ):
        run_here(write_job(tmp_path / name, 60, query, outputs=f"[outputs.large]\n{output}\n"))
    expected = (tmp_path / "one" / "large.jsonl").read_bytes().splitlines()
    for file in sorted((tmp_path / "periods" / "large").glob("20*/**/*.json*")):
        kept += file.read_bytes().splitlines()
    assert kept == expected
    assert expected


def test_the_job_file_says_how_much_a_step_reads_unless_the_run_does(tmp_path: Path) -> None:
    steps = []
    for name, most in (("file", None), ("run", 60)):
        path = write_job(tmp_path / name, 120)
        path.write_text(path.read_text() + "[spark]\nmax_events_per_step = 30\n", encoding="utf-8")
        job = load_job(path)
        placements = travelling(job)
        steps.append(run_job(job, placements, max_events_per_step=most).steps)
    assert steps[0] >= 4
    assert steps[1] <= 3
    assert outputs_of(tmp_path / "file") == outputs_of(tmp_path / "run")


def test_another_query_does_not_go_on_from_the_end_of_a_log(tmp_path: Path) -> None:
    path = write_job(tmp_path, 50)
    run_here(path)
    path.write_text(path.read_text().replace("v > 90", "v > 80"), encoding="utf-8")
    with pytest.raises(JobError, match="has changed since"):
        run_here(path)


def test_two_runs_of_one_job_are_refused(tmp_path: Path) -> None:
    path = write_job(tmp_path, 50)
    job = load_job(path)

    class RunASecondTime(DriverPlacement):
        def results(self, tasks: object) -> list[RangeResult]:
            with pytest.raises(JobError, match="another process is running this job"):
                run_here(path)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_job(job, Placements(lambda program: RunASecondTime(program, job.policy)))


def test_an_output_the_query_never_writes_is_a_mistake(tmp_path: Path) -> None:
    path = write_job(tmp_path, 5)
    path.write_text(path.read_text().replace("[outputs.large]", "[outputs.larg]"), encoding="utf-8")
    with pytest.raises(JobError, match="larg"):
        run_here(path)


def test_an_input_the_job_does_not_have_is_named(tmp_path: Path) -> None:
    path = write_job(tmp_path, 5)
    path.write_text(path.read_text().replace("[inputs.i]", "[inputs.j]"), encoding="utf-8")
    with pytest.raises(JobError, match=r"(?s)line 1.*FROM i .*\^"):
        load_job(path)


def test_bad_events_are_counted_sampled_and_passed_over(tmp_path: Path) -> None:
    path = write_job(tmp_path, 400)
    summary = run_here(path)
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    malformed = sum(json.loads(line)["body"] == "{broken" for line in lines)
    assert malformed
    assert summary.totals["Input Deserialization Errors"] == malformed
    assert summary.totals["Input Sources Received"] == 400
    assert summary.totals["Input Events"] == 400 - malformed
    records = [json.loads(line) for line in (tmp_path / "crash.state" / "data-errors.jsonl").read_text().splitlines()]
    broken = [record for record in records if record["DataErrorType"] == "InputDeserializerError.InvalidData"]
    assert sum(record["EventCount"] for record in broken) == malformed
    example = broken[0]["ExampleEvents"][0]
    partition = [line for line in lines if str(json.loads(line)["partition"]) == example["partition"]]
    assert json.loads(partition[example["sequenceNumber"]])["body"] == example["body"] == "{broken"


# -- outputs, as a run has them ----------------------------------------------------------------------------------------

TABLE = """
[outputs.counted]
type = "file"
path = "counted.jsonl"
[outputs.large]
type = "sqlite"
path = "results.db"
table = "large"
columns = { v = "bigint" }
"""


def test_what_an_output_cannot_hold_ends_the_job_or_is_counted_and_sampled(tmp_path: Path) -> None:
    path = write_job(tmp_path, 400, outputs=TABLE)
    with pytest.raises(JobError, match=r"output 'large' cannot hold .*TypeConversionError.*output_error_policy"):
        run_here(path)
    # With the other policy the same job continues where it stopped.
    path.write_text('output_error_policy = "drop"\n' + path.read_text(), encoding="utf-8")
    summary = run_here(path, 50)
    refused = summary.totals["Data Conversion Errors"]
    assert refused > 10
    assert summary.totals["Output Events"] == len((tmp_path / "counted.jsonl").read_text().splitlines())
    records = [json.loads(line) for line in (tmp_path / "crash.state" / "data-errors.jsonl").read_text().splitlines()]
    record = next(record for record in records if record["Source"] == "large")
    assert record["DataErrorType"] == "OutputDataConversionError.TypeConversionError"
    assert record["ExampleEvents"][0]["row"] == 0
    assert '"v":' in record["ExampleEvents"][0]["result"]


def test_a_job_can_be_started_later_than_it_stopped_and_not_earlier(tmp_path: Path) -> None:
    whole = write_job(tmp_path / "whole", 600)
    run_here(whole)
    rows = [json.loads(line) for line in (tmp_path / "whole" / "counted.jsonl").read_text().splitlines()]
    path = write_job(tmp_path / "again", 600)

    def stop(report: StepReport) -> None:
        if report.number == 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_here(path, 20, stop)
    job = load_job(path)
    placements = travelling(job)
    commit = Journal(tmp_path / "again" / "crash.state").read_commit()
    assert commit is not None
    before = len((tmp_path / "again" / "counted.jsonl").read_text().splitlines())
    with pytest.raises(JobError, match="cannot start at 2020-01-01"):
        run_job(job, placements, start=parse_time("2020-01-01T00:00:00Z"))
    later = commit.released + 20 * 10_000_000
    run_job(job, placements, start=later)
    again = [json.loads(line) for line in (tmp_path / "again" / "counted.jsonl").read_text().splitlines()]
    expected = rows[:before] + [row for row in rows if parse_time(row["ts"]) >= later]
    assert again == expected
    assert len(expected) < len(rows)


@pytest.mark.slow
def test_each_output_goes_on_from_where_it_was(tmp_path: Path) -> None:
    """One that waits less long than another is ahead of it, and the journal says so."""
    query = """
    SELECT System.Timestamp() AS ts, l.k, r.v INTO counted FROM i l TIMESTAMP BY t LEFT JOIN i r TIMESTAMP BY t
    ON l.k = r.k AND DATEDIFF(minute, l, r) = 0 AND r.v > 95
    SELECT System.Timestamp() AS ts, k, v INTO large FROM i TIMESTAMP BY t WHERE v > 90
    """
    run_here(write_job(tmp_path / "whole", 600, query))
    path = write_job(tmp_path / "again", 600, query)

    def stop(report: StepReport) -> None:
        if report.number == 7:
            raise KeyboardInterrupt

    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            run_here(path, 20, stop)
        commit = Journal(tmp_path / "again" / "crash.state").read_commit()
        assert commit is not None
        assert commit.ahead["large"] > commit.released + 59 * 10_000_000
    run_here(path)
    assert outputs_of(tmp_path / "again") == outputs_of(tmp_path / "whole")


def test_a_job_whose_log_has_ended_says_so_when_it_is_run_again(tmp_path: Path) -> None:
    path = write_job(tmp_path, 100)
    run_here(path)
    before = outputs_of(tmp_path)
    job = load_job(path)
    placements = travelling(job)
    said: list[str] = []
    assert run_job(job, placements, notice=said.append).why == "complete"
    assert outputs_of(tmp_path) == before
    assert "reached the end of the log" in said[0]
    with pytest.raises(JobError, match="has emitted all results \\(its journal"):
        run_job(job, placements, start=START)


@pytest.mark.slow
def test_a_disk_that_is_full_for_a_while_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_here(write_job(tmp_path / "whole", 300))
    path = write_job(tmp_path / "full", 300, settings="output_retry_s = 30")
    job = load_job(path)
    real, calls = os.fdatasync, 0

    def full_now_and_then(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls % 3 == 0:
            raise OSError(28, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", full_now_and_then)
    said: list[str] = []
    run_job(job, travelling(job), max_events_per_step=40, notice=said.append)
    assert outputs_of(tmp_path / "full") == outputs_of(tmp_path / "whole")
    assert any("No space left on device; waiting, 30 s at most" in text for text in said)
    assert any("is back after" in text for text in said)


LIVE = """
name = "live"
query = "SELECT {what} AS n INTO counts FROM i TIMESTAMP BY t {grouped}"
[event_ordering]
late_arrival_tolerance_s = {late_s}
[inputs.i]
type = "eventhub"
connection_string = "{string};EntityPath=live"
[outputs.counts]
type = "file"
path = "counts.jsonl"
"""


@contextmanager
def live_job(folder: Path, late_s: float, age_s: float, what: str = "1", grouped: str = "") -> Iterator[Job]:
    """Yield a job over a hub that gets no more events than one, which says that it happened so long ago."""
    config = NamespaceConfig(name="n", event_hubs=(EventHubConfig(name="live", partition_count=1),))
    with BackgroundServer(config, folder / "data") as server:
        producer = Producer(ConnectionString.parse(server.connection_string, "live"))
        producer.open_partition("0")
        body = json.dumps({"t": format_time(time.time_ns() // 100 - int(age_s * 1e7))}).encode()
        producer.publish_to_partitions({"0": [producer.encoded("0", OutgoingEvent(body), 0)]})
        producer.close()
        text = LIVE.format(late_s=late_s, what=what, grouped=grouped, string=server.connection_string)
        (folder / "job.toml").write_text(text, encoding="utf-8")
        yield load_job(folder / "job.toml")


@pytest.mark.slow
def test_a_run_until_caught_up_ends_once_the_results_of_its_backlog_are_out(tmp_path: Path) -> None:
    with live_job(tmp_path, late_s=2 * PATIENCE_S, age_s=2 * PATIENCE_S - 0.5) as job:
        began = time.monotonic()
        assert run_job(job, until_caught_up=True).why is Ending.CAUGHT_UP
    # Not only when the watermark has passed the time at which the run began, which takes the late tolerance.
    assert time.monotonic() - began < PATIENCE_S
    assert json.loads((tmp_path / "counts.jsonl").read_text())["n"] == 1


@pytest.mark.slow
def test_a_run_until_caught_up_says_what_it_waits_for(tmp_path: Path) -> None:
    notices: list[str] = []
    with live_job(tmp_path, 2, 0, "COUNT(*)", "GROUP BY TumblingWindow(second, 1)") as job:
        assert run_job(job, until_caught_up=True, notice=notices.append).why is Ending.CAUGHT_UP
    assert "the last results wait until no late event can change them: the watermark has to reach 20" in notices[0]
    assert "the run ends after 3 s at the latest" in notices[0]


@pytest.mark.parametrize(("cores", "said"), [(1, 0), (2, 1)])
def test_what_more_cores_would_not_make_faster_is_said_before_a_job_starts_on_spark(
    tmp_path: Path, cores: int, said: int
) -> None:
    alone = "SELECT LAG(v) OVER (LIMIT DURATION(minute, 1)) AS v INTO counted FROM i TIMESTAMP BY t"
    file = '[outputs.counted]\ntype = "file"\npath = "counted.jsonl"\n'
    job = load_job(write_job(tmp_path, 20, query=alone, outputs=file))
    here = in_this_process(job.policy)
    notices: list[str] = []
    at_first_step: list[int] = []
    places = Placements(here.here, here.here, parallelism=lambda: cores)
    run_job(
        job,
        places,
        until_caught_up=True,
        notice=notices.append,
        on_step=lambda report: at_first_step.append(len(notices)),
    )
    assert sum("one shard of Spark" in one for one in notices) == said
    assert not said or at_first_step[0]
    assert not any(
        "one shard" in one for one in notices_of(load_job(write_job(tmp_path / "here", 20, query=alone, outputs=file)))
    )


def notices_of(job: Job) -> list[str]:
    notices: list[str] = []
    run_job(job, until_caught_up=True, notice=notices.append)
    return notices
