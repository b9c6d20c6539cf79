"""Serializers and clients of the schema registry on a gateway, with the steps that they take on the embedded log."""

import pytest

from tests.server import test_confluent_schemas_sdk, test_serializers_sdk
from tests.store.kafka.test_gateway_sdk import in_soak, names

globals().update({name: vars(test_serializers_sdk)[name] for name in names(test_serializers_sdk)})
for name in names(test_confluent_schemas_sdk):
    value = vars(test_confluent_schemas_sdk)[name]
    globals().setdefault(name, in_soak(value) if name.startswith("test_") else value)
pytestmark = pytest.mark.sdk
