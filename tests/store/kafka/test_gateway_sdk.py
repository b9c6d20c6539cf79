"""Microsoft's clients and Kafka's own on a gateway: what their users do on the embedded log, they do on Kafka."""

from collections.abc import Iterator
from types import FunctionType, ModuleType

import pytest

from tests.server import (
    test_access,
    test_error_conditions,
    test_javascript_sdk,
    test_python_sdk,
    test_python_sdk_aio,
    test_readers,
)
from tests.server.kafka import test_python_sdk as test_kafka_sdk

ALWAYS = (test_python_sdk,)
# What the client does by itself, whatever the events are stored in.
OF_THE_CLIENT = (
    "test_a_buffered_producer",
    "test_a_consumer_of_all_partitions",
    "test_a_key_always_goes_to_its_partition",
    "test_keyless_events_go_round",
)
IN_SOAK = (
    test_access,
    test_error_conditions,
    test_javascript_sdk,
    test_kafka_sdk,
    test_python_sdk_aio,
    test_readers,
)


def names(module: ModuleType) -> Iterator[str]:
    """What of a module are its tests and fixtures."""
    return (name for name in vars(module) if not name.startswith("_") and name != "pytestmark")


def in_soak(test: FunctionType) -> FunctionType:
    """Return a copy of a test with that mark; the test of the embedded log has none."""
    copy = FunctionType(test.__code__, test.__globals__, test.__name__, test.__defaults__, test.__closure__)
    vars(copy).update(vars(test))
    return pytest.mark.soak(copy)


for module in ALWAYS:
    globals().update({name: vars(module)[name] for name in names(module)})
for name in OF_THE_CLIENT:
    globals()[name] = in_soak(globals()[name])
for module in IN_SOAK:
    for name in names(module):
        value = vars(module)[name]
        globals()[name] = in_soak(value) if name.startswith("test_") else value
pytestmark = pytest.mark.sdk
