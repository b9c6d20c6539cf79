"""Capture: which events go to which Avro file, exactly once, however often the hub is killed."""
