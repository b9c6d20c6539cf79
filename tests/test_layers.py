"""Imports point down the layers, every folder may import only what its row lists, and nothing imports in a circle."""

import sys

import pytest

from tests.source import Module, cycles, folder_imports, imports, module_imports, modules

# What each folder may import from this project. A folder always means itself alone, without its subfolders.
# The hub handles message bytes, not connections, so two folders of amqp are enough for it.
FOLDERS: dict[str, tuple[str, ...]] = {
    "lazy": (),
    "durable_files": (),
    "amqp/encoding": (),
    "amqp/messages": ("amqp/encoding",),
    "amqp/framing": ("amqp/encoding",),
    "amqp/endpoints": ("amqp/framing", "amqp/encoding"),
    "amqp": ("amqp/endpoints", "amqp/framing", "amqp/messages", "amqp/encoding"),
    "log": ("durable_files",),
    "ordering": (),
    "blobs": (),
    "checkpoints": ("blobs",),
    "client": ("amqp", "amqp/endpoints", "amqp/encoding"),
    "hub/capture": ("blobs", "log", "durable_files", "amqp/messages", "amqp/encoding"),
    "hub/config": ("hub/capture",),
    "hub": ("hub/config", "hub/capture", "log", "durable_files", "amqp/messages", "lazy"),
    "saql/plan": (),
    "saql/parsing": ("saql/plan",),
    "saql/lowering": ("saql/parsing", "saql/plan"),
    "saql": ("saql/lowering", "saql/parsing", "saql/plan", "lazy"),
    "engine/values": ("saql/plan", "ordering"),
    "engine/decoding": ("engine/values", "saql/plan", "ordering"),
    "engine/functions": ("engine/decoding", "engine/values", "saql/plan", "ordering"),
    "engine/expressions": ("engine/functions", "engine/decoding", "engine/values", "saql/plan", "ordering"),
    "engine/aggregates/states": ("engine/functions", "engine/values", "saql/plan"),
    "engine/aggregates/functions": (
        "engine/aggregates/states",
        "engine/expressions",
        "engine/values",
        "saql/plan",
    ),
    "engine/aggregates": (
        "engine/aggregates/functions",
        "engine/aggregates/states",
        "engine/expressions",
        "engine/values",
        "saql/plan",
    ),
    "engine/substreams": ("engine/expressions", "engine/values", "saql/plan", "ordering"),
    "engine/windows": (
        "engine/substreams",
        "engine/aggregates",
        "engine/aggregates/states",
        "engine/expressions",
        "engine/values",
        "saql/plan",
        "ordering",
    ),
    "engine/windows/kinds": (
        "engine/windows",
        "engine/substreams",
        "engine/aggregates/states",
        "engine/expressions",
        "engine/values",
        "saql/plan",
        "ordering",
    ),
    "engine/stateful/analytics": (
        "engine/windows",
        "engine/aggregates/states",
        "engine/functions",
        "engine/values",
        "saql/plan",
    ),
    "engine/stateful": (
        "engine/stateful/analytics",
        "engine/windows",
        "engine/substreams",
        "engine/aggregates",
        "engine/aggregates/states",
        "engine/functions",
        "engine/expressions",
        "engine/decoding",
        "engine/values",
        "saql/plan",
        "ordering",
    ),
    "engine/program": (
        "engine/stateful",
        "engine/windows",
        "engine/windows/kinds",
        "engine/aggregates",
        "engine/aggregates/states",
        "engine/substreams",
        "engine/functions",
        "engine/expressions",
        "engine/decoding",
        "engine/values",
        "saql/plan",
        "ordering",
    ),
    "engine/sharding": (
        "engine/program",
        "engine/stateful",
        "engine/windows",
        "engine/substreams",
        "engine/functions",
        "engine/expressions",
        "engine/decoding",
        "engine/values",
        "saql/plan",
        "ordering",
    ),
    "engine": (
        "lazy",
        "engine/program",
        "engine/stateful",
        "engine/substreams",
        "engine/expressions",
        "engine/decoding",
        "engine/values",
    ),
    "job/model": ("engine", "engine/decoding", "saql", "ordering", "client", "blobs", "durable_files", "amqp/messages"),
    "job/inputs": (
        "job/model",
        "engine",
        "engine/decoding",
        "engine/values",
        "ordering",
        "blobs",
        "client",
        "log",
        "durable_files",
    ),
    "job/outputs": ("job/model", "engine", "engine/values", "saql/plan", "ordering"),
    "job/outputs/files": (
        "job/outputs",
        "job/model",
        "engine",
        "engine/values",
        "saql/plan",
        "ordering",
        "blobs",
        "durable_files",
    ),
    "job/outputs/tables": (
        "job/outputs",
        "job/outputs/files",
        "job/model",
        "engine",
        "engine/values",
        "saql/plan",
        "blobs",
    ),
    "job/inputs/kafka": (
        "job/inputs",
        "job/model",
        "engine",
        "engine/decoding",
        "ordering",
        "client",
    ),
    "job/outputs/messaging": (
        "job/outputs",
        "job/model",
        "engine",
        "engine/values",
        "saql/plan",
        "client",
        "amqp",
        "amqp/messages",
        "amqp/encoding",
        "hub.placement",
    ),
    "job/config": ("job/inputs", "job/outputs", "job/model", "engine"),
    "job/functions": (
        "job/outputs",
        "job/outputs/messaging",
        "job/model",
        "engine/values",
        "ordering",
    ),
    "job/runtime": ("job/inputs", "job/model", "engine", "engine/sharding", "engine/expressions", "ordering"),
    "job/prepare": (
        "job/functions",
        "job/runtime",
        "job/inputs",
        "job/config",
        "job/model",
        "engine",
        "engine/windows",
        "engine/expressions",
        "saql",
        "saql/parsing",
        "saql/plan",
        "ordering",
    ),
    "job/testing": (
        "job/prepare",
        "job/runtime",
        "job/inputs",
        "job/config",
        "job/model",
        "engine",
        "saql",
        "ordering",
    ),
    "job/analysis": (
        "job/testing",
        "job/prepare",
        "job/runtime",
        "job/config",
        "job/model",
        "engine",
        "engine/program",
        "engine/sharding",
        "engine/windows",
        "engine/expressions",
        "saql",
        "saql/plan",
        "ordering",
    ),
    "job/side_outputs": (
        "job/analysis",
        "job/runtime",
        "job/outputs",
        "job/config",
        "job/model",
        "engine",
        "engine/values",
        "saql/plan",
        "ordering",
    ),
    "job/run": (
        "durable_files",
        "job/side_outputs",
        "job/prepare",
        "job/runtime",
        "job/outputs",
        "job/model",
        "engine",
        "saql/plan",
        "ordering",
    ),
    "job/project/model": ("job/model",),
    "job/project/datasources": ("job/project/model", "job/model", "blobs"),
    "job/project": (
        "arm_templates",
        "job/project/datasources",
        "job/project/model",
        "job/testing",
        "job/prepare",
        "job/runtime",
        "job/inputs",
        "job/config",
        "job/model",
        "engine",
        "engine/decoding",
        "saql",
        "saql/parsing",
        "saql/plan",
        "ordering",
    ),
    "job": (
        "lazy",
        "job/run",
        "job/analysis",
        "job/testing",
        "job/prepare",
        "job/runtime",
        "job/config",
        "job/model",
        "ordering",
    ),
    "spark/queries": (
        "job/prepare",
        "job/runtime",
        "job/config",
        "job/outputs",
        "job/inputs",
        "job/model",
        "blobs",
        "client",
        "engine",
        "engine/sharding",
        "engine/expressions",
        "engine/decoding",
        "engine/values",
        "saql/plan",
        "ordering",
    ),
    "spark/streaming": (
        "spark/queries",
        "job",
        "job/run",
        "job/outputs",
        "job/model",
        "engine",
        "ordering",
        "durable_files",
    ),
    "spark": (
        "lazy",
        "spark/queries",
        "spark/streaming",
        "job",
        "job/run",
        "job/config",
        "job/runtime",
        "job/inputs",
        "job/model",
        "client",
        "amqp",
        "hub.placement",
        "engine",
        "engine/sharding",
        "ordering",
        "durable_files",
    ),
    "spark/shared": ("spark", "job/run", "job/config", "job/runtime", "job/model", "engine"),
    "server/context": ("hub", "hub/capture", "durable_files"),
    "server/transports": (),
    "server/connections": (
        "server/transports",
        "server/context",
        "hub",
        "amqp",
        "amqp/endpoints",
        "amqp/messages",
        "amqp/encoding",
        "log",
    ),
    "server/http": (
        "server/transports",
        "server/context",
        "hub",
        "amqp/messages",
        "amqp/encoding",
    ),
    "server/http/routes": ("server/http", "server/transports", "server/context", "hub"),
    "server": (
        "server/http",
        "server/connections",
        "server/transports",
        "server/context",
        "hub/config",
        "hub",
        "log",
        "durable_files",
    ),
    "service/sharing": (),
    "service": ("service/sharing", "durable_files"),
    "service/worker": (
        "service",
        "spark",
        "spark/shared",
        "job",
        "job/run",
        "job/prepare",
        "job/runtime",
        "job/inputs",
        "job/outputs",
        "job/config",
        "job/model",
        "engine",
        "saql",
        "ordering",
    ),
    "arm_templates": (),
    "arm/model": ("hub",),
    "arm/access": ("arm/model", "hub", "durable_files"),
    "arm/manager": ("arm/access", "arm/model", "hub", "log", "durable_files"),
    "arm/deployments": ("arm/manager", "arm/access", "arm/model", "arm_templates"),
    "arm/event_hubs": ("arm/manager", "arm/model", "hub", "hub/config", "hub/capture"),
    "arm/stream_analytics": (
        "arm/manager",
        "arm/model",
        "job/project",
        "job/project/datasources",
        "job/project/model",
        "job/model",
        "service",
        "client",
        "hub",
    ),
    "arm": (
        "arm/deployments",
        "arm/stream_analytics",
        "arm/event_hubs",
        "arm/manager",
        "arm/access",
        "arm/model",
        "server/http",
        "service",
        "hub",
    ),
    "portal/web": ("server/http", "hub", "log"),
    "portal/events": (
        "portal/web",
        "server/context",
        "hub",
        "log",
        "amqp/messages",
        "amqp/encoding",
    ),
    "portal/pages": (
        "portal/events",
        "portal/web",
        "server/http",
        "server/context",
        "hub/config",
        "hub/capture",
        "hub",
        "log",
    ),
    "service/workbench": (
        "service",
        "job/analysis",
        "job/prepare",
        "job/runtime",
        "job/inputs",
        "job/config",
        "job/model",
        "engine",
        "saql",
        "saql/parsing",
        "saql/plan",
        "ordering",
    ),
    "portal/jobs": ("portal/web", "service", "hub"),
    "portal": ("portal/jobs", "portal/pages", "portal/web", "server/http", "service"),
    "cli/management": ("server", "hub"),
    "cli/hub": ("cli/management", "cli", "hub/config"),
    "cli/job/managed": ("cli/management", "cli", "service", "job/config"),
    "cli/job": (
        "service",
        "job",
        "job/testing",
        "job/project",
        "job/run",
        "job/analysis",
        "job/prepare",
        "job/runtime",
        "job/config",
        "spark",
        "engine",
        "saql",
        "ordering",
    ),
    "cli": (
        "arm",
        "checkpoints",
        "service",
        "portal",
        "server",
        "spark",
        "job",
        "job/analysis",
        "job/config",
        "hub/config",
        "hub/capture",
        "client",
        "ordering",
    ),
    "": ("cli",),
    "pyspark_tidegate": ("spark",),
}

# What each layer may import from other projects, beside the standard library.
LIBRARIES = {
    "amqp": (),
    "lazy": (),
    "durable_files": ("google_crc32c",),
    "log": ("google_crc32c",),
    "ordering": ("numpy",),
    "saql": (),
    "blobs": ("obstore",),
    "checkpoints": ("azure", "obstore", "psycopg"),
    "hub": ("obstore", "pydantic"),
    "engine": ("fastavro", "msgspec", "numpy", "pyarrow", "pyproj", "regex", "shapely"),
    "client": (),
    "job": (
        "confluent_kafka",
        "deltalake",
        "fastavro",
        "google",
        "grpc_tools",
        "msgspec",
        "numpy",
        "obstore",
        "onnxruntime",
        "opentelemetry",
        "prometheus_client",
        "psycopg",
        "pyarrow",
        "pydantic",
        "pydantic_core",
        "pyiceberg",
        "pymssql",
        "pymysql",
        "quickjs",
        "redis",
        "sqlalchemy",
    ),
    "spark": ("numpy", "pyarrow", "pyspark", "py4j"),
    "service": ("cryptography", "msgspec", "numpy", "prometheus_client", "pyarrow", "pydantic", "starlette"),
    "server": ("h11", "prometheus_client", "pydantic", "starlette", "trustme", "uvicorn", "websockets"),
    "arm": ("pydantic", "starlette"),
    "arm_templates": (),
    "portal": ("jinja2", "pydantic", "starlette"),
    "cli": ("azure", "click", "numpy", "prometheus_client", "pydantic", "rich"),
    "": (),
    "pyspark_tidegate": (),
}

# A clock, a socket or a thread in these would make their tests slow and their results differ from run to run.
PURE = ("amqp", "ordering", "saql", "engine")
IMPURE_MODULES = {"asyncio", "multiprocessing", "selectors", "socket", "ssl", "subprocess", "threading", "time"}

MOST_MODULES = 21


def label(module: Module) -> str:
    return module.name


@pytest.mark.parametrize("module", modules(), ids=label)
def test_a_folder_imports_only_what_its_row_lists(module: Module) -> None:
    rows = FOLDERS[module.folder]
    folders = {module.folder, *(row for row in rows if "." not in row)}
    single = {f"tidegate.{row}" for row in rows if "." in row}
    wrong = [name for name in module_imports(module) if name.folder not in folders and name.dotted not in single]
    assert not wrong, f"{module.name} may import {rows} only"


def test_no_folder_imports_in_a_circle() -> None:
    assert not cycles(folder_imports())


def test_no_module_imports_in_a_circle() -> None:
    graph = {module.dotted: {other.dotted for other in module_imports(module)} for module in modules()}
    assert not cycles(graph)


def test_a_cycle_would_be_found() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


@pytest.mark.parametrize("module", modules(), ids=label)
def test_libraries_are_those_the_layer_declares(module: Module) -> None:
    allowed = {"tidegate", "__future__", *LIBRARIES[module.package], *sys.stdlib_module_names}
    wrong = [f"line {line}: {name}" for name, line in imports(module) if name.partition(".")[0] not in allowed]
    assert not wrong, f"{module.name} may import {LIBRARIES[module.package]} only"


@pytest.mark.parametrize("module", [module for module in modules() if module.package in PURE], ids=label)
def test_pure_layers_read_no_clock_and_open_no_socket(module: Module) -> None:
    assert not {name.partition(".")[0] for name, _ in imports(module)} & IMPURE_MODULES


def test_every_folder_has_its_row() -> None:
    assert {module.folder for module in modules()} == set(FOLDERS)
    assert {module.package for module in modules()} == set(LIBRARIES)


def test_no_row_allows_what_is_not_used() -> None:
    used = folder_imports()
    unused = {
        folder: [row for row in rows if row.split(".")[0] not in used[folder]] for folder, rows in FOLDERS.items()
    }
    assert not {folder: rows for folder, rows in unused.items() if rows}


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_holds_few_modules(folder: str) -> None:
    assert len([module for module in modules() if module.folder == folder]) <= MOST_MODULES
