"""Apache Kafka as the hub's store: a topic for each hub, and one compacted topic for what gateways share."""
