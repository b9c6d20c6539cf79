"""The sections of a job file that register functions: `[functions.NAME]`."""

from __future__ import annotations

from pydantic import Field, model_validator

from tidegate.job.model.section import Section


class FunctionDefinition(Section):
    """A function in Python: the query calls it ``udf.NAME``, or ``uda.NAME`` if it is an aggregate."""

    module: str = Field(description="a Python file, relative to the job file, or the name of an installed module")
    function: str | None = Field(default=None, description="the function's name in the module; default: NAME")
    aggregate: str | None = Field(default=None, description="instead of a function: the name of an aggregate's class")
    vectorized: bool = Field(
        default=False, description="the function takes whole columns (Arrow arrays) and gives one, not row by row"
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> FunctionDefinition:
        if self.aggregate is not None and self.function is not None:
            raise ValueError("give either 'function' or 'aggregate' (a class), one of the two")
        if self.aggregate is not None and self.vectorized:
            raise ValueError("'vectorized' is for functions; an aggregate takes one row's values at a time")
        return self

    @property
    def is_file(self) -> bool:
        """Return whether the module is named by a path."""
        return self.module.endswith(".py")


FUNCTION_SECTIONS: tuple[type[Section], ...] = (FunctionDefinition,)
