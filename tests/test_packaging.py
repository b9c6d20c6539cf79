"""The image and the unit start `tidegate up` as it is, with a configuration that it reads."""

import json
import re
import shlex
from typing import Any

from tests.source import ROOT
from tidegate.cli import main
from tidegate.cli.up import up
from tidegate.hub import load_config

PACKAGING = ROOT / "packaging"
CONFIG_IN_IMAGE = "/Eventhubs_Emulator/ConfigFiles/Config.json"


def text(name: str) -> str:
    return (PACKAGING / name).read_text(encoding="utf-8")


def options_of_up(arguments: list[str]) -> dict[str, Any]:
    # Below `tidegate` itself: a command keeps the help option of the first context that it is in.
    with main.make_context("tidegate", [], resilient_parsing=True) as context:
        return up.make_context("up", arguments, parent=context).params


def test_the_image_s_command_is_one_that_up_takes():
    (command,) = re.findall(r"^CMD (\[.*\])$", text("Dockerfile"), re.MULTILINE)
    name, *arguments = json.loads(command)
    assert name == "up"
    options = options_of_up(arguments)
    assert (str(options["config"]), options["host"], options["amqp_port"]) == (CONFIG_IN_IMAGE, "0.0.0.0", 5672)
    assert f"EXPOSE {options['amqp_port']} {options['http_port']}\n" in text("Dockerfile")


def test_the_image_has_no_root_and_looks_after_itself():
    dockerfile = text("Dockerfile")
    last_stage = dockerfile.rpartition("\nFROM ")[2]
    assert "USER tidegate\n" in last_stage
    assert last_stage.index("USER tidegate") > last_stage.index("RUN ")
    assert "http://127.0.0.1:5300/health" in last_stage


def test_the_configuration_in_the_image_can_be_read():
    (hub,) = load_config(PACKAGING / "Config.json").event_hubs
    assert (hub.name, hub.partition_count, hub.consumer_groups) == ("eh1", 2, ("$Default", "cg1"))


def test_the_compose_file_mounts_what_the_image_reads():
    compose = text("compose.yaml")
    assert f":{CONFIG_IN_IMAGE}:ro" in compose
    assert "data:/data" in compose
    for port in (5672, 5300):
        assert f":{port}:{port}" in compose


def test_the_unit_s_command_is_one_that_up_takes():
    (command,) = re.findall(r"^ExecStart=(.*)$", text("tidegate.service"), re.MULTILINE)
    _, name, *arguments = shlex.split(command)
    assert name == "up"
    options = options_of_up(arguments)
    assert str(options["data"]) == "/var/lib/tidegate"
    assert "StateDirectory=tidegate\n" in text("tidegate.service")


def test_the_image_is_built_of_what_it_needs_and_nothing_else():
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in ignored
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", text("Dockerfile"), re.MULTILINE)
    for name in " ".join(copied).split():
        assert f"!{name}" in ignored
