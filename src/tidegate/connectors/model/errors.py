"""Errors in a job that its user can fix.

Each message says what is wrong and where, what was found and expected, and the next step. The command line prints it
without a traceback.
"""

from __future__ import annotations

from typing import ClassVar

from tidegate.sql import QueryError


class JobError(Exception):
    """A job cannot be read, started or resumed; the message is for a person.

    Attributes:
        code: what has happened, for programs; messages may change, codes do not.
    """

    code: ClassVar[str] = "JOB_INVALID"


class JobQueryError(JobError):
    """The query of a job cannot run: every problem, each with its line and a caret.

    Attributes:
        diagnostics: the problems, in the order of the text.
    """

    code = "QUERY_INVALID"

    def __init__(self, where: str, sql: str, error: QueryError) -> None:
        self.diagnostics = error.diagnostics
        super().__init__(f"the query of {where} cannot run\n\n{error.render(sql)}")


class InputError(JobError):
    """An input cannot be reached or read."""

    code = "INPUT_FAILED"


class UnavailableError(JobError):
    """Something that a job reads or writes is unavailable at the moment; the same attempt may succeed later."""

    code = "UNAVAILABLE"


class InputUnavailableError(InputError, UnavailableError):
    """An input cannot be reached at the moment."""

    code = "INPUT_UNAVAILABLE"


class OutputError(JobError):
    """An output cannot be written, or its content is not what the journal says it should be."""

    code = "OUTPUT_FAILED"


class FunctionError(JobError):
    """A function that the job registers cannot be imported or called."""

    code = "FUNCTION_INVALID"


class ProjectError(JobError):
    """A Stream Analytics project cannot be read or run."""

    code = "PROJECT_INVALID"
