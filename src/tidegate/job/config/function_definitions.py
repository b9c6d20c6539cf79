"""The sections of a job file that register functions: `[functions.NAME]`."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import ConfigDict, Discriminator, Field, Tag, TypeAdapter, model_validator

from tidegate.connectors.model.section import Public, Section
from tidegate.job.config.model_definitions import AzureMLDefinition, OnnxDefinition


class FunctionDefinition(Section):
    """A function in Python or JavaScript: a query calls it ``udf.NAME``, or ``uda.NAME`` if it is an aggregate."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["module"]}, {"required": ["script"]}]})

    module: Public | None = Field(
        default=None,
        description="a Python file or a script (`.js`), relative to the job file, or the name of an installed module",
    )
    script: Public | None = Field(
        default=None,
        description="instead of a module: the text of a script in JavaScript, which defines one function, or `main`",
    )
    function: Public | None = Field(
        default=None, description="the function's name in the module; default: NAME, of a script `main`"
    )
    aggregate: Public | None = Field(
        default=None, description="instead of a function: the name of an aggregate's class, of a script `main`"
    )
    vectorized: bool = Field(
        default=False, description="the function takes whole columns (Arrow arrays) and gives one, not row by row"
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> FunctionDefinition:
        if self.aggregate is not None and self.function is not None:
            raise ValueError("give either 'function' or 'aggregate' (a class), one of the two")
        if (self.module is None) == (self.script is None):
            raise ValueError("give either 'module' (a file or a module's name) or 'script' (a text), one of the two")
        if self.is_script and (self.vectorized or (self.aggregate or self.function or "main") != "main"):
            raise ValueError(
                "a script has one function or aggregate, which is called main here and takes one row's values"
            )
        if self.aggregate is not None and self.vectorized:
            raise ValueError("'vectorized' is for functions; an aggregate takes one row's values at a time")
        return self

    @property
    def is_file(self) -> bool:
        """Return whether the module is named by a path."""
        return self.module is not None and self.module.endswith((".py", ".js"))

    @property
    def is_script(self) -> bool:
        """Return whether it is JavaScript."""
        return self.module is None or self.module.endswith(".js")


def _kind_of(content: Any) -> str | None:
    """Return which kind of section a table is; None if its type does not exist."""
    if isinstance(content, dict):
        kind = content.get("type", CODE)
        return kind if isinstance(kind, str) and kind in FUNCTION_SECTIONS else None
    return getattr(content, "type", CODE)


CODE = "code"
"""Functions in Python and JavaScript, whose sections have no ``type``."""
FUNCTION_SECTIONS: dict[str, type[Section]] = {
    CODE: FunctionDefinition,
    "azureml": AzureMLDefinition,
    "onnx": OnnxDefinition,
}
AnyFunction: TypeAlias = Annotated[
    Annotated[FunctionDefinition, Tag(CODE)]
    | Annotated[AzureMLDefinition, Tag("azureml")]
    | Annotated[OnnxDefinition, Tag("onnx")],
    Discriminator(
        _kind_of,
        custom_error_type="function_type",
        custom_error_message='expected type = "azureml" or "onnx", or no type for a function in Python or JavaScript',
    ),
]
_any_function: TypeAdapter[AnyFunction] = TypeAdapter(AnyFunction)


def function_definition(section: Any) -> AnyFunction:
    """Return the definition that a section is. Raises pydantic.ValidationError."""
    return _any_function.validate_python(section)
