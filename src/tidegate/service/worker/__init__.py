"""The process of a job: what the service starts, and the only part of it that loads the engine."""
