"""The vocabulary that every part of a job shares: events and logs, errors, metrics, state files."""
