"""Operations that outlive their answer: a client polls the address that it was given until there is a result.

Results are kept in memory, the newest ones for an hour. Whoever knows the signature of a result may download what it
holds, as with the shared access signature of a blob.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from tidegate.azure.management.access.requests import SUBSCRIPTION, ArmAnswer, ArmError, ArmRequest, Operation
from tidegate.azure.management.stream_analytics.store import PROVIDER

LOCATION = f"{SUBSCRIPTION}/providers/{PROVIDER}/locations/{{location}}"
AT_ONCE = 2
"""Each loads the engine in a process of its own."""
MOST_WAITING = 20
MOST_KEPT = 64
KEPT_S = 3600.0
_STARTED = {"status": "Started"}
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OperationResult:
    """The end of an operation.

    Attributes:
        result: What the client gets at the end of its polling.
        payload: What can be downloaded, None for nothing.
        link: The member of the result that is to hold the address of the payload.
    """

    result: Mapping[str, Any]
    payload: Any = None
    link: str = ""


@dataclass(slots=True)
class _Running:
    began_s: float
    signature: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    outcome: OperationResult | None = None


class Background:
    """Runs operations in threads, and answers for them."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._lock = threading.Lock()
        self._slots = threading.Semaphore(AT_ONCE)
        self._operations: dict[str, _Running] = {}

    def operations(self) -> list[Operation]:
        """Return what is served: the result of an operation, and the download of what it holds."""
        path = f"{LOCATION}/operationResults/{{operation}}"
        return [
            Operation("GET", path, self._result),
            Operation("GET", f"{path}/payload", self._payload, is_public=True),
        ]

    def start(self, request: ArmRequest, work: Callable[[], OperationResult]) -> ArmAnswer:
        """Begin an operation and return the answer that says where its result will be.

        Raises:
            ArmError: Too many wait already.
        """
        with self._lock:
            self._forget()
            if sum(one.outcome is None for one in self._operations.values()) >= MOST_WAITING:
                raise ArmError(429, "TooManyRequests", "too many tests are waiting", headers={"Retry-After": "5"})
            operation = str(uuid.uuid4())
            running = self._operations[operation] = _Running(self._now_s())
        threading.Thread(target=self._run, args=(running, work), name="tidegate-arm-test", daemon=True).start()
        subscription, location = request.subscription, request.names["location"]
        path = f"/subscriptions/{subscription}/providers/{PROVIDER}/locations/{location}/operationResults/{operation}"
        return ArmAnswer(202, _STARTED, _polling(path, request))

    def _run(self, running: _Running, work: Callable[[], OperationResult]) -> None:
        with self._slots:
            try:
                outcome = work()
            except ArmError as error:
                outcome = OperationResult({"status": "UnknownError", "error": error.body()})
            except Exception:
                _logger.exception("a test of the management API failed")
                problem = {"code": "InternalError", "message": "the test failed; the hub's log says why"}
                outcome = OperationResult({"status": "UnknownError", "error": problem})
        with self._lock:
            running.outcome = outcome

    def _forget(self) -> None:
        """Drop results that are old, and the oldest of too many."""
        oldest_s = self._now_s() - KEPT_S
        done = [name for name, one in self._operations.items() if one.outcome is not None]
        for name in done:
            if self._operations[name].began_s < oldest_s or len(self._operations) >= MOST_KEPT:
                del self._operations[name]

    def _found(self, request: ArmRequest) -> _Running:
        with self._lock:
            running = self._operations.get(request.names["operation"].lower())
        if running is None:
            name = request.names["operation"][:100]
            raise ArmError(404, "OperationNotFound", f"there is no operation {name!r}, or no longer")
        return running

    def _result(self, request: ArmRequest) -> ArmAnswer:
        running = self._found(request)
        outcome = running.outcome
        if outcome is None:
            return ArmAnswer(202, _STARTED, _polling(request.path, request))
        if outcome.payload is None or not outcome.link:
            return ArmAnswer(body=outcome.result)
        address = f"{_address(f'{request.path}/payload', request)}&sig={running.signature}"
        return ArmAnswer(body={**outcome.result, outcome.link: address})

    def _payload(self, request: ArmRequest) -> ArmAnswer:
        try:
            running = self._found(request)
        except ArmError:
            running = None
        given = request.query.get("sig", "").encode()
        if running is None or not hmac.compare_digest(given, running.signature.encode()):
            raise ArmError(403, "AuthenticationFailed", "the signature (sig) is not that of this result")
        if running.outcome is None or running.outcome.payload is None:
            raise ArmError(404, "BlobNotFound", "this result holds nothing to download")
        return ArmAnswer(body=running.outcome.payload)


def _polling(path: str, request: ArmRequest) -> dict[str, str]:
    return {"Location": _address(path, request), "Retry-After": "1"}


def _address(path: str, request: ArmRequest) -> str:
    return f"{request.base_url}{quote(path)}?api-version={request.query.get('api-version', '')}"
