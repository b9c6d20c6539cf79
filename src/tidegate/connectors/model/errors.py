"""Errors in a job that its user can fix.

Each message says what is wrong and where, what was found and expected, and the next step. The command line prints it
without a traceback.
"""

from __future__ import annotations

from tidegate.sql import QueryError


class JobError(Exception):
    """A job cannot be read, started or resumed; the message is for a person."""


class JobQueryError(JobError):
    """The query of a job cannot run: every problem, each with its line and a caret.

    Attributes:
        diagnostics: the problems, in the order of the text.
    """

    def __init__(self, where: str, sql: str, error: QueryError) -> None:
        self.diagnostics = error.diagnostics
        super().__init__(f"the query of {where} cannot run\n\n{error.render(sql)}")


class InputError(JobError):
    """An input cannot be reached or read."""


class UnavailableError(JobError):
    """Something that a job reads or writes is unavailable at the moment; the same attempt may succeed later."""


class InputUnavailableError(InputError, UnavailableError):
    """An input cannot be reached at the moment."""


class OutputError(JobError):
    """An output cannot be written, or its content is not what the journal says it should be."""


class FunctionError(JobError):
    """A function that the job registers cannot be imported or called."""


class ProjectError(JobError):
    """A Stream Analytics project cannot be read or run."""
