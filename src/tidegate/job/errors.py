"""What can go wrong with a job that is its user's to mend.

Each message says what, where, what was got and what was expected, and the next step; the command line prints it
without a traceback.
"""


class JobError(Exception):
    """A job cannot be read, started or carried on; the message is for a person."""


class InputError(JobError):
    """An input cannot be reached or read."""


class OutputError(JobError):
    """An output cannot be written, or its content is not what the journal says it should be."""
