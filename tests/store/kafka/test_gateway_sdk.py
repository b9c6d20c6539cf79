"""Microsoft's clients and Kafka's own on a gateway: what their users do on the embedded log, they do on Kafka."""

from collections.abc import Iterator
from types import ModuleType

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


for module in ALWAYS:
    globals().update({name: vars(module)[name] for name in names(module)})
for module in IN_SOAK:
    for name in names(module):
        value = vars(module)[name]
        globals()[name] = pytest.mark.soak(value) if name.startswith("test_") else value
pytestmark = pytest.mark.sdk
