"""The jobs of a service: thin clients of the management API, which need neither the engine nor Spark."""
