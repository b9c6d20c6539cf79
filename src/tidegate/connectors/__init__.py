"""What a job connects to: inputs, outputs, and the vocabulary that both share with the rest of a job.

A package that adds an input or an output needs only what is exported here.
"""

from typing import TYPE_CHECKING

from tidegate.lazy import lazy_names

if TYPE_CHECKING:
    from tidegate.connectors.inputs.kinds import INPUTS, InputSection, LogOpening, StreamInput
    from tidegate.connectors.model.section import Public, Secret, SecretOptions, SecretUrl
    from tidegate.connectors.outputs.kinds import OUTPUTS, OutputOpening, OutputSection
    from tidegate.connectors.outputs.output import Output
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "INPUTS",
    "OUTPUTS",
    "InputSection",
    "LogOpening",
    "Output",
    "OutputOpening",
    "OutputSection",
    "Public",
    "Secret",
    "SecretOptions",
    "SecretUrl",
    "StreamInput",
]
