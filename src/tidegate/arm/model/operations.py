"""The operations of the management API as a table, and how a path finds its operation, whatever its case."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tidegate.arm.model.errors import ArmError
from tidegate.arm.model.requests import ArmAnswer, ArmRequest

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
