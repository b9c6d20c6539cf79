"""Requests to the management API apart from HTTP: operations, roles, checked JSON, answers and errors."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NoReturn, TypeVar
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from tidegate.hub.errors import AlreadyExists, HubError, NotFound, QuotaExceeded, Unauthorized


class ArmError(Exception):
    """A request that is refused. The message holds no secret."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        target: str | None = None,
        details: Sequence[ArmError] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.target = target
        self.details = tuple(details)
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """Return the value of `error` in the answer."""
        body: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.target is not None:
            body["target"] = self.target
        if self.details:
            body["details"] = [detail.body() for detail in self.details]
        return body


def bad_request(message: str, code: str = "BadRequest", target: str | None = None) -> ArmError:
    """Return the refusal of a request that is wrong in itself."""
    return ArmError(400, code, message, target=target)


def conflict(message: str, code: str = "Conflict") -> ArmError:
    """Return the refusal of a change that contradicts what exists."""
    return ArmError(409, code, message)


def resource_not_found(kind: str, name: str, group: str) -> ArmError:
    """Return the refusal of a resource that does not exist."""
    return ArmError(
        404, "ResourceNotFound", f"The Resource '{kind}/{name}' under resource group '{group}' was not found."
    )


def refused_by_hub(error: HubError) -> ArmError:
    """Return a refusal of the hub in Resource Manager's words."""
    for kind, code in (
        (NotFound, "ResourceNotFound"),
        (AlreadyExists, "Conflict"),
        (QuotaExceeded, "QuotaExceeded"),
        (Unauthorized, "AuthorizationFailed"),
    ):
        if isinstance(error, kind):
            return ArmError(error.http_status, code, error.description)
    return ArmError(error.http_status, "BadRequest" if error.http_status < 500 else "InternalError", error.description)


# A text or comment that never ends matches up to the end, so that no part is searched twice.
_PART = re.compile(
    r'"(?P<double>(?:[^"\\]|\\.)*)(?:"|\\?\Z)'
    r"|'(?P<single>(?:[^'\\]|\\.)*)(?:'|\\?\Z)"
    r"|(?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))"
    r"|(?P<name>[A-Za-z_$][\w$]*)(?=\s*:)"
    r"|(?P<word>[A-Za-z_$][\w$]*)",
    re.DOTALL,
)
_COMMA = re.compile(r'"(?:[^"\\]|\\.)*"|(?P<comma>,)(?=\s*[}\]])')
_CONTROL = re.compile(r"[\x00-\x1f]")


def strict_json(text: str) -> str:
    """Return the text as JSON, in time proportional to its length; what is wrong in another way stays wrong."""
    return _COMMA.sub(lambda found: " " if found["comma"] else found[0], _PART.sub(_strict, text))


def _strict(found: re.Match[str]) -> str:
    match found.lastgroup:
        case "double":
            inner = _CONTROL.sub(lambda one: json.dumps(one[0])[1:-1], found["double"])
            return f'"{inner}"' if found[0].endswith('"') else found[0]
        case "single":
            inner = found["single"].replace("\\'", "'").replace('"', '\\"')
            return f'"{_CONTROL.sub(lambda one: json.dumps(one[0])[1:-1], inner)}"'
        case "name":
            return f'"{found["name"]}"'
        case "comment":
            return " "
        case _:
            return found[0]


class PrincipalRole(Enum):
    """What a service principal may do."""

    READER = "reader"
    CONTRIBUTOR = "contributor"
    OWNER = "owner"

    def includes(self, other: PrincipalRole) -> bool:
        """Return whether this role may do what the other one may."""
        order = list(PrincipalRole)
        return order.index(self) >= order.index(other)

    def may(self, action: str) -> bool:
        """Return whether the role allows an action such as `Microsoft.EventHub/namespaces/eventhubs/write`."""
        verb = action.rpartition("/")[2]  # that of the list of all providers has no name before it
        match self:
            case PrincipalRole.READER:
                return verb == "read"
            case PrincipalRole.CONTRIBUTOR:
                return not action.startswith("Microsoft.Authorization/") or verb == "read"
            case PrincipalRole.OWNER:
                return True


MAX_BODY_BYTES = 4 << 20
"""Resource Manager's own limit, which is that of a template."""
MAX_PATH_CHARACTERS = 4096
MAX_SEGMENT_CHARACTERS = 512
MAX_DEPTH = 128
"""How deeply the values of a body may be nested, so that whatever was read can be written again."""
_MAX_NUMBER_CHARACTERS = 308
"""As many as the longest whole number that is also a float."""


@dataclass(frozen=True, slots=True)
class ArmRequest:
    """One request.

    Attributes:
        method: GET, HEAD, PUT, PATCH, POST or DELETE.
        path: The path as it was asked for, decoded, without a slash at its end.
        names: What the path names, by the placeholders of the operation that it matched.
        query: The query parameters, their names in lower case.
        headers: Their names in lower case.
        body: The parsed JSON, None without a body.
        base_url: Scheme, host and port by which the client reached the server.
        who: The caller, for the log and for what is recorded.
        role: What the caller may do; whatever is done on its behalf needs the same right.
        is_dry: Whether it is only asked if the request would be allowed.
    """

    method: str
    path: str
    names: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    base_url: str = ""
    who: str = ""
    role: PrincipalRole = PrincipalRole.READER
    is_dry: bool = False

    @property
    def subscription(self) -> str:
        """The subscription that the path names."""
        return self.names.get("subscription", "")

    @property
    def group(self) -> str:
        """The resource group that the path names, empty for a whole subscription."""
        return self.names.get("group", "")


@dataclass(frozen=True, slots=True)
class ArmAnswer:
    """What comes back. `body` is None for no content."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def content(self) -> bytes:
        """Return the body as JSON, in ASCII so that any text in it can be written."""
        return b"" if self.body is None else json.dumps(self.body, separators=(",", ":")).encode("ascii")


def etag_of(body: Any) -> str:
    """Return the entity tag of a resource: a digest of what a GET answers."""
    text = json.dumps(body, separators=(",", ":"), sort_keys=True)
    return f'"{hashlib.sha256(text.encode("ascii")).hexdigest()[:32]}"'


def path_segments(raw_path: str) -> tuple[str, ...]:
    """Return the decoded segments of a path as it came over the wire, without empty ones, which the Azure CLI sends.

    Raises:
        ArmError: A segment is too long, leads elsewhere (`..`, an encoded slash) or is not UTF-8.
    """
    if len(raw_path) > MAX_PATH_CHARACTERS:
        raise ArmError(414, "UriTooLong", f"a path may have {MAX_PATH_CHARACTERS} characters")
    segments = []
    for written in filter(None, raw_path.split("/")):
        try:
            segment = unquote(written, errors="strict")
        except UnicodeDecodeError:
            raise bad_request("the path is not UTF-8", "InvalidUri") from None
        odd = any(character in "/\\\0\n\r" or not character.isprintable() for character in segment)
        if segment.strip(".") == "" or odd or len(segment) > MAX_SEGMENT_CHARACTERS:
            raise bad_request(f"the path has a segment that names nothing: {written[:80]!r}", "InvalidUri")
        segments.append(segment)
    return tuple(segments)


def parse_json(body: bytes) -> Any:
    """Return the body of a request, None if it is empty. Raises ArmError."""
    if not body.strip():
        return None
    try:
        text = body.decode("utf-8-sig")
        try:
            parsed = _loads(text)
        except json.JSONDecodeError:
            parsed = _loads(strict_json(text))
        _check_depth(parsed)
        if b"\\u" in body:
            json.dumps(parsed, ensure_ascii=False).encode("utf-8")  # half a character cannot be stored
        return parsed
    except RecursionError:
        reason = "its values are nested too deeply"
    except ValueError as error:  # also of what is not UTF-8, and of a number of thousands of digits
        reason = str(error)[:200]
    raise bad_request(f"The request content was invalid and could not be deserialized: {reason}", _INVALID)


_INVALID = "InvalidRequestContent"


def _loads(text: str) -> Any:
    return json.loads(text, parse_constant=_no_constant, parse_float=_finite, parse_int=_whole)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:40]} is out of range")
    return value


def _whole(text: str) -> int:
    if len(text) > _MAX_NUMBER_CHARACTERS:
        raise ValueError(f"the number {text[:40]}… is out of range")
    return int(text)


def _check_depth(value: Any) -> None:
    """Raises RecursionError for values that are nested more deeply than any resource is."""
    level = [value]
    for _ in range(MAX_DEPTH):
        inner = [part for part in level if isinstance(part, dict | list)]
        if not inner:
            return
        level = [one for part in inner for one in (part.values() if isinstance(part, dict) else part)]
    raise RecursionError


class Payload(BaseModel):
    """A part of a request's body. Keys are taken in any case, unknown ones are ignored, null means left out."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _in_any_case(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        known = {(field.alias or name).lower(): name for name, field in cls.model_fields.items()}
        given = {str(key).lower(): part for key, part in value.items() if part is not None}
        return {known[key]: part for key, part in given.items() if key in known}


_Payload = TypeVar("_Payload", bound=Payload)


def read_payload(model: type[_Payload], body: Any) -> _Payload:
    """Return a body as the model of what is expected. Raises ArmError, which names the place of each mistake."""
    if body is None:
        body = {}
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise bad_request(f"the request's body: {reasons(error)}", _INVALID) from None
    except RecursionError:
        raise bad_request("the request's body: its values are nested too deeply", _INVALID) from None


def reasons(error: ValidationError) -> str:
    """Return every mistake with its place. The values are left out: they may be secrets, and long."""
    found = []
    for item in error.errors(include_url=False, include_input=False, include_context=False)[:20]:
        place = ".".join(to_camel(str(step)) if isinstance(step, str) else str(step) for step in item["loc"])
        found.append(f"{place[:200] or 'the document'}: {item['msg'].removeprefix('Value error, ')}")
    return "; ".join(found)


SUBSCRIPTION = "/subscriptions/{subscription}"
GROUP = f"{SUBSCRIPTION}/resourceGroups/{{group}}"


@dataclass(frozen=True, slots=True)
class Operation:
    """One method on one path.

    Attributes:
        method: GET, PUT, PATCH, POST or DELETE; HEAD is answered by GET's.
        path: The path with its placeholders in braces, spelled as Azure spells it.
        act: What it does.
        owner_only: Whether the request needs the role of an owner. It is asked of the request because a rule's name
            decides it.
        is_public: Whether it needs no token, because its URL holds a signature, which it checks itself.
    """

    method: str
    path: str
    act: Callable[[ArmRequest], ArmAnswer]
    owner_only: Callable[[ArmRequest], bool] = lambda _request: False
    is_public: bool = False

    @property
    def action(self) -> str:
        """The name of the right it needs: `Microsoft.EventHub/namespaces/eventhubs/write`."""
        segments = self.path.strip("/").split("/")
        if "providers" in segments:
            segments = segments[len(segments) - segments[::-1].index("providers") :]
        else:
            segments = ["Microsoft.Resources", *segments]
        names = [segment for segment in segments if not segment.startswith("{")]
        match self.method:
            case "GET":
                return "/".join([*names, "read"])
            case "PUT" | "PATCH":
                return "/".join([*names, "write"])
            case "DELETE":
                return "/".join([*names, "delete"])
            case method:
                assert method == "POST"
                return "/".join([*names, "action"])


@dataclass(frozen=True, slots=True)
class Found:
    """An operation, and what the path names."""

    operation: Operation
    names: dict[str, str]


class OperationTable:
    """Finds the operation of a request. Literal segments compare without case."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._by_length: dict[int, list[tuple[tuple[str, ...], dict[str, Operation]]]] = {}
        for operation in operations:
            segments = tuple(operation.path.strip("/").split("/"))
            rows = self._by_length.setdefault(len(segments), [])
            methods = next((methods for path, methods in rows if path == segments), None)
            if methods is None:
                methods = {}
                rows.append((segments, methods))
                rows.sort(key=lambda row: [segment.startswith("{") for segment in row[0]])
            methods[operation.method] = operation

    def find(self, method: str, segments: Sequence[str]) -> Found:
        """Return the operation of a method and a path. Raises ArmError with 404 or 405."""
        allowed: set[str] = set()
        method = "GET" if method == "HEAD" else method
        for path, methods in self._by_length.get(len(segments), ()):
            names = _match(path, segments)
            if names is None:
                continue
            if method in methods:
                return Found(methods[method], names)
            allowed.update(methods)
        written = "/" + "/".join(segments)
        if allowed:
            raise ArmError(
                405,
                "HttpMethodNotAllowed",
                f"{method} is not supported for '{written[:300]}'; {', '.join(sorted(allowed))} can be used",
                headers={"Allow": ", ".join(sorted(allowed))},
            )
        raise ArmError(404, "InvalidResourceType", f"Tidegate serves no resource at '{written[:300]}'")


def _match(path: Sequence[str], segments: Sequence[str]) -> dict[str, str] | None:
    names: dict[str, str] = {}
    for expected, segment in zip(path, segments, strict=True):
        if expected.startswith("{"):
            names[expected[1:-1]] = segment
        elif expected.lower() != segment.lower():
            return None
    return names
