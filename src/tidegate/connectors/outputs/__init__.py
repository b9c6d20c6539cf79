"""Where results go: each row once, in time order, whichever process is killed at whatever time.

`output` has the idea, `opening` the way from a section of the job file to an open output; every other module is one
kind of output, or what several have in common.
"""

from tidegate.connectors.outputs.kinds import OUTPUTS, OutputOpening, OutputSection, open_output
from tidegate.connectors.outputs.output import Identity, Mark, Output, OutputUnavailableError, RejectedRow
from tidegate.connectors.outputs.shape import shape_of
from tidegate.connectors.outputs.sinks import OutputCounts, Sinks, SinkSettings

__all__ = [
    "OUTPUTS",
    "Identity",
    "Mark",
    "Output",
    "OutputCounts",
    "OutputOpening",
    "OutputSection",
    "OutputUnavailableError",
    "RejectedRow",
    "SinkSettings",
    "Sinks",
    "open_output",
    "shape_of",
]
