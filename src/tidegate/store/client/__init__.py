"""A client of Kafka's protocol: connections with TLS and SASL, and requests that find the leaders of partitions."""
