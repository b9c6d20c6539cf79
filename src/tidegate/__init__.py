"""Tidegate: streaming with honest time."""
