"""pyproject.toml declares the packages that the code imports, each in the extra that needs it, with bounds."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import tidegate
from scripts.structure import statements
from tests.source import ROOT, Module, files, modules

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = {"": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}

# Import names whose distribution has another name, or comes with another and has its version chosen by it.
DISTRIBUTIONS = {
    "azure": "azure-eventhub",
    "confluent_kafka": "confluent-kafka",
    "kafka": "kafka-python",
    "google": "protobuf",
    "google_crc32c": "google-crc32c",
    "grpc_tools": "grpcio-tools",
    "opentelemetry": "opentelemetry-sdk",
    "prometheus_client": "prometheus-client",
    "xdist": "pytest-xdist",
    "pydantic_core": "pydantic",
    "quickjs": "quickjs-ng",
}

# The layers of the base install: whatever their modules import at the top must be there without any extra.
BASE = ("", "amqp", "azure", "cli", "client", "durable_files", "hub", "kafka", "log", "portal", "server", "service")
BEYOND_BASE = {
    "service/workbench": "loaded by processes for questions, which start only if the extra is installed",
    "service/worker": "loaded by the processes of jobs, which the service starts only if the extra is installed",
    "azure/projects": "loaded by `tidegate job`, which asks for the extra if it is missing",
    "cli/job": "loaded by `tidegate job`, which asks for the extra if it is missing",
    "tidegate.cli.demo": "loaded by `tidegate demo`, which asks for the extra if it is missing",
    "tidegate.hub.capture.store": "loaded where a hub captures to an object store",
}

NOT_IMPORTED = {
    "websockets": "uvicorn imports it, for WebSockets",
    "aiohttp": "azure-eventhub's asynchronous client imports it",
    "azure-data-tables": "tests of Table storage import it below azure",
    "azure-eventhub-checkpointstoreblob-aio": "tests of Blob checkpoints import it below azure",
    "azure-eventhub-checkpointstoreblob": "tests of Blob checkpoints import it below azure",
    "azure-identity": "tests of the management API import it below azure",
    "azure-mgmt-eventhub": "tests of the management API import it below azure",
    "azure-mgmt-streamanalytics": "tests of the management API import it below azure",
    "azure-schemaregistry": "tests of the schema registry import it below azure",
    "azure-schemaregistry-avroencoder": "tests of the schema registry import it below azure",
    "editables": "the editable install",
    "grpcio-status": "Spark Connect imports it",
    "hatchling": "builds the package",
    "mypy": "a tool",
    "ruff": "a tool",
    "six": "azure-mgmt-streamanalytics imports it",
    "websocket-client": "azure-eventhub's synchronous client imports it, for WebSockets",
}

# Each package that a line imports, if it is no string; ruff keeps every import on a line of its own.
IMPORT = re.compile(r"^\s*(?:import|from)\s+(\w[\w.]*)", re.MULTILINE)

# Measured beside, where somebody has installed them.
PEERS = {"pyflink", "atheris"}


def distributions(extra: str) -> dict[str, Requirement]:
    return {found.name: found for found in map(Requirement, EXTRAS[extra])}


def third_party(names: Iterable[str]) -> set[str]:
    own = {"tidegate", "pyspark_tidegate", "tests", "scripts", "benchmarks", "__future__", *sys.stdlib_module_names}
    packages = {name.partition(".")[0] for name in names if name} - own
    return {DISTRIBUTIONS.get(package, package) for package in packages}


def imported(nodes: Iterable[ast.stmt]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module or ""


def imported_at_the_top(module: Module) -> Iterator[str]:
    yield from imported(module.tree.body)


def test_every_declared_package_is_imported_and_every_imported_one_declared() -> None:
    declared = {name for extra in EXTRAS if extra != "dev" for name in distributions(extra)}
    used = set().union(*(third_party(imported(module.statements)) for module in modules()))
    assert declared - used == {"pandas", "websockets", "opentelemetry-exporter-otlp-proto-http"}
    assert used - declared == set()


def test_what_only_developers_need_is_used_by_tests_benchmarks_or_scripts() -> None:
    paths = [path for folder in ("tests", "benchmarks", "scripts") for path in files(ROOT / folder, ".py")]
    used: set[str] = set()
    for text in (path.read_text(encoding="utf-8") for path in paths):
        # What looks like an import may be in a string. Few files need parsing, as few import what no other does.
        if third_party(IMPORT.findall(text)) - used:
            used |= third_party(imported(statements(ast.parse(text))))
    everything = {name for extra in EXTRAS for name in distributions(extra)}
    assert used - everything - PEERS == set()
    assert set(distributions("dev")) - used == set(NOT_IMPORTED) - {"websockets"}


def test_what_pyspark_needs_for_python_over_arrow_is_declared() -> None:
    # It imports them when a function is called, and installs none of them.
    optional = map(Requirement, importlib.metadata.requires("pyspark") or ())
    needed = {one for one in optional if one.marker is not None and one.marker.evaluate({"extra": "sql"})}
    assert {one.name for one in needed} >= {"pandas", "pyarrow"}
    declared = distributions("spark")
    for one in needed:
        assert one.name in declared, (
            f"a job on Spark fails where only tidegate[spark] is installed: {one.name} is missing"
        )


def test_the_base_install_is_enough_for_the_hub() -> None:
    of_base = (module for module in modules() if module.package in BASE)
    needed = {
        module.name: third_party(imported_at_the_top(module)) - set(distributions(""))
        for module in of_base
        if module.folder not in BEYOND_BASE and module.dotted not in BEYOND_BASE
    }
    assert not {name: packages for name, packages in needed.items() if packages}


@pytest.mark.parametrize("extra", [extra for extra in EXTRAS if extra != "dev"])
def test_what_users_install_is_bounded_on_both_sides(extra: str) -> None:
    open_ended = [
        str(requirement)
        for requirement in distributions(extra).values()
        if not {"=="} & {part.operator for part in requirement.specifier}
        and not {">=", "<"} <= {part.operator for part in requirement.specifier}
    ]
    assert not open_ended


def test_the_lock_holds_every_declared_package_within_its_bounds() -> None:
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    locked = dict(line.removesuffix(" \\").split("==") for line in lines if "==" in line and line[0].isalnum())
    for extra in EXTRAS:
        for name, requirement in distributions(extra).items():
            assert requirement.specifier.contains(locked[name]), requirement


def test_the_lock_names_no_host() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert "://" not in lock
    assert "index-url" not in lock.replace("--no-emit-index-url", "")


def test_the_version_is_written_in_one_place() -> None:
    assert PROJECT["dynamic"] == ["version"]
    assert importlib.metadata.version("tidegate") == tidegate.__version__


def test_the_types_are_part_of_what_is_installed() -> None:
    assert (Path(tidegate.__file__).parent / "py.typed").exists()
