"""What every part of a job talks about: events and logs, errors, metrics, state files."""
