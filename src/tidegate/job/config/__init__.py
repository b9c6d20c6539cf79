"""The job file: its sections, defaults, environment variables and JSON Schema."""
