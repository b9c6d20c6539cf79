"""The Spark that the jobs of a service share: its process, from start to end, and who uses it."""
