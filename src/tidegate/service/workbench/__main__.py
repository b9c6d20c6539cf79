"""The process: a question a line on standard input, an answer a line on standard output, in the same order."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from tidegate.connectors.model.errors import InputError, JobError, JobQueryError
from tidegate.engine import UnsupportedQuery
from tidegate.ordering import PolicyError
from tidegate.service.workbench import editing, replaying, samples, sections
from tidegate.sql import QueryError

QUESTIONS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "compile": editing.compiled,
    "words": editing.words,
    "plan": editing.plan,
    "sample": samples.sampled,
    "decode": samples.decoded,
    "test": samples.tested,
    "tune": replaying.tuned_log,
    "picture": replaying.picture,
    "explain": replaying.explained,
    "sections": sections.sections,
    "section": sections.check_section,
    "reach": sections.reach,
}
WARM_UP: Mapping[str, Any] = {
    "ask": "test",
    "definition": {
        "name": "warm-up",
        "query": "SELECT a, COUNT(*) AS n INTO output FROM input TIMESTAMP BY t GROUP BY a, TumblingWindow(second, 1)",
        "inputs": {"input": {"type": "recorded", "path": os.devnull}},
    },
    "uploaded": {"input": '{"a": 1, "t": "2026-01-01T00:00:00Z"}'},
}
"""Loads whatever a first question would otherwise wait for."""
MAX_ANSWER_BYTES = 16 << 20
"""The hub parses what comes back, so an answer beyond this is a problem instead."""
MEMORY_BYTES = 6 << 30
"""Of address space: far more than a question needs, and less than a machine's end."""


def answer(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a question, or the problem and its kind: compiler, input, runtime or unknown."""
    try:
        return {"answer": QUESTIONS[question["ask"]](question)}
    except QueryError as error:
        sql = str(question.get("definition", {}).get("query") or "")
        return {"problem": error.render(sql), "kind": "compiler"}
    except (JobQueryError, UnsupportedQuery) as error:
        return {"problem": str(error), "kind": "compiler"}
    except InputError as error:
        return {"problem": str(error), "kind": "input"}
    except (JobError, PolicyError) as error:
        return {"problem": str(error), "kind": "runtime"}
    except MemoryError:
        problem = "this needs more memory than there is for a question: ask about fewer events"
        return {"problem": problem, "kind": "runtime"}
    except Exception:
        logging.getLogger(__name__).exception("the question %r failed", question.get("ask"))
        return {"problem": "this failed; the log of the hub says why", "kind": "unknown"}


def answer_line(question: Mapping[str, Any]) -> bytes:
    """Return the line that answers a question, of bounded length."""
    line = _line(answer(question))
    if len(line) <= MAX_ANSWER_BYTES:
        return line
    problem = f"the answer has {len(line) >> 20} MiB, and may have {MAX_ANSWER_BYTES >> 20}: ask about fewer events"
    return _line({"problem": problem, "kind": "runtime"})


def _line(answered: Mapping[str, Any]) -> bytes:
    return json.dumps(answered, ensure_ascii=False, default=str).encode("utf-8", "replace") + b"\n"


def main() -> None:
    """Answer until standard input ends; with ``--once``, without loading what later questions would need."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a user's function prints is no answer
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        os.nice(5)
    if sys.argv[1:] != ["--once"]:
        answer(WARM_UP)
    for line in sys.stdin.buffer:
        out.write(answer_line(json.loads(line)))
        out.flush()


if __name__ == "__main__":
    main()
