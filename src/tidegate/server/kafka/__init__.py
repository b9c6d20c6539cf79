"""Kafka's clients: their connections, and what each request does to the namespace's hubs and groups."""
