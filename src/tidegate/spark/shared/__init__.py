"""A Spark that several processes use: the process that holds it, and how others attach to it."""
