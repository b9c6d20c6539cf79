"""Where results go: each row once, in time order, whatever is killed when.

`output` has the idea, `opening` the way from a section of the job file to an open output; every other module is one
kind of output, or what several have in common.
"""

from tidegate.job.outputs.opening import open_output
from tidegate.job.outputs.output import Identity, Mark, Output, OutputUnavailableError, RejectedRow
from tidegate.job.outputs.retry_policy import RetryPolicy
from tidegate.job.outputs.shape import shape_of
from tidegate.job.outputs.sinks import OutputCounts, Sinks

__all__ = [
    "Identity",
    "Mark",
    "Output",
    "OutputCounts",
    "OutputUnavailableError",
    "RejectedRow",
    "RetryPolicy",
    "Sinks",
    "open_output",
    "shape_of",
]
