"""Topics of Kafka as a log, by confluent-kafka (the extra `kafka`), and bodies whose schema is in a registry."""
