"""Jobs in processes of their own: what they say, how they end, and what that does to the job.

The processes are real: a fork server's (Linux) and interpreters of their own.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.job.run.test_run import QUERY, write_job
from tests.patience import PATIENCE_S, eventually
from tidegate.job.config.definition import read_content
from tidegate.service import JobDocument, JobResource, Jobs, JobState, StartMode
from tidegate.service.launching import ForkingLauncher, SpawningLauncher
from tidegate.service.processes import Launcher

pytestmark = pytest.mark.slow

LAUNCHERS: dict[str, Callable[[], Launcher]] = {"spawned": SpawningLauncher, "forked": ForkingLauncher}


def document(folder: Path, query: str = QUERY) -> JobDocument:
    """A job over a recorded log, which it reads to its end."""
    path = write_job(folder, 300, query=query)
    content = read_content(path)
    content["inputs"]["i"]["path"] = str(folder / "log.jsonl")
    for name, output in content["outputs"].items():
        output["path"] = str(folder / f"{name}.jsonl")
    return JobDocument(content)


def endless(folder: Path) -> JobDocument:
    """A job that also waits for files, so that it runs until it is stopped."""
    whole = document(folder, QUERY + "\nSELECT * INTO rest FROM more")
    (folder / "more").mkdir()
    definition = dict(whole.definition)
    definition["inputs"] = {**definition["inputs"], "more": {"type": "files", "path": str(folder / "more")}}
    definition["outputs"] = {**definition["outputs"], "rest": {"type": "file", "path": str(folder / "rest.jsonl")}}
    return JobDocument(definition)


def settled(jobs: Jobs, name: str = "job") -> JobResource:
    return jobs.wait(name, set(JobState) - {JobState.STARTING, JobState.STOPPING}, PATIENCE_S)


@pytest.mark.parametrize("launcher", LAUNCHERS.values(), ids=LAUNCHERS)
def test_a_process_runs_its_job_to_the_end_of_its_inputs(tmp_path: Path, launcher: Callable[[], Launcher]) -> None:
    with Jobs(tmp_path / "service", launcher=launcher) as jobs:
        jobs.create("job", document(tmp_path / "files"))
        jobs.start("job")
        ended = jobs.wait("job", {JobState.STOPPED, JobState.FAILED, JobState.DEGRADED}, PATIENCE_S)
        assert ended.reason == "its inputs have ended, and all results have left"
        assert ended.state is JobState.STOPPED
        assert len((tmp_path / "files" / "large.jsonl").read_bytes().splitlines()) > 10
        assert jobs.metrics("job")["Input Events"] > 250
        assert [line["message"] for line in jobs.logs("job").lines][-2].startswith("complete: ")


@pytest.mark.parametrize("launcher", LAUNCHERS.values(), ids=LAUNCHERS)
def test_a_process_that_is_killed_is_started_again(tmp_path: Path, launcher: Callable[[], Launcher]) -> None:
    with Jobs(tmp_path / "service", launcher=launcher) as jobs:
        jobs.create("job", endless(tmp_path / "files"))
        jobs.start("job")
        running = settled(jobs)
        assert running.state is JobState.RUNNING
        assert running.process is not None
        os.kill(running.process, signal.SIGKILL)
        degraded = jobs.wait("job", {JobState.DEGRADED}, PATIENCE_S)
        assert degraded.reason == "its process was ended by SIGKILL; starting again after 1 s (attempt 2 of 10)"
        again = jobs.wait("job", {JobState.RUNNING}, PATIENCE_S)
        assert (again.state, again.restarts) == (JobState.RUNNING, 1)
        jobs.stop("job")
        assert jobs.wait("job", {JobState.STOPPED}, PATIENCE_S).reason is None


def test_a_job_that_cannot_run_says_why(tmp_path: Path) -> None:
    with Jobs(tmp_path / "service") as jobs:
        jobs.create("job", document(tmp_path / "files", "SELECT nothing INTO large FROM elsewhere"))
        jobs.start("job")
        failed = settled(jobs)
        assert failed.state is JobState.FAILED
        assert "there is no input or step elsewhere" in str(failed.reason)
        jobs.create("empty", JobDocument())
        jobs.start("empty")
        assert settled(jobs, "empty").reason == "job 'empty' is incomplete: it has no query and no inputs"


def test_what_may_pass_when_a_job_starts_is_waited_for(tmp_path: Path) -> None:
    """A missing table and a hub that is unavailable degrade a job that starts, as they do one that runs."""
    definition = dict(document(tmp_path / "files", "SELECT k INTO large FROM i").definition)
    missing = {"type": "reference", "path": str(tmp_path / "table.json")}
    nobody = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true"
    cases: dict[str, dict[str, Any]] = {
        "output": {"outputs": {"large": {"type": "eventhub", "connection_string": nobody, "event_hub": "h"}}},
        "table": {
            "inputs": {**definition["inputs"], "ref": missing},
            "outputs": {"large": {"type": "file", "path": str(tmp_path / "joined.jsonl")}},
            "query": "SELECT i.k INTO large FROM i JOIN ref ON i.k = ref.k",
        },
    }
    with Jobs(tmp_path / "service") as jobs:
        for job, change in cases.items():
            jobs.create(job, JobDocument(definition={**definition, **change}))
            jobs.start(job)
        eventually(lambda: all(jobs.show(job).state is JobState.DEGRADED for job in cases))
        assert "127.0.0.1:1" in str(jobs.show("output").reason)
        assert "there is no file" in str(jobs.show("table").reason)
        (tmp_path / "table.json").write_text('[{"k": "a"}]')
        eventually(lambda: jobs.show("table").state is JobState.STOPPED)
        assert jobs.show("output").state is not JobState.FAILED


def test_what_only_a_person_can_mend_when_a_job_starts_ends_it(tmp_path: Path) -> None:
    definition = dict(document(tmp_path / "files", "SELECT k INTO large FROM i").definition)
    (tmp_path / "blocked").write_text("a file where the folder of the output will be")
    output = {"type": "file", "path": str(tmp_path / "blocked" / "out.jsonl")}
    with Jobs(tmp_path / "service") as jobs:
        jobs.create("job", JobDocument(definition={**definition, "outputs": {"large": output}}))
        jobs.start("job")
        failed = jobs.wait("job", {JobState.FAILED, JobState.DEGRADED, JobState.STOPPED}, PATIENCE_S)
        assert failed.state is JobState.FAILED
        assert "cannot write the output" in str(failed.reason)
        assert "File exists" in str(failed.reason)


def test_a_job_that_is_stopped_at_once_does_not_miss_it(tmp_path: Path) -> None:
    """The request to stop may reach the process together with its order."""
    with Jobs(tmp_path / "service") as jobs:
        jobs.create("job", endless(tmp_path / "files"))
        jobs.start("job")
        jobs.stop("job")
        assert jobs.wait("job", {JobState.STOPPED}, PATIENCE_S / 2).reason is None


def test_a_start_time_before_the_last_output_emits_results_once_more(tmp_path: Path) -> None:
    """As in the service, whose modes are now, any time, and the last output."""
    path = tmp_path / "files" / "large.jsonl"
    with Jobs(tmp_path / "service") as jobs:
        jobs.create("job", document(tmp_path / "files"))
        jobs.start("job")
        assert settled_at_its_end(jobs)
        once = path.read_bytes().splitlines(keepends=True)
        middle = datetime.fromisoformat(json.loads(once[len(once) // 2])["ts"])
        jobs.start("job", StartMode.CUSTOM, middle)
        assert settled_at_its_end(jobs)
        again = [line for line in once if datetime.fromisoformat(json.loads(line)["ts"]) >= middle]
        assert 0 < len(again) < len(once)
        assert path.read_bytes().splitlines(keepends=True) == once + again
        jobs.start("job")
        assert settled_at_its_end(jobs)
        assert path.read_bytes().splitlines(keepends=True) == once + again


def settled_at_its_end(jobs: Jobs) -> bool:
    return jobs.wait("job", {JobState.STOPPED, JobState.FAILED}, PATIENCE_S).state is JobState.STOPPED


def test_a_definition_is_checked_without_running_it(tmp_path: Path) -> None:
    with Jobs(tmp_path / "service") as jobs:
        assert jobs.check("job", document(tmp_path / "files").definition) == []
        wrong = document(tmp_path / "files", "SELECT nothing INTO large FROM elsewhere").definition
        assert jobs.check("job", wrong) == [
            "line 1, column 32: there is no input or step elsewhere; inputs are i",
        ]
        assert not (tmp_path / "files" / "crash.state").exists()


def test_what_a_job_would_wait_for_is_nothing_wrong_with_its_definition(tmp_path: Path) -> None:
    with Jobs(tmp_path / "service") as jobs:
        query = "SELECT i.k, t.name INTO large FROM i JOIN t ON i.k = t.k"
        definition = dict(document(tmp_path / "files", query).definition)
        definition["inputs"] = {**definition["inputs"], "t": {"type": "reference", "path": str(tmp_path / "t.json")}}
        definition["outputs"] = {"large": definition["outputs"]["large"]}
        assert jobs.check("job", definition) == []
        jobs.create("job", JobDocument(definition))
        jobs.start("job")
        waiting = jobs.wait("job", {JobState.DEGRADED, JobState.FAILED}, PATIENCE_S)
        assert str(waiting.reason).startswith(f"reference data 't': there is no file {tmp_path / 't.json'}")
        assert waiting.state is JobState.DEGRADED


def test_the_death_of_the_fork_server_is_survived(tmp_path: Path) -> None:
    launcher = ForkingLauncher()
    with Jobs(tmp_path / "service", launcher=lambda: launcher) as jobs:
        jobs.create("job", endless(tmp_path / "files"))
        jobs.start("job")
        settled(jobs)
        assert launcher._server is not None
        launcher._server._process.kill()
        assert "ended without a word" in str(jobs.wait("job", {JobState.DEGRADED}, PATIENCE_S).reason)
        assert jobs.wait("job", {JobState.RUNNING}, PATIENCE_S).state is JobState.RUNNING
