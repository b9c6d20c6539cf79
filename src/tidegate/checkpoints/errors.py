"""What can go wrong with checkpoints, by name."""

from __future__ import annotations


class CheckpointError(Exception):
    """The database did not do what was asked; the message says why and holds no secret."""
