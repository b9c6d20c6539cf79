"""Writes the classes of a broker that has done a little of everything, for the quick start of others."""

import tempfile
from pathlib import Path

from confluent_kafka import Producer

from tests.jars import keeping_classes
from tests.kafka import ARCHIVE, Broker, messages_of
from tests.patience import PATIENCE_S

TOPIC = "any"


def main() -> None:
    """Start a broker, use it, and let it end."""
    with tempfile.TemporaryDirectory(prefix="tg-kafka-") as name:
        broker = Broker(Path(name))
        broker.start(*keeping_classes(ARCHIVE))
        try:
            producer = Producer({"bootstrap.servers": broker.address, "log_level": 0})
            producer.produce(TOPIC, b"x")
            assert producer.flush(PATIENCE_S) == 0
            assert sum(map(len, messages_of(broker.address, TOPIC))) == 1
            broker.stop()
        finally:
            broker.kill()


if __name__ == "__main__":
    main()
