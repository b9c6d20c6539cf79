"""The image and the unit start `tidegate up` with valid options and a configuration that it reads."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.source import ROOT
from tidegate.cli import main
from tidegate.cli.up import up
from tidegate.hub import load_config
from tidegate.service.supervision import STOP_WITHIN_S

PACKAGING = ROOT / "packaging"
CONFIG_IN_IMAGE = "/Eventhubs_Emulator/ConfigFiles/Config.json"


def text(name: str) -> str:
    return (PACKAGING / name).read_text(encoding="utf-8")


def options_of_up(arguments: list[str]) -> dict[str, Any]:
    # Below `tidegate` itself: a command keeps the help option of the first context that it is in.
    with main.make_context("tidegate", [], resilient_parsing=True) as context:
        return up.make_context("up", arguments, parent=context).params


def test_the_image_s_command_is_one_that_up_takes() -> None:
    (command,) = re.findall(r"^CMD (\[.*\])$", text("Dockerfile"), re.MULTILINE)
    name, *arguments = json.loads(command)
    assert name == "up"
    options = options_of_up(arguments)
    assert (str(options["config"]), options["host"], options["amqp_port"]) == (CONFIG_IN_IMAGE, "0.0.0.0", 5672)
    assert f"EXPOSE {options['amqp_port']} {options['http_port']} 9092\n" in text("Dockerfile")


def test_the_image_has_no_root_and_looks_after_itself() -> None:
    dockerfile = text("Dockerfile")
    last_stage = dockerfile.rpartition("\nFROM ")[2]
    assert "USER tidegate\n" in last_stage
    assert last_stage.index("USER tidegate") > last_stage.index("RUN ")
    assert "http://127.0.0.1:5300/health" in last_stage


def test_the_configuration_in_the_image_can_be_read() -> None:
    (hub,) = load_config(PACKAGING / "Config.json").event_hubs
    assert (hub.name, hub.partition_count, hub.consumer_groups) == ("eh1", 2, ("$Default", "cg1"))


def test_the_compose_file_mounts_what_the_image_reads() -> None:
    compose = text("compose.yaml")
    assert f":{CONFIG_IN_IMAGE}:ro" in compose
    assert "data:/data" in compose
    for port in (5672, 5300):
        assert f":{port}:{port}" in compose


def test_the_unit_s_command_is_one_that_up_takes() -> None:
    (command,) = re.findall(r"^ExecStart=(.*)$", text("tidegate.service"), re.MULTILINE)
    _, name, *arguments = shlex.split(command)
    assert name == "up"
    options = options_of_up(arguments)
    assert str(options["data"]) == "/var/lib/tidegate"
    assert "StateDirectory=tidegate\n" in text("tidegate.service")


def test_the_unit_lets_jobs_end_alone_and_in_time() -> None:
    unit = text("tidegate.service")
    for setting in ("KillMode=mixed", "OOMPolicy=continue", "Restart=on-failure", "WantedBy=multi-user.target"):
        assert f"\n{setting}\n" in unit
    (seconds,) = re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    assert int(seconds) > STOP_WITHIN_S / 2


@pytest.mark.parametrize("name", ["grafana-dashboard.json", "alerts.yaml"])
def test_dashboard_and_alerts_use_metrics_that_exist(name: str) -> None:
    documented = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    used = set(re.findall(r"\btidegate_[a-z_]+", text(name)))
    assert len(used) > 5
    assert not [metric for metric in used if f"`{metric}" not in documented]


def test_the_dashboard_is_one_that_grafana_reads() -> None:
    dashboard = json.loads(text("grafana-dashboard.json"))
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        assert panel["type"] == "row" or all(target["expr"] for target in panel["targets"])


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.spark"])
def test_the_image_is_built_of_what_it_needs_and_nothing_else(name: str) -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in ignored
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", text(name), re.MULTILINE)
    for path in " ".join(copied).split():
        assert f"!{path}" in ignored


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Return a PATH on which Node.js is missing and `apt-get` only writes down what it is asked for."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("bash", "env", "id", "cat", "sed", "head", "grep"):
        found = shutil.which(name)
        assert found is not None
        (folder / name).symlink_to(found)
    for name, script in {
        "apt-get": f'#!/bin/bash\necho "$*" >> {tmp_path}/asked\n',
        "apt-cache": "#!/bin/bash\n",
        # Whoever runs the test, the script may install.
        "sudo": '#!/bin/bash\n[ "$1" = -n ] && shift\n[ "$1" = true ] || exec "$@"\n',
    }.items():
        (folder / name).write_text(script, encoding="utf-8")
        (folder / name).chmod(0o755)
    return folder


def need_node(machine: Path, **environment: str) -> tuple[str, str]:
    """Return what `scripts/need node` installs there and says."""
    done = subprocess.run(
        [str(machine / "bash"), str(ROOT / "scripts" / "need"), "node"],
        env={"PATH": str(machine), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    asked = machine.parent / "asked"
    return asked.read_text(encoding="utf-8") if asked.exists() else "", done.stderr


def test_a_build_installs_what_is_missing_without_a_question(machine: Path) -> None:
    installed, said = need_node(machine, CI="true")
    assert "install --yes nodejs npm" in installed
    assert "[Y/n]" not in said


def test_without_a_terminal_nobody_is_asked(machine: Path) -> None:
    installed, said = need_node(machine)
    assert "install --yes nodejs npm" in installed
    assert "[Y/n]" not in said


@pytest.mark.parametrize(("answer", "installs"), [("y\n", True), ("\n", True), ("n\n", False), ("", False)])
def test_a_person_is_asked_before_a_system_package_is_installed(machine: Path, answer: str, installs: bool) -> None:
    terminal = machine.parent / "terminal"
    terminal.write_text(answer, encoding="utf-8")
    installed, said = need_node(machine, TIDEGATE_TERMINAL=str(terminal))
    assert "[Y/n]" in said
    assert bool(installed) is installs
    assert installs or "please run this, then try again:  sudo apt-get install --yes nodejs npm" in said


@pytest.mark.parametrize("name", ["compose-gateways.yaml", "kubernetes-gateways.yaml"])
def test_the_gateways_are_started_with_options_that_exist(name: str) -> None:
    found = re.search(r"^( +)- up\n((?:\1- --\S+\n)+)", text(name), re.MULTILINE)
    assert found is not None
    options = options_of_up([line.strip().removeprefix("- ") for line in found[2].splitlines()])
    assert options["store"].startswith("kafka://")
    assert options["drain"] > 0
    assert options["host"] == "0.0.0.0"


def test_the_balancer_asks_whether_gateways_are_ready() -> None:
    services = re.findall(r"^  (gateway-\d):$", text("compose-gateways.yaml"), re.MULTILINE)
    for service in services:
        assert f"server {service} {service}:5672" in text("haproxy.cfg")
    assert "GET /ready" in text("haproxy.cfg")
    assert "path: /ready" in text("kubernetes-gateways.yaml")


@pytest.mark.parametrize("failing", ["", "pyspark", "others", "check"])
def test_every_locked_package_is_installed_once_or_the_script_fails(tmp_path: Path, failing: str) -> None:
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    pip = tmp_path / ".venv" / "bin" / "pip"
    pip.write_text(
        f'#!/usr/bin/env bash\n[ "$1" = check ] && exec test "{failing}" != check\n'
        f'cat "${{!#}}" >>installed\ntest "$(basename "${{!#}}")" != "{failing}"\n',
        encoding="utf-8",
    )
    pip.chmod(0o755)
    lock = "# pip-compile\nattrs==1 \\\n    --hash=sha256:a\npyspark==4 \\\n    --hash=sha256:b\n    # via x\nrich==2\n"
    (tmp_path / "requirements.lock").write_text(lock, encoding="utf-8")
    done = subprocess.run([ROOT / "scripts" / "fill"], cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode == 0) is (failing == "")
    if not failing:
        installed = (tmp_path / "installed").read_text(encoding="utf-8").splitlines()
        assert sorted(installed) == sorted(lock.splitlines()[1:])
