"""What gateways share is a function of the records alone, whoever wrote them and whatever compaction left of them."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidegate.store.kafka.shared import MAX_READERS, SharedState, Verdict

Record = tuple[str, dict[str, Any] | None]


def claim(gateway: str, number: int, level: int | None = None, resource: str = "hub/0/g") -> Record:
    return f"claim/{gateway}/{number}", {"resource": resource, "level": level, "name": "reader"}


def after(*records: Record) -> tuple[SharedState, list[Verdict | None]]:
    state = SharedState()
    return state, [state.apply(offset, *record) for offset, record in enumerate(records)]


ALIVE: tuple[Record, ...] = (("gateway/a", {"started": 1}), ("gateway/b", {"started": 1}))


def test_the_first_of_two_changes_counts() -> None:
    state, _ = after(
        ("definitions/a", {"version": 1, "state": "first"}), ("definitions/b", {"version": 1, "state": "second"})
    )
    assert (state.definitions, state.definitions_by) == ("first", "a")


def test_five_readers_and_no_sixth() -> None:
    state, verdicts = after(*ALIVE, *(claim("ab"[number % 2], number) for number in range(MAX_READERS + 1)))
    assert [verdict.refusal for verdict in verdicts if verdict] == [None] * MAX_READERS + ["full"]
    state.apply(99, "claim/a/0", None)
    verdict = state.apply(100, *claim("b", 9))
    assert verdict is not None
    assert verdict.refusal is None


def test_a_higher_or_equal_owner_level_evicts_and_a_lower_one_is_refused() -> None:
    _, verdicts = after(*ALIVE, claim("a", 1), claim("b", 2, 5), claim("a", 3, 4), claim("a", 4), claim("a", 5, 5))
    found = [
        (verdict.refusal, [one.claim_id for one in verdict.evicted], verdict.highest_level)
        for verdict in verdicts
        if verdict
    ]
    assert found == [
        (None, [], None),
        (None, ["1"], 5),
        ("owned", [], 5),
        ("owned", [], 5),
        (None, ["2"], 5),
    ]


def test_a_repeated_record_changes_nothing() -> None:
    state, verdicts = after(*ALIVE, claim("a", 1, 3), claim("a", 1, 3))
    assert verdicts[-1] is not None
    assert (verdicts[-1].refusal, verdicts[-1].evicted) == (None, [])
    assert len(state.claims["hub/0/g"]) == 1


def test_a_dead_gateway_loses_its_claims_unless_it_has_spoken_since() -> None:
    state, _ = after(*ALIVE, claim("a", 1, 3), ("task/a/t", {}), ("silence/a/b", {"silent_since": 0}))
    assert (state.gateways, state.claims, state.tasks) == ({"b": 1}, {}, {})
    state, _ = after(*ALIVE, claim("a", 1, 3), ("beat/a", {"beat": 2}), ("silence/a/b", {"silent_since": 0}))
    assert state.gateways == {"a": 3, "b": 1}
    assert state.claims


def entry(key: str, number: int, text: str) -> Record:
    return f"entry/{key}", {"list": "schemas", "number": number, "entry": {"is": text}}


def test_an_entry_counts_if_it_is_the_next() -> None:
    records = [entry("a/1", 1, "x"), entry("b/1", 1, "late"), entry("b/2", 2, "y"), entry("a/2", 4, "early")]
    state, _ = after(*records)
    expected = [("entry/a/1", {"is": "x"}), ("entry/b/2", {"is": "y"})]
    assert state.entries == {"schemas": expected}
    state, _ = after(records[0], records[2], ("entry/b/1", None))  # those that did not count are withdrawn
    assert state.entries == {"schemas": expected}


def test_reports_are_those_of_live_gateways() -> None:
    told: Record = ("beat/a", {"beat": 1, "report": {"ingress": [1, False]}})
    state, _ = after(*ALIVE, told, ("beat/c", {"beat": 1, "report": {"ingress": [2, False]}}))
    assert state.reports == {"a": {"ingress": [1, False]}, "b": {}}
    state.apply(9, "silence/a/b", {"silent_since": 2})
    assert state.reports == {"b": {}}


def test_a_gateway_that_was_declared_dead_is_granted_nothing() -> None:
    dead: tuple[Record, ...] = (*ALIVE, ("silence/a/b", {"silent_since": 0}), ("beat/a", {"beat": 9}))
    state, verdicts = after(*dead, ("task/a/t", {}), claim("a", 1))
    assert verdicts[-1] is not None
    assert verdicts[-1].refusal == "dead"
    assert state.tasks == {}
    _, verdicts = after(*dead, ("gateway/a", {"started": 2}), claim("a", 1))
    assert verdicts[-1] is not None
    assert verdicts[-1].refusal is None


def test_one_gateway_does_a_task_until_it_leaves_it() -> None:
    state, _ = after(*ALIVE, ("task/a/t/0", {}), ("task/b/t/0", {}), ("task/b/t/0", None))
    assert state.tasks == {"t/0": "a"}
    state.apply(9, "task/a/t/0", None)
    state.apply(10, "task/b/t/0", {})
    assert state.tasks == {"t/0": "b"}


def test_the_first_of_two_versions_of_a_document_counts() -> None:
    records: list[Record] = [
        ("document/a/x/1", {"version": 1, "content": {"by": "a"}}),
        ("document/b/x/1", {"version": 1, "content": {"by": "b"}}),
        ("document/b/x/1", {"version": 2, "content": {"by": "b", "again": True}}),
    ]
    state, _ = after(*records[:2])
    assert (state.documents["x/1"].by, state.documents["x/1"].content) == ("a", {"by": "a"})
    state, _ = after(*records)
    assert state.documents["x/1"].content == {"by": "b", "again": True}
    for key in list(state.documents["x/1"].keys):
        state.apply(9, key, None)
    assert not state.documents


def test_unknown_records_are_passed_over() -> None:
    state, _ = after(("", None), ("other/x", {}), ("gateway/a", None), ("claim/a/1", None))
    assert state == SharedState()


_ACTIONS = ("define", "define late", "claim", "release", "task", "leave", "document", "beat", "die", "begin anew")


@st.composite
def histories(draw: st.DrawFn) -> list[Record]:
    """Records as gateways write them: versions follow the state, and claims that lost are withdrawn."""
    state = SharedState()
    records: list[Record] = []

    def write(record: Record) -> Verdict | None:
        records.append(record)
        return state.apply(len(records) - 1, *record)

    for gateway in "abc":
        write((f"gateway/{gateway}", {"started": 0}))
    for number in range(draw(st.integers(0, 25))):
        gateway = draw(st.sampled_from("abc"))
        action = draw(st.sampled_from(_ACTIONS))
        if action.startswith("define"):
            version = state.version + (action == "define")
            # a gateway writes its own definitions again only after it has read what became of its last ones
            if version > state.version or state.definitions_by != gateway:
                write((f"definitions/{gateway}", {"version": max(1, version), "state": number}))
        elif action == "claim":
            verdict = write(claim(gateway, number, draw(st.sampled_from([None, 1, 2]))))
            if verdict is not None and verdict.refusal is not None:
                write((f"claim/{gateway}/{number}", None))
            for evicted in verdict.evicted if verdict is not None else []:
                write((f"claim/{evicted.gateway}/{evicted.claim_id}", None))
        elif action == "release" and state.claims:
            one = draw(st.sampled_from([one for claims in state.claims.values() for one in claims]))
            write((f"claim/{one.gateway}/{one.claim_id}", None))
        elif action == "beat":
            write((f"beat/{gateway}", {"beat": number}))
        elif action == "task":
            write((f"task/{gateway}/t", {}))
            if state.tasks.get("t") != gateway:
                write((f"task/{gateway}/t", None))
        elif action == "leave" and state.tasks.get("t") == gateway:
            write((f"task/{gateway}/t", None))
        elif action == "document":
            known = state.documents.get("d")
            version = 1 if known is None else known.version + draw(st.integers(0, 1))
            if known is None or known.by != gateway or version > known.version:
                write((f"document/{gateway}/d", {"version": version, "content": {"number": number}}))
        elif action == "begin anew" and gateway not in state.gateways:
            write((f"gateway/{gateway}", {"started": number}))
        elif action == "die" and gateway in state.gateways:
            lost = [one for claims in state.claims.values() for one in claims if one.gateway == gateway]
            write((f"silence/{gateway}/x", {"silent_since": state.gateways[gateway]}))
            for one in lost:
                write((f"claim/{gateway}/{one.claim_id}", None))
    return records


@given(histories())
def test_a_gateway_that_reads_a_compacted_topic_has_the_same_state(records: list[Record]) -> None:
    whole = SharedState()
    for offset, record in enumerate(records):
        whole.apply(offset, *record)
    last = {key: offset for offset, (key, _) in enumerate(records)}
    compacted = SharedState()
    for offset, (key, value) in enumerate(records):
        if last[key] == offset:
            compacted.apply(offset, key, value)
    assert (compacted.claims, compacted.tasks) == (whole.claims, whole.tasks)
    assert compacted.gateways.keys() == whole.gateways.keys()
    assert (compacted.version, compacted.definitions) == (whole.version, whole.definitions)
    for one in (compacted, whole):
        for document in one.documents.values():
            document.keys.clear()
    assert compacted.documents == whole.documents
