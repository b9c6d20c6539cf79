"""Evaluates the expressions in a part of a template, in the scope of a deployment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tidegate.azure.templates.expressions import (
    Call,
    Literal,
    MemberAccess,
    Node,
    TemplateError,
    UnknownValueError,
    is_expression,
    member,
    parse,
    plain_text,
)
from tidegate.azure.templates.functions import call

MAX_VALUES = 200_000
MAX_CHARACTERS = 16 << 20
"""Of texts. Both count while a part is evaluated: a template of a few lines could otherwise mean gigabytes."""
MAX_NESTING = 64
MAX_COPIES = 800
"""Copies in one loop, and resources in one template: the service's limit."""

Runtime = Callable[[str, list[Any]], Any]
"""What evaluates `reference` and the functions that list keys, by their names in lower case."""


UNKNOWN: Any = object()
"""The value of a parameter that has none before the template is deployed."""


class Looped(dict[str, Any]):
    """A variable that a copy loop makes: the loop."""


@dataclass(slots=True)
class EvaluationBudget:
    """What may still be made: values, and characters of texts."""

    values: int = MAX_VALUES
    characters: int = MAX_CHARACTERS

    def spend(self, value: Any) -> None:
        """Count one value, without those in it. Raises TemplateError."""
        self.values -= 1
        if isinstance(value, str):
            self.characters -= len(value)
        if self.values < 0 or self.characters < 0:
            raise TemplateError(
                f"a part of the template means too much: more than {MAX_VALUES} values, or texts of more than "
                f"{MAX_CHARACTERS >> 20} MiB"
            )


@dataclass(frozen=True, slots=True)
class EvaluationScope:
    """What the names in expressions stand for.

    Attributes:
        parameters: The values of parameters, by their names in lower case; `UNKNOWN` for those that have none.
        variables: The variables of the template as they are written, by their names in lower case.
        constants: What `resourceGroup`, `subscription`, `deployment`, `tenant` and `environment` return.
        runtime: Evaluates what depends on resources; None where that is not allowed.
        indexes: The indexes of copy loops, by name; the innermost also under the empty name.
        known: Values of variables that were evaluated already.
        pending: The variables that are being evaluated.
        budget: What may still be made of the part that is evaluated.
    """

    parameters: Mapping[str, Any]
    variables: Mapping[str, Any]
    constants: Mapping[str, Any]
    runtime: Runtime | None = None
    indexes: Mapping[str, int] = field(default_factory=dict)
    known: dict[str, Any] = field(default_factory=dict)
    pending: frozenset[str] = frozenset()
    budget: EvaluationBudget = field(default_factory=EvaluationBudget)

    def with_index(self, name: str, index: int) -> EvaluationScope:
        """Return the scope inside a copy loop."""
        indexes = {**self.indexes, name.lower(): index, "": index}
        return replace(self, indexes=indexes, pending=frozenset())

    def for_names(self) -> EvaluationScope:
        """Return a scope in which a parameter without a value is its own name, so that resources can be told apart."""
        parameters = {name: name if value is UNKNOWN else value for name, value in self.parameters.items()}
        return replace(self, parameters=parameters, known={}, pending=frozenset())

    def with_runtime(self, runtime: Runtime) -> EvaluationScope:
        """Return the scope once resources can be asked for; variables are evaluated anew, as they may ask for some.

        What is evaluated in it is a part with a budget of its own.
        """
        return EvaluationScope(self.parameters, self.variables, self.constants, runtime, self.indexes)


class Evaluator:
    """Evaluates parts of a template. Raises TemplateError for whatever is wrong."""

    def __init__(self, scope: EvaluationScope, *, leaves_out_unknown: bool = False) -> None:
        """
        Args:
            leaves_out_unknown: whether a text whose value is not known yet is null, and no error.
        """
        self._scope = scope
        self._leaves_out_unknown = leaves_out_unknown

    def value(self, part: Any, depth: int = 0) -> Any:
        """Return a part with all its expressions evaluated, and its copy loops over properties unrolled."""
        self._count(part, depth)
        if isinstance(part, str):
            return self._text(part, depth)
        if isinstance(part, list):
            return [self.value(item, depth + 1) for item in part]
        if isinstance(part, Mapping):
            found: dict[str, Any] = {}
            for key, item in part.items():
                if str(key).lower() == "copy" and isinstance(item, list):
                    found |= self._copies(item, depth + 1)
                else:
                    name = self._text(str(key), depth)
                    found[str(name)] = self.value(item, depth + 1)
            return found
        return part

    def _text(self, text: str, depth: int) -> Any:
        if not is_expression(text):
            return plain_text(text)
        try:
            value = self.node(parse(text))
        except UnknownValueError:
            if not self._leaves_out_unknown:
                raise
            return None
        self._measure(value, depth)
        return value

    def _copies(self, loops: list[Any], depth: int) -> dict[str, Any]:
        """Return the arrays that the loops of an object make."""
        found = {}
        for loop in loops:
            if not isinstance(loop, Mapping) or not isinstance(loop.get("name"), str) or "input" not in loop:
                raise TemplateError("a copy loop over properties has a name, a count and an input")
            count = loop_count(self.value(loop.get("count"), depth))
            found[loop["name"]] = [
                self._inside(loop["name"], index).value(loop["input"], depth + 1) for index in range(count)
            ]
        return found

    def _inside(self, name: str, index: int) -> Evaluator:
        return Evaluator(self._scope.with_index(name, index), leaves_out_unknown=self._leaves_out_unknown)

    def node(self, node: Node) -> Any:
        """Return the value of a parsed expression."""
        match node:
            case Literal(value):
                return value
            case MemberAccess(value, key):
                return member(self.node(value), self.node(key))
            case Call(name, arguments):
                return self._call(name, arguments)

    def _call(self, name: str, arguments: tuple[Node, ...]) -> Any:
        match name.lower():
            case "if" if len(arguments) == 3:
                return self.node(arguments[1] if self.node(arguments[0]) is True else arguments[2])
            case "and":
                return all(self.node(argument) is True for argument in arguments)
            case "or":
                return any(self.node(argument) is True for argument in arguments)
            case "parameters" | "variables" | "copyindex" as kind:
                return self._named(kind, [self.node(argument) for argument in arguments])
            case constant if constant in self._scope.constants and not arguments:
                return self._scope.constants[constant]
            case found if found.endswith("resourceid"):
                return self._resource_id(found, [self.node(argument) for argument in arguments])
            case found if found == "reference" or (found.startswith("list") and len(found) > 4):
                if self._scope.runtime is None:
                    raise TemplateError(f"the template function '{name}' is not expected at this location")
                return self._scope.runtime(found, [self.node(argument) for argument in arguments])
            case _:
                made = call(name, [self.node(argument) for argument in arguments])
                self._scope.budget.spend(made)
                return made

    def _named(self, kind: str, arguments: list[Any]) -> Any:
        scope = self._scope
        if kind == "copyindex":
            name = next((str(one).lower() for one in arguments if isinstance(one, str)), "")
            offset = next((one for one in arguments if isinstance(one, int)), 0)
            if name not in scope.indexes:
                raise TemplateError("the template function 'copyIndex' is not expected at this location")
            return scope.indexes[name] + offset
        if len(arguments) != 1 or not isinstance(arguments[0], str):
            raise TemplateError(f"the template function '{kind}' takes one name")
        name = arguments[0].lower()
        if kind == "parameters":
            if name not in scope.parameters:
                raise TemplateError(f"the template parameter '{arguments[0][:100]}' is not found")
            if scope.parameters[name] is UNKNOWN:
                raise UnknownValueError(f"the value of the template parameter '{arguments[0][:100]}' is not provided")
            return scope.parameters[name]
        if name not in scope.variables:
            raise TemplateError(f"the template variable '{arguments[0][:100]}' is not found")
        return self._variable(name)

    def _variable(self, name: str) -> Any:
        scope = self._scope
        if name not in scope.known:
            if name in scope.pending or len(scope.pending) > MAX_NESTING:
                raise TemplateError(f"the template variable '{name}' refers to itself")
            inner = replace(scope, indexes={}, pending=scope.pending | {name})
            written = scope.variables[name]
            if isinstance(written, Looped):
                scope.known[name] = Evaluator(inner).value({"copy": [dict(written)]})[written["name"]]
            else:
                scope.known[name] = Evaluator(inner).value(written)
        return scope.known[name]

    def _resource_id(self, name: str, arguments: list[Any]) -> str:
        """Return the id that `resourceId` and the like make of a type and names."""
        if not all(isinstance(argument, str) for argument in arguments):
            raise TemplateError(f"the template function '{name}' takes texts")
        prefix = ""
        if name == "extensionresourceid" and arguments:
            prefix, arguments = arguments[0], arguments[1:]
        position = next((index for index, argument in enumerate(arguments) if "/" in argument), None)
        if position is None or position > 2:
            raise TemplateError(f"the template function '{name}' needs a resource type")
        given, kind, names = arguments[:position], arguments[position].split("/"), arguments[position + 1 :]
        names = [part for written in names for part in written.split("/")]
        if len(kind) - 1 != len(names):
            raise TemplateError(
                f"the template function '{name}': the type {arguments[position][:100]!r} needs {len(kind) - 1} names, "
                f"not {len(names)}"
            )
        group = self._scope.constants["resourcegroup"]
        subscription = self._scope.constants["subscription"]["subscriptionId"]
        if name == "resourceid":
            if len(given) == 2:
                subscription = given[0]
            prefix = f"/subscriptions/{subscription}/resourceGroups/{given[-1] if given else group['name']}"
        elif name == "subscriptionresourceid":
            prefix = f"/subscriptions/{given[0] if given else subscription}"
        path = "/".join(f"{part}/{own}" for part, own in zip(kind[1:], names, strict=True))
        return f"{prefix}/providers/{kind[0]}/{path}"

    def _count(self, part: Any, depth: int) -> None:
        self._scope.budget.spend(part)
        if depth > MAX_NESTING:
            raise TemplateError("a part of the template is nested too deeply")

    def _measure(self, value: Any, depth: int) -> None:
        """Count what an expression has made, which may contain one value many times."""
        if isinstance(value, str):
            self._scope.budget.spend(value)  # the text of a variable is written out again wherever it is used
        if isinstance(value, dict | list):
            for item in value.values() if isinstance(value, dict) else value:
                self._count(item, depth + 1)
                self._measure(item, depth + 1)


def loop_count(count: Any) -> int:
    """Return the number of copies in a loop. Raises TemplateError."""
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MAX_COPIES:
        raise TemplateError(f"a copy loop has 0 to {MAX_COPIES} copies, not {str(count)[:40]}")
    return count
