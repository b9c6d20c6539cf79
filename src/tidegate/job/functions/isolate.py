"""Runs scripts in an embedded JavaScript engine, isolated and limited.

A script has the language's built-ins, and nothing else: no files, network, timers, modules or threads. Its local time
is UTC. A batch crosses the boundary as one text of JSON in each direction. One item (a row's call, or a group's
aggregate) may take about a second of processor time, a script 128 MB of memory. Whatever exceeds a limit fails for the
item alone: its context is given up, and the other items are computed in a new one.
"""

from __future__ import annotations

import functools
import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from typing import Any

import msgspec

TIME_LIMIT_S = 1.0
MEMORY_LIMIT_BYTES = 128 * 2**20
_MOST_CONTEXTS = 64
_MOST_ITEMS = 8192
_LONGEST_REQUEST = 4 * 2**20
_AT_A_LINE = re.compile(r"<input>:(\d+)")
_SURROGATE = re.compile("[\ud800-\udfff]")

Encode = Callable[[int, int], str]
"""The request with the items from the first to before the last, as JSON."""


class ScriptError(Exception):
    """A script cannot be used, or a call of it failed; the message is for people."""


@dataclass(frozen=True, slots=True)
class FunctionScript:
    """A script that defines ``main`` or one function of any name, or is an anonymous function, as the service has them.

    Attributes:
        source: its text.
        aggregate: the function makes the objects of an aggregate, rather than being called for rows.
    """

    source: str
    aggregate: bool


@dataclass(slots=True)
class Piece:
    """Results of items that follow each other.

    Attributes:
        values: a JSON value for each item; None where it failed.
        failures: the index of each failed item, and why it failed.
        marked, large: indexes of values with dates inside, and of whole numbers beyond 2^53.
    """

    values: list[Any]
    failures: list[tuple[int, str]]
    marked: list[int]
    large: list[int]


_ANONYMOUS = re.compile(
    r"(?:\s|//[^\n]*\n|/\*.*?\*/)*+(?=\(?\s*(?:async\s+)?(?:function\s*\*?\s*\(|(?:\([^()]*\)|[A-Za-z_$][\w$]*)\s*=>))",
    re.DOTALL,
)


def named_main(source: str) -> str:
    """Return a script with its name, `main`, if it is an anonymous function; lines stay where they are."""
    found = _ANONYMOUS.match(source)
    return source if found is None else f"{source[: found.end()]}var main = {source[found.end() :]}"


_DECLARED = """(() => {
  const { getOwnPropertyNames } = Object, { stringify } = JSON, builtins = getOwnPropertyNames(globalThis).length;
  const isFunction = (name) => typeof globalThis[name] === "function";
  return () => stringify(getOwnPropertyNames(globalThis).slice(builtins).filter(isFunction));
})()"""


def _function_name(context: Any, declared: Callable[[], Any]) -> str:
    """Return an expression for the function ``main`` of a script that is loaded, or for the only one that it declares.

    Raises:
        ScriptError: there is no such function.
    """
    if context.eval("typeof main === 'function'"):
        return "main"
    names = json.loads(declared())
    if len(names) == 1:
        return f"globalThis[{json.dumps(names[0])}]"
    found = f", but {', '.join(names)}: call one of them main" if names else ""
    raise ScriptError(f"it defines no function main{found}")


class _Interrupted(Exception):
    """The engine stopped while it computed the item ``item``, or after the last one."""

    def __init__(self, item: int, reason: str) -> None:
        super().__init__(reason)
        self.item = item
        self.reason = reason


def check_script(script: FunctionScript) -> None:
    """Load a script once.

    Raises:
        ScriptError: it is not JavaScript, fails when it is loaded, or does not show which function it is.
    """
    _Context(script)


def run(script: FunctionScript, count: int, encode: Encode) -> list[Piece]:
    """Compute items, and return their results in pieces, in order."""
    pieces: list[Piece] = []
    waiting = [(start, min(start + _MOST_ITEMS, count)) for start in range(0, count, _MOST_ITEMS)][::-1]
    while waiting:
        start, end = waiting.pop()
        request = encode(start, end)
        if len(request) > _LONGEST_REQUEST and end - start > 1:
            middle = (start + end) // 2
            waiting += [(middle, end), (start, middle)]
            continue
        context = _context(script)
        fresh = not context.used
        try:
            pieces += context.run(request, end - start)
        except _Interrupted as stopped:
            _forget(script)
            if end - start == 1 and fresh:
                pieces.append(Piece([None], [(0, stopped.reason)], [], []))
                continue
            # What was computed before is computed again, and the item that was in the way by itself.
            # One that follows others is computed once more, in a context where the script has kept nothing of them.
            at = start + stopped.item if stopped.item < end - start else (start + end) // 2
            parts = [(start, at), (at, at + 1), (at + 1, end)]
            waiting += [part for part in reversed(parts) if part[0] < part[1]]
    return pieces


class _Context:
    """A script that is loaded, in a runtime of its own that only one thread may use.

    Attributes:
        used: whether it has computed anything.
    """

    def __init__(self, script: FunctionScript) -> None:
        if "\0" in script.source:
            raise ScriptError("it contains a NUL character, so it is no text")
        self.used = False
        quickjs = _engine()
        self._error: type[Exception] = quickjs.JSException
        context = quickjs.Context()
        context.set_memory_limit(MEMORY_LIMIT_BYTES)
        context.set_time_limit(TIME_LIMIT_S)
        make = context.eval(_harness())
        declared = context.eval(_DECLARED)
        try:
            context.eval(named_main(script.source))
        except quickjs.JSException as error:
            raise ScriptError(_limit(str(error))) from None
        main = context.eval(_function_name(context, declared))
        self._context = context
        self._call: Callable[..., Any] = make(main, script.aggregate)

    def run(self, request: str, count: int) -> list[Piece]:
        """Compute the items of a request.

        Raises:
            _Interrupted: a limit was exceeded.
        """
        pieces = []
        done = 0
        self.used = True
        try:
            self._call(request)
            while done < count:
                done, piece = _piece(self._call(True), done)
                pieces.append(piece)
        except self._error as error:
            raise _Interrupted(self._progress(count), _limit(str(error))) from None
        except (TypeError, ValueError, RecursionError):
            raise _Interrupted(self._progress(count), "it changed built-ins that its results depend on") from None
        return pieces

    def _progress(self, count: int) -> int:
        try:
            item = self._call()
        except self._error:
            return count
        return item if type(item) is int else count


_contexts = threading.local()


def _context(script: FunctionScript) -> _Context:
    """Return the context of a script in this thread, made on first use."""
    kept: dict[FunctionScript, _Context] = _contexts.__dict__.setdefault("kept", {})
    found = kept.get(script)
    if found is None:
        while len(kept) >= _MOST_CONTEXTS:
            del kept[next(iter(kept))]
        found = kept[script] = _Context(script)
    return found


def _forget(script: FunctionScript) -> None:
    _contexts.kept.pop(script, None)


@functools.cache
def _harness() -> str:
    text = resources.files("tidegate.job.functions").joinpath("harness.js").read_text(encoding="utf-8")
    # All that is evaluated has the same file name in stacks: the lines tell a script's from these.
    return "\n" * 100_000 + text


def _engine() -> Any:
    try:
        import quickjs
    except ImportError:
        raise ScriptError('functions in JavaScript need an engine: pip install "tidegate[javascript]"') from None
    return quickjs


def _explained(error: str) -> str:
    """Return an error of the engine without its stack, with the line."""
    message = error.splitlines()[0] if error else "it failed"
    at = _AT_A_LINE.search(error)
    return f"line {at[1]}: {message}" if at else message


def _limit(error: str) -> str:
    if "interrupted" in error:
        return f"it took longer than {TIME_LIMIT_S:g} s of processor time"
    memory = f"needed more than {MEMORY_LIMIT_BYTES // 2**20} MB of memory"
    if "out of memory" in error:
        return f"it {memory}"
    if error.startswith("null"):
        return f"it threw null, or {memory}"
    return _explained(error)


def _piece(text: Any, done: int) -> tuple[int, Piece]:
    """Return how many items are done, and the results since ``done``.

    Raises:
        TypeError, ValueError: that is not what the harness writes.
    """
    after, values, failures, marked, large = _decoded(text)
    if type(after) is not int or len(values) != after - done or after < done:
        raise ValueError("results do not belong to the items")
    return after, Piece(values, [(index, reason) for index, reason in failures], marked, large)


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        # Only json reads a text with half of a surrogate pair.
        return _whole(json.loads(text))


def _whole(value: Any) -> Any:
    """Return a value with U+FFFD for each half of a surrogate pair, which UTF-8 does not have."""
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return list(map(_whole, value))
    if isinstance(value, dict):
        return {_whole(name): _whole(inner) for name, inner in value.items()}
    return value
