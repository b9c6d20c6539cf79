"""What a job reads: event hubs, files, recorded logs and reference data, each opened as a log or a table."""
