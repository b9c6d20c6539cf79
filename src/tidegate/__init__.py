"""Tidegate: an Event Hubs-compatible hub, and Stream Analytics-compatible jobs on Spark whose results repeat exactly.

The packages for Python users are `tidegate.client`, `tidegate.checkpoints`, `tidegate.spark` and
`tidegate.job.testing`; everything else serves the `tidegate` command.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
