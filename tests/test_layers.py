"""Imports point down the layers, and each package leans on no more than it says."""

import sys

import pytest

from tests.source import Module, imports, modules

# What each layer may import of ours. The hub handles message bytes, not connections: two modules of amqp are enough.
LAYERS = {
    "amqp": (),
    "log": (),
    "ordering": (),
    "saql": (),
    "blobs": (),
    "checkpoints": ("blobs",),
    "hub": ("blobs", "log", "amqp.message", "amqp.types"),
    "engine": ("saql", "ordering"),
    "client": ("amqp",),
    "job": ("blobs", "engine", "saql", "ordering", "log", "client", "amqp", "hub.placement"),
    "spark": ("job", "engine", "saql", "ordering", "log", "client", "amqp"),
    "server": ("hub", "amqp", "log"),
    "cli": ("checkpoints", "server", "spark", "job", "engine", "saql", "ordering", "hub", "log", "client", "amqp"),
    "": ("cli",),
    "pyspark_tidegate": ("spark",),
}

# What each layer may import of others, beside the standard library.
LIBRARIES = {
    "amqp": (),
    "log": ("google_crc32c",),
    "ordering": ("numpy",),
    "saql": ("sqlglot",),
    "blobs": ("obstore",),
    "checkpoints": ("azure", "obstore", "psycopg"),
    "hub": ("obstore", "pydantic"),
    "engine": ("fastavro", "msgspec", "numpy", "pyarrow"),
    "client": (),
    "job": ("fastavro", "msgspec", "numpy", "prometheus_client", "psycopg", "pydantic"),
    "spark": ("numpy", "pyarrow", "pyspark", "py4j"),
    "server": ("h11", "prometheus_client", "pydantic", "starlette", "trustme", "uvicorn", "websockets"),
    "cli": ("azure", "click", "numpy", "pydantic", "rich"),
    "": (),
    "pyspark_tidegate": (),
}

# A clock, a socket or a thread in these would make their tests slow and their results differ from run to run.
PURE = ("amqp", "ordering", "saql", "engine")
IMPURE_MODULES = {"asyncio", "multiprocessing", "selectors", "socket", "ssl", "subprocess", "threading", "time"}


def label(module: Module) -> str:
    return module.name


@pytest.mark.parametrize("module", modules(), ids=label)
def test_imports_point_down(module: Module) -> None:
    allowed = {module.package, *LAYERS[module.package]}
    wrong = []
    for name, line in imports(module):
        top, _, rest = name.partition(".")
        if top == "tidegate" and rest:
            inner = rest.split(".")
            permitted = inner[0] in allowed or ".".join(inner[:2]) in allowed
            if not permitted and not (module.package == "" and len(inner) == 1):
                wrong.append(f"line {line}: {name}")
    assert not wrong, f"{module.name} may import {sorted(allowed)} only"


@pytest.mark.parametrize("module", modules(), ids=label)
def test_libraries_are_those_the_layer_declares(module: Module) -> None:
    allowed = {"tidegate", "__future__", *LIBRARIES[module.package], *sys.stdlib_module_names}
    wrong = [f"line {line}: {name}" for name, line in imports(module) if name.partition(".")[0] not in allowed]
    assert not wrong, f"{module.name} may import {LIBRARIES[module.package]} only"


@pytest.mark.parametrize("module", [module for module in modules() if module.package in PURE], ids=label)
def test_pure_layers_read_no_clock_and_open_no_socket(module: Module) -> None:
    assert not {name.partition(".")[0] for name, _ in imports(module)} & IMPURE_MODULES


def test_every_package_has_its_place() -> None:
    assert {module.package for module in modules()} == set(LAYERS) == set(LIBRARIES)
