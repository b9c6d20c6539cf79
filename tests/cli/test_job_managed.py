"""`tidegate job create`, `start` and the others: a service with real processes, driven from the command line."""

from __future__ import annotations

import io
import json
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.job.run.test_run import outputs_of, write_job
from tests.patience import PATIENCE_S
from tidegate.azure.management import ArmSettings, PrincipalRole, Principals, arm_routes
from tidegate.cli import main
from tidegate.cli.job.managed import described
from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.server import BackgroundServer, Server
from tidegate.service import Jobs

pytestmark = pytest.mark.slow

Run = Callable[..., str]
SECRET = "a-secret-of-the-reader"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Server]:
    """A service whose jobs run in processes, with a reader."""
    config = NamespaceConfig(name="n", event_hubs=(EventHubConfig(name="eh1", partition_count=1),))
    data = tmp_path / "data"
    Principals(data).create("looker", PrincipalRole.READER, SECRET)
    with (
        Jobs(data / "service") as jobs,
        BackgroundServer(config, data, further_routes=[arm_routes(ArmSettings(data, jobs))], http_port=0) as running,
    ):
        yield running.server


@pytest.fixture
def run(service: Server, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command on a service, and returns what it printed."""

    def run_command(*arguments: str, code: int = 0) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["job", *arguments, "--data", str(service.data_dir)])
        printed = capsys.readouterr()
        assert ended.value.code == code, printed.err
        return printed.out if code == 0 else printed.err

    return run_command


def test_a_job_file_becomes_a_job_that_runs_like_job_run(tmp_path: Path, run: Run) -> None:
    path = write_job(tmp_path / "files", 300)
    created = json.loads(run("create", str(path), "-o", "json"))
    assert created["state"] == "Created"
    assert created["definition"]["state_dir"] == str(tmp_path / "files" / "crash.state")
    run("start", "crash", "--wait", "0")
    run("stop", "crash", "--wait", str(PATIENCE_S))
    run("start", "crash", "--wait", str(PATIENCE_S))
    while json.loads(run("show", "crash", "-o", "json"))["state"] != "Stopped":
        pass
    counted, _ = outputs_of(tmp_path / "files")
    assert counted
    assert "its inputs have ended" in run("show", "crash")
    assert "Input Events" in run("show", "crash", "--metrics")
    assert "crash: event ordering: early" in run("logs", "crash")
    assert json.loads(run("logs", "crash", "--errors", "-o", "json").splitlines()[0])["EventCount"]
    assert "Stopped" in run("list")
    assert "'crash' exists already" in run("create", str(path), code=1)
    run("scale", "crash", "3")
    assert json.loads(run("show", "crash", "-o", "json"))["streamingUnits"] == 3
    run("delete", "crash", "--yes")
    assert run("list").strip() == "none"
    assert (tmp_path / "files" / "crash.state").is_dir()


def test_a_wrong_job_is_refused_with_the_place_of_every_problem(tmp_path: Path, run: Run) -> None:
    path = write_job(tmp_path / "files", 10, "SELECT nothing INTO large FROM elsewhere")
    refused = run("create", str(path), code=1)
    assert "job 'crash' cannot run:\n  line 1, column 32: there is no input or step elsewhere" in refused
    assert run("list").strip() == "none"


def test_contradictory_options_are_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--mode custom and --time go together" in run("start", "crash", "--mode", "custom", code=2)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert "add --yes" in run("delete", "crash", code=2)
    assert "there is no job 'nothing'" in run("show", "nothing", code=1)


def test_a_job_in_a_group_of_its_own_is_found_by_its_name(tmp_path: Path, run: Run, service: Server) -> None:
    run("create", str(write_job(tmp_path / "files", 10)))
    base, token = f"http://127.0.0.1:{service.http_port}", service.namespace.access.rule_table.root_rule.primary_key
    place = f"{base}/subscriptions/s/resourceGroups/made"
    other = f"{place}/providers/Microsoft.StreamAnalytics/streamingjobs/other"
    for url, body in ((place, {"location": "local"}), (other, {"properties": {}})):
        headers = {"Authorization": f"Bearer {token}"}
        content = json.dumps(body).encode()
        request = urllib.request.Request(f"{url}?api-version=2020-03-01", content, headers, method="PUT")
        urllib.request.urlopen(request, timeout=PATIENCE_S).close()
    assert [job["name"] for job in json.loads(run("list", "-o", "json"))] == ["crash", "other"]
    assert json.loads(run("show", "OTHER", "-o", "json"))["name"] == "other"
    run("scale", "other", "2", "--no-wait")
    assert run("logs", "other") == ""
    run("delete", "other", "--yes")
    assert "there is no job 'other'" in run("delete", "other", "--yes", code=1)
    assert "there is no job 'other'" in run("stop", "other", code=1)


def test_a_reader_sees_jobs_and_changes_none(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_job(tmp_path / "files", 10)
    run("create", str(path))
    monkeypatch.setenv("TIDEGATE_PRINCIPAL_SECRET", SECRET)
    assert "Created" in run("show", "crash", "--principal", "looker")
    for command in (("start", "crash"), ("stop", "crash"), ("delete", "crash", "--yes"), ("update", str(path))):
        refused = run(*command, "--principal", "looker", code=1)
        assert "'looker' with the role reader" in refused
        assert "(AuthorizationFailed)" in refused
    assert "Created" in run("show", "crash")


def test_each_query_is_shown_with_the_time_of_its_results() -> None:
    change = "2026-01-01T00:00:00Z"
    old: dict[str, object] = {"resultsFrom": None, "resultsBefore": change, "firstRows": {}}
    new = {"resultsFrom": change, "resultsBefore": None, "firstRows": {"results": 4}}
    assert described({"versions": [old, new]}, "table")["versions"] == [
        f"results from the beginning to {change}",
        f"results from {change} on (results after 4 rows)",
    ]


def test_without_a_service_the_next_step_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["job", "list", "--data", str(tmp_path)])
    assert f"no hub runs on the data directory {tmp_path}: start it with `tidegate up" in capsys.readouterr().err
