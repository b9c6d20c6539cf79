"""kcat, Kafka Streams, Kafka Connect and Spark's `format("kafka")` on a gateway, as on the embedded log."""

import pytest

from tests.server.kafka import test_connect_sdk, test_kcat_sdk, test_spark_sdk, test_streams_sdk
from tests.store.kafka.test_gateway_sdk import names

for module in (test_connect_sdk, test_kcat_sdk, test_spark_sdk, test_streams_sdk):
    globals().update({name: vars(module)[name] for name in names(module)})
pytestmark = [pytest.mark.sdk, pytest.mark.soak]
