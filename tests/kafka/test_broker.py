"""The broker that other tests start takes messages and gives them back."""

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.kafka import kafka
from tests.patience import PATIENCE_S


def test_a_message_comes_back() -> None:
    with kafka() as address:
        producer = Producer({"bootstrap.servers": address})
        producer.produce("topic", b"body", key=b"key", partition=2)
        assert producer.flush(PATIENCE_S) == 0
        consumer = Consumer({"bootstrap.servers": address, "group.id": "test"})
        consumer.assign([TopicPartition("topic", 2, 0)])
        message = consumer.poll(PATIENCE_S)
        consumer.close()
    assert message is not None
    assert (message.key(), message.value()) == (b"key", b"body")
