"""Microsoft's client for Java on a gateway, with the steps that it takes on the embedded log."""

import pytest

from tests.server import test_java_sdk
from tests.store.kafka.test_gateway_sdk import names

globals().update({name: vars(test_java_sdk)[name] for name in names(test_java_sdk)})
pytestmark = [pytest.mark.sdk, pytest.mark.soak]
