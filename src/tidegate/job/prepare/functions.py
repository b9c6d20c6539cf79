"""Functions that a job registers: its own code, imported on the driver and shipped to the tasks.

A script is shipped as its text (`job.functions`). A function in Python that is in a file is shipped as the text of its
module, so a task on any machine runs what the driver read. One in an installed module is shipped as its name. What a
module itself imports must be installed wherever tasks run.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import inspect
import pickle
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, assert_never

from tidegate.connectors.inputs.deserializer import load_module
from tidegate.connectors.model.errors import FunctionError
from tidegate.job.config.function_definitions import AnyFunction, FunctionDefinition
from tidegate.job.config.model_definitions import AzureMLDefinition, OnnxDefinition
from tidegate.job.functions.azure_ml import AzureMLFunction, ModelEndpoint, ModelSignature
from tidegate.job.functions.isolate import ScriptError
from tidegate.job.functions.javascript import JavaScriptAggregate, JavaScriptFunction
from tidegate.job.functions.onnx_model import OnnxFunction
from tidegate.job.functions.row_model import ModelError
from tidegate.sql import QueryError
from tidegate.sql.parsing.diagnostics import Diagnostic
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.walking import expressions_of, parts_in, relations_of


class PythonFunction(ABC):
    """A function or class in Python, which is loaded where it is first called, and pickled without what was loaded."""

    @property
    @abstractmethod
    def target(self) -> Any:
        """Return the function or class itself."""

    def __call__(self, *args: Any) -> Any:
        """Call it.

        Raises:
            Exception: whatever the function raises.
        """
        return self.target(*args)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "target"}


@dataclass(frozen=True)
class RegisteredFunction(PythonFunction):
    """Something a module defines, called as if it were defined here; always picklable.

    Attributes:
        module: an installed module's name, or a file's path.
        source: the file's text; None for an installed module.
        attribute: its name in the module.
        vectorized: it takes whole columns (`engine.registered`).
    """

    module: str
    source: bytes | None
    attribute: str
    vectorized: bool = False

    @functools.cached_property
    def target(self) -> Any:
        """Return the function or class itself, imported on first use.

        Raises:
            Exception: whatever the module raises when it is imported; AttributeError if it has no such name.
        """
        return getattr(load_module(self.module, self.source), self.attribute)

    def identity(self) -> tuple[Any, ...]:
        """Return what results depend on."""
        return (self.attribute, self.vectorized, self.module if self.source is None else self.source)


@dataclass(frozen=True)
class PickledFunction(PythonFunction):
    """A function or a class of a Python program that runs the query itself, sent to the tasks by value.

    Attributes:
        content: the function as cloudpickle writes it, which pickle reads.
        vectorized: it takes whole columns (`engine.registered`).
    """

    content: bytes
    vectorized: bool = False

    @functools.cached_property
    def target(self) -> Any:
        """Return the function or class itself, loaded on first use."""
        return pickle.loads(self.content)

    def identity(self) -> tuple[Any, ...]:
        """Return what results depend on."""
        return (self.content, self.vectorized)


JobFunction: TypeAlias = (
    RegisteredFunction | PickledFunction | JavaScriptFunction | JavaScriptAggregate | AzureMLFunction | OnnxFunction
)


def registered_functions(definitions: Mapping[str, AnyFunction]) -> dict[str, JobFunction]:
    """Return the functions of a job by the names a query calls them: "udf.name", and "uda.name" for aggregates.

    Raises:
        FunctionError: one cannot be imported, or does not exist; the message names its section.
    """
    return {called(name, definition): _opened(name, definition) for name, definition in definitions.items()}


def _opened(name: str, definition: AnyFunction) -> JobFunction:
    match definition:
        case FunctionDefinition(is_script=True):
            return _script(name, definition)
        case FunctionDefinition():
            return _registered(name, definition)
        case AzureMLDefinition():
            return _endpoint(name, definition)
        case OnnxDefinition():
            return _model(name, definition)
        case _:
            assert_never(definition)


def called(name: str, definition: AnyFunction) -> str:
    """Return the name by which a query calls a function."""
    is_aggregate = isinstance(definition, FunctionDefinition) and definition.aggregate is not None
    return f"{'uda' if is_aggregate else 'udf'}.{name}"


def fingerprint(functions: Mapping[str, JobFunction]) -> str:
    """Return what results depend on in functions: a hash of their names and texts; empty if there are none."""
    if not functions:
        return ""
    digest = hashlib.sha256()
    for name, function in sorted(functions.items()):
        digest.update(repr((name.lower(), *function.identity())).encode())
    return digest.hexdigest()


def check_calls(query: plan.Query, functions: Mapping[str, Callable[..., Any]]) -> None:
    """Check that functions can be called with as many arguments as the query passes.

    Raises:
        QueryError: one cannot be called so.
    """
    by_name = {name.lower(): function for name, function in functions.items()}
    calls = {
        part
        for relation in relations_of(query)
        for expr in expressions_of(relation)
        for part in parts_in(expr)
        if isinstance(part, plan.Call) and part.function in by_name
    }
    problems = []
    for call in calls:
        refusal = _refusal(by_name[call.function], len(call.args))
        if refusal is not None:
            problems.append(
                Diagnostic(call.position.line, call.position.column, f"{call.function}: {refusal}", len(call.function))
            )
    if problems:
        raise QueryError(problems)


def _refusal(function: Callable[..., Any], count: int) -> str | None:
    """Return why a function cannot be called with so many arguments; None if it can or if that is unknown."""
    try:
        signature = inspect.signature(function.target if isinstance(function, PythonFunction) else function)
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(*[None] * count)
    except TypeError:
        takes = ", ".join(map(str, signature.parameters.values()))
        return f"the function takes ({takes}), not {count} argument{'' if count == 1 else 's'}"
    return None


def _script(name: str, definition: FunctionDefinition) -> JobFunction:
    where = f"[functions.{name}]"
    source = definition.script
    if source is None:
        try:
            source = (_source(where, definition) or b"").decode("utf-8-sig")
        except UnicodeDecodeError:
            raise FunctionError(f"{where}: cannot read {definition.module}: it is not UTF-8 text") from None
    made = JavaScriptFunction if definition.aggregate is None else JavaScriptAggregate
    function = made(source)
    try:
        function.check()
    except ScriptError as error:
        shown = "its script" if definition.module is None else Path(definition.module).name
        raise FunctionError(f"{where}: cannot use {shown}: {error}") from error
    return function


_INPUT_NAMES = {"inputs": "WebServiceInput0", "table": "input1", "records": "data", "arrays": "data"}


def _endpoint(name: str, definition: AzureMLDefinition) -> AzureMLFunction:
    given = definition.input_name
    function = AzureMLFunction(
        ModelEndpoint(
            definition.endpoint,
            definition.api_key or None,
            definition.batch_size,
            definition.parallel_requests,
            definition.timeout_s,
            definition.attempts,
        ),
        ModelSignature(
            definition.request,
            _INPUT_NAMES[definition.request] if given is None else given,
            definition.inputs,
            definition.input_types,
            definition.output_name or None,
            definition.output or None,
            definition.output_type,
        ),
    )
    try:
        function.check()
    except ModelError as error:
        raise FunctionError(f"[functions.{name}]: {error}") from None
    return function


def _model(name: str, definition: OnnxDefinition) -> OnnxFunction:
    try:
        function = OnnxFunction(definition.path.read_bytes(), definition.output)
        function.check()
    except OSError as error:
        raise FunctionError(f"[functions.{name}]: cannot read {definition.path}: {error.strerror}") from error
    except ModelError as error:
        raise FunctionError(f"[functions.{name}]: cannot use {definition.path.name}: {error}") from None
    return function


def _registered(name: str, definition: FunctionDefinition) -> RegisteredFunction:
    where = f"[functions.{name}]"
    assert definition.module is not None
    attribute = definition.aggregate or definition.function or name
    source = _source(where, definition)
    function = RegisteredFunction(definition.module, source, attribute, definition.vectorized)
    shown = Path(definition.module).name if definition.is_file else definition.module
    try:
        module = load_module(definition.module, source)
    except Exception as error:
        raise FunctionError(f"{where}: cannot import {shown}: {_reason(error, definition)}") from error
    if not hasattr(module, attribute):
        names = [found for found, value in vars(module).items() if callable(value) and not found.startswith("_")]
        near = difflib.get_close_matches(attribute, names, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else f"; it has {', '.join(names) or 'no functions'}"
        raise FunctionError(f"{where}: {shown} has no '{attribute}'{hint}")
    if definition.aggregate is not None and not isinstance(function.target, type):
        raise FunctionError(f"{where}: '{attribute}' of {shown} is not a class; an aggregate must be one")
    if not callable(function.target):
        raise FunctionError(f"{where}: '{attribute}' of {shown} is not a function")
    return function


def _source(where: str, definition: FunctionDefinition) -> bytes | None:
    if not definition.is_file or definition.module is None:
        return None
    try:
        return Path(definition.module).read_bytes()
    except OSError as error:
        raise FunctionError(f"{where}: cannot read {definition.module}: {error.strerror}") from error


def _reason(error: Exception, definition: FunctionDefinition) -> str:
    """Return what was raised and, if it came from the module's own file, the line."""
    kind = f"{type(error).__name__}: {error}"
    if isinstance(error, ModuleNotFoundError) and not definition.is_file and error.name == definition.module:
        return f'{kind}; a file is named with its ending, from the folder of the job file: module = "{error.name}.py"'
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {error.msg}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == definition.module]
    return f"line {lines[-1]}: {kind}" if lines else kind
