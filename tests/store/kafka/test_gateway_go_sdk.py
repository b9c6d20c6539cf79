"""Microsoft's client for Go on a gateway, with the steps that it takes on the embedded log."""

import pytest

from tests.server import test_go_sdk
from tests.store.kafka.test_gateway_sdk import names

globals().update({name: vars(test_go_sdk)[name] for name in names(test_go_sdk)})
pytestmark = [pytest.mark.sdk, pytest.mark.soak]
