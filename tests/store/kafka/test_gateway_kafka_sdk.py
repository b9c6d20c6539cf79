"""Kafka's own clients for Java, JavaScript and Go on a gateway, with the steps that they take on the embedded log."""

import pytest

from tests.server.kafka import test_go_sdk, test_java_sdk, test_javascript_sdk
from tests.store.kafka.test_gateway_sdk import names

for module in (test_go_sdk, test_java_sdk, test_javascript_sdk):
    globals().update({name: vars(module)[name] for name in names(module)})
pytestmark = [pytest.mark.sdk, pytest.mark.soak]
