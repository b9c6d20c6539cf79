"""A template: its parameters, and the resources that it means, in the order in which they must be made.

https://learn.microsoft.com/azure/azure-resource-manager/templates/syntax
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from itertools import islice
from typing import Any

from tidegate.azure.templates.evaluation import (
    MAX_COPIES,
    UNKNOWN,
    EvaluationBudget,
    EvaluationScope,
    Evaluator,
    Looped,
    loop_count,
)
from tidegate.azure.templates.expressions import (
    Call,
    Literal,
    Node,
    TemplateError,
    UnknownValueError,
    is_expression,
    parse,
)

DEPLOYMENTS = "Microsoft.Resources/deployments"
MAX_PARAMETERS = 256
_SECURE = ("securestring", "secureobject")
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "securestring": (str,),
    "int": (int,),
    "bool": (bool,),
    "object": (dict,),
    "secureobject": (dict,),
    "array": (list,),
}
_ABSENT = "-"
"""The name of a resource without one, which is an error only where it is deployed."""
_BODY = ("location", "tags", "sku", "kind", "identity", "properties", "plan", "zones", "scale")


@dataclass(frozen=True, slots=True)
class TemplateResource:
    """One resource, whose properties are not evaluated yet.

    Attributes:
        resource_id: Where it is.
        kind: Its full type.
        symbol: What other resources call it, if the template has symbolic names.
        loop: The copy loop that made it.
        api_version: The version that it is written for.
        content: The resource as the template has it.
        scope: With the indexes of the loops around it.
        depends_on: What it names under dependsOn, evaluated.
        is_existing: Whether it is only referred to.
    """

    resource_id: str
    kind: str
    symbol: str
    loop: str
    api_version: str
    content: Mapping[str, Any]
    scope: EvaluationScope
    depends_on: tuple[str, ...]
    is_existing: bool = False

    def body(self, scope: EvaluationScope) -> dict[str, Any]:
        """Return what is sent for it, with all expressions evaluated. Raises TemplateError."""
        evaluator = Evaluator(scope)
        body: dict[str, Any] = {}
        for key in _BODY:
            part = next((self.content[name] for name in self.content if str(name).lower() == key), None)
            if part is None:
                continue
            if key == "properties" and self.kind.lower() == DEPLOYMENTS.lower() and isinstance(part, Mapping):
                body[key] = _nested(part, evaluator)
            else:
                body[key] = evaluator.value(part)
        return body


def _nested(properties: Mapping[str, Any], evaluator: Evaluator) -> dict[str, Any]:
    """Return the properties of a nested deployment; with a scope of its own, its template is left for later."""
    options = properties.get("expressionEvaluationOptions")
    is_inner = isinstance(options, Mapping) and str(options.get("scope", "")).lower() == "inner"
    raw = {key: part for key, part in properties.items() if key == "template" and is_inner}
    return {**evaluator.value({key: part for key, part in properties.items() if key not in raw}), **raw}


class Template:
    """A template with the values of its parameters."""

    def __init__(
        self, content: Any, parameters: Any, constants: Mapping[str, Any], *, is_deployed: bool = True
    ) -> None:
        """
        Args:
            content: The template.
            parameters: `{"name": {"value": …}}`.
            constants: See `EvaluationScope`.
            is_deployed: Whether it is deployed, and not only read: then every parameter needs a value.

        Raises:
            TemplateError: It is not a template, or the parameters are not its own.
        """
        self._is_deployed = is_deployed
        if not isinstance(content, Mapping) or not isinstance(content.get("resources", []), list | dict):
            raise TemplateError("a template is an object with a list of resources")
        self._content = content
        self.symbols: Mapping[str, str] = {}
        """The ids of resources by their symbolic names in lower case, once `resources` was called."""
        self._declared = _objects(content.get("parameters"), "parameters")
        variables = _object(content.get("variables"), "variables")
        loops = variables.get("copy")
        plain = {str(name).lower(): part for name, part in variables.items() if name != "copy"}
        if isinstance(loops, list):
            for loop in loops:
                name = loop.get("name") if isinstance(loop, Mapping) else None
                if not isinstance(name, str):
                    raise TemplateError("a copy loop in variables has a name")
                plain[name.lower()] = Looped(loop)
        if content.get("functions"):
            raise TemplateError("functions that a template defines are not supported")
        self.scope = EvaluationScope({}, {}, constants)
        self.scope = EvaluationScope(self._values(parameters), plain, constants)

    def parameters_shown(self) -> dict[str, Any]:
        """Return the parameters with their values, without those of secure ones."""
        shown: dict[str, Any] = {}
        for name, declared in self._declared.items():
            kind = str(declared.get("type", ""))
            value = {} if kind.lower() in _SECURE else {"value": self.scope.parameters[name.lower()]}
            shown[name] = {"type": kind[:1].upper() + kind[1:], **value}
        return shown

    def outputs(self, scope: EvaluationScope) -> dict[str, Any]:
        """Return the outputs, without the values of secure ones. Raises TemplateError."""
        found: dict[str, Any] = {}
        for name, output in _objects(self._content.get("outputs"), "outputs").items():
            evaluator = Evaluator(scope)
            if "condition" in output and evaluator.value(output["condition"]) is not True:
                continue
            kind = str(output.get("type", ""))
            if isinstance(loop := output.get("copy"), Mapping):
                value: Any = evaluator.value({"copy": [{**loop, "name": "values"}]})["values"]
            else:
                value = evaluator.value(output.get("value"))
            secure = kind.lower() in _SECURE
            found[name] = {"type": kind[:1].upper() + kind[1:], **({} if secure else {"value": value})}
        return found

    def resources(self) -> list[TemplateResource]:
        """Return the resources to be made, each after what it depends on. Raises TemplateError."""
        found = self.resources_as_written()
        self.symbols = {one.symbol.lower(): one.resource_id for one in found if one.symbol}
        return _ordered(found)

    def resources_as_written(self) -> list[TemplateResource]:
        """Return all resources in the order of the template. Raises TemplateError."""
        expanded = (one for content, symbol in self._top_level() for one in self._expanded(content, symbol, None, {}))
        found = list(islice(expanded, MAX_COPIES + 1))
        if len(found) > MAX_COPIES:
            raise TemplateError(f"a template has at most {MAX_COPIES} resources; this one means more")
        return found

    # -- parameters

    def _values(self, given: Any) -> dict[str, Any]:
        values = {str(name).lower(): part for name, part in _objects(given, "parameters").items()}
        known = {name.lower() for name in self._declared}
        unknown = sorted(set(values) - known)
        if unknown:
            raise TemplateError(
                f"the parameter '{unknown[0][:100]}' is not declared in the template, which has "
                f"{', '.join(self._declared) or 'none'}"
            )
        if len(known) > MAX_PARAMETERS:
            raise TemplateError(f"a template has at most {MAX_PARAMETERS} parameters")
        found: dict[str, Any] = {}
        missing = []
        for name, declared in self._declared.items():
            part = values.get(name.lower(), {})
            if part.get("reference") is not None and self._is_deployed:
                raise TemplateError(f"the parameter '{name}' refers to a key vault, which Tidegate does not have")
            if "value" in part:
                value = part["value"]
            elif "defaultValue" in declared:
                scope = EvaluationScope(found, {}, self.scope.constants)
                try:
                    value = Evaluator(scope).value(declared["defaultValue"])
                except UnknownValueError:
                    found[name.lower()] = UNKNOWN
                    continue
            elif declared.get("nullable") is True:
                value = None
            elif not self._is_deployed:
                found[name.lower()] = UNKNOWN
                continue
            else:
                missing.append(name)
                continue
            _check_parameter(name, declared, value)
            found[name.lower()] = value
        if missing:
            raise TemplateError(f"the value of the template parameter '{missing[0]}' is not provided")
        return found

    # -- resources

    def _top_level(self) -> Iterator[tuple[Mapping[str, Any], str]]:
        resources = self._content.get("resources", [])
        named = resources.items() if isinstance(resources, Mapping) else (("", one) for one in resources)
        for symbol, content in named:
            if not isinstance(content, Mapping):
                raise TemplateError("a resource is an object")
            yield content, str(symbol)

    def _expanded(
        self, content: Mapping[str, Any], symbol: str, parent: TemplateResource | None, indexes: Mapping[str, int]
    ) -> Iterator[TemplateResource]:
        """Yield the resources that a resource means: its copies, and those inside it."""
        outer = replace(self.scope, indexes=indexes)
        loop = content.get("copy")
        if loop is None:
            scopes, loop_name = [outer], ""
        elif isinstance(loop, Mapping) and isinstance(loop.get("name"), str) and parent is None:
            loop_name = str(Evaluator(outer).value(loop["name"]))
            count = loop_count(Evaluator(outer).value(loop.get("count")))
            scopes = [outer.with_index(loop_name, index) for index in range(count)]
        else:
            raise TemplateError("a copy loop has a name and a count, and is not inside another resource")
        for one in scopes:
            scope = replace(one, budget=EvaluationBudget())
            condition = Evaluator(scope).value(content["condition"]) if "condition" in content else True
            if condition is not True and str(condition).lower() != "true":
                continue
            resource = self._resource(content, symbol, loop_name, parent, scope)
            yield resource
            for inner in _listed(content.get("resources"), "resources"):
                yield from self._expanded(_mapping(inner, "a resource"), "", resource, scope.indexes)

    def _resource(
        self,
        content: Mapping[str, Any],
        symbol: str,
        loop: str,
        parent: TemplateResource | None,
        scope: EvaluationScope,
    ) -> TemplateResource:
        evaluator = Evaluator(scope.for_names())
        absent = None if self._is_deployed else _ABSENT
        kind, name = evaluator.value(content.get("type")), evaluator.value(content.get("name", absent))
        version = evaluator.value(content.get("apiVersion", absent))
        if not all(isinstance(part, str) and part for part in (kind, name, version)):
            raise TemplateError("a resource has a type, a name and an apiVersion")
        for unsupported in ("scope", "subscriptionId") if self._is_deployed else ():
            if unsupported in content:
                raise TemplateError(f"'{unsupported}' of the resource '{name[:100]}' is not supported")
        depends = [str(evaluator.value(one)) for one in _listed(content.get("dependsOn"), "dependsOn")]
        if parent is not None:
            depends.append(parent.resource_id)
            if "." not in kind.partition("/")[0]:
                kind, name = f"{parent.kind}/{kind}", f"{_name_of(parent)}/{name}"
        types, names = kind.split("/"), name.split("/")
        if len(types) - 1 != len(names) or not all(names):
            raise TemplateError(
                f"the template resource '{name[:100]}' for type '{kind[:100]}' has incorrect segment lengths: a name "
                "has one segment less than its type"
            )
        group, subscription = scope.constants["resourcegroup"], scope.constants["subscription"]["subscriptionId"]
        in_group = evaluator.value(content.get("resourceGroup")) or group["name"]
        path = "/".join(f"{part}/{own}" for part, own in zip(types[1:], names, strict=True))
        return TemplateResource(
            resource_id=f"/subscriptions/{subscription}/resourceGroups/{in_group}/providers/{types[0]}/{path}",
            kind=kind,
            symbol=symbol,
            loop=loop,
            api_version=version,
            content=content,
            scope=scope,
            depends_on=tuple(depends),
            is_existing=content.get("existing") is True,
        )


def _name_of(resource: TemplateResource) -> str:
    return "/".join(resource.resource_id.partition("/providers/")[2].split("/")[2::2])


def _check_parameter(name: str, declared: Mapping[str, Any], value: Any) -> None:
    """Compare a value with what its parameter declares. The message does not repeat it. Raises TemplateError."""
    kind = str(declared.get("type", "")).lower()
    types = _TYPES.get(kind)
    if types is None:
        raise TemplateError(f"the template parameter '{name}' has the unknown type {kind[:40]!r}")
    if value is None and declared.get("nullable") is True:
        return
    if not isinstance(value, types) or (kind == "int" and isinstance(value, bool)):
        raise TemplateError(f"the provided value for the template parameter '{name}' is not of the type '{kind}'")
    allowed = declared.get("allowedValues")
    chosen = value if isinstance(value, list) and kind == "array" and value not in (allowed or ()) else [value]
    if isinstance(allowed, list) and not all(one in allowed for one in chosen):
        raise TemplateError(
            f"the provided value for the template parameter '{name}' is not part of the allowed values "
            f"{', '.join(map(str, allowed))[:300]}"
        )
    size = len(value) if isinstance(value, str | list) else None
    number = value if isinstance(value, int) and kind == "int" else None
    for bound, of, is_least in (
        ("minLength", size, True),
        ("maxLength", size, False),
        ("minValue", number, True),
        ("maxValue", number, False),
    ):
        limit = declared.get(bound)
        if isinstance(limit, int) and of is not None and (of < limit if is_least else of > limit):
            raise TemplateError(f"the provided value for the template parameter '{name}' violates {bound} {limit}")


def _ordered(resources: Sequence[TemplateResource]) -> list[TemplateResource]:
    by_name: dict[str, list[int]] = {}
    for number, one in enumerate(resources):
        own = {one.resource_id.lower(), one.symbol.lower(), one.loop.lower(), _name_of(one).lower()} - {""}
        short = one.resource_id.lower().partition("/providers/")[2]
        for name in {*own, short}:
            by_name.setdefault(name, []).append(number)
        if by_name[one.resource_id.lower()][1:]:
            raise TemplateError(f"the resource '{one.resource_id[:300]}' is in the template more than once")
    graph: dict[int, set[int]] = {}
    parsed: dict[int, list[Call]] = {}
    for number, one in enumerate(resources):
        graph[number] = set()
        for name in one.depends_on:
            if (found := by_name.get(name.lower().removeprefix("/providers/"))) is not None:
                graph[number].update(found)
            elif "/" not in name or "/providers/" in name.lower():
                raise TemplateError(f"the resource '{name[:300]}' is not defined in the template")
        for name in _referred(one, parsed):
            graph[number].update(by_name.get(name.lower(), ()))
        graph[number].discard(number)
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        names = " → ".join(_name_of(resources[number]) for number in error.args[1])
        raise TemplateError(f"circular dependency detected on resource: {names[:500]}") from None
    return [resources[number] for number in order if not resources[number].is_existing]


def _referred(resource: TemplateResource, parsed: dict[int, list[Call]]) -> Iterator[str]:
    """Yield the ids and names that a resource's expressions pass to `reference` and functions that list keys.

    Args:
        resource: One of a template.
        parsed: The calls in the content of resources, by its `id`: copies share one content.
    """
    evaluator = Evaluator(replace(resource.scope, budget=EvaluationBudget()))

    def calls(node: Node) -> Iterator[Call]:
        match node:
            case Call(name, arguments):
                if (name.lower() == "reference" or name.lower().startswith("list")) and arguments:
                    yield node
                for argument in arguments:
                    yield from calls(argument)
            case Literal():
                return
            case _:
                yield from calls(node.value)
                yield from calls(node.key)

    def texts(part: Any) -> Iterator[str]:
        if isinstance(part, str) and re.search(r"reference\(|list\w*\(", part, re.IGNORECASE) and is_expression(part):
            yield part
        elif isinstance(part, Mapping | list):
            for item in part.values() if isinstance(part, Mapping) else part:
                yield from texts(item)

    if id(resource.content) not in parsed:
        is_inner = resource.kind.lower() == DEPLOYMENTS.lower()
        content = {} if is_inner else {key: resource.content.get(key) for key in ("properties", "tags", "location")}
        parsed[id(resource.content)] = [one for text in texts(content) for one in calls(parse(text))]
    for one in parsed[id(resource.content)]:
        try:
            named = evaluator.node(one.arguments[0])
        except TemplateError:  # it depends on a resource itself, or on a copy loop over properties
            continue
        if isinstance(named, str):
            yield named


def _object(value: Any, what: str) -> dict[str, Any]:
    if value is None:
        return {}
    return dict(_mapping(value, what))


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TemplateError(f"'{what}' is an object")
    return value


def _objects(value: Any, what: str) -> dict[str, dict[str, Any]]:
    return {str(name): dict(_mapping(part, f"{what}.{name}")) for name, part in _object(value, what).items()}


def _listed(value: Any, what: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise TemplateError(f"'{what}' is a list")
    return value
