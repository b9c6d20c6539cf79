"""The kinds of source and sink that a Stream Analytics project or template may name.

Each is one module: the names it has there, its settings, and the section of a job file that it becomes.
"""
