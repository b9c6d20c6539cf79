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


ALIVE: tuple[Record, ...] = (("gateway/a", {"beat": 1}), ("gateway/b", {"beat": 1}))


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
    state, _ = after(*ALIVE, claim("a", 1, 3), ("gateway/a", {"silent_since": 0, "by": "b"}))
    assert (state.gateways, state.claims) == ({"b": 1}, {})
    state, _ = after(
        *ALIVE, claim("a", 1, 3), ("gateway/a", {"beat": 2}), ("gateway/a", {"silent_since": 0, "by": "b"})
    )
    assert state.gateways == {"a": 3, "b": 1}
    assert state.claims


def test_a_gateway_that_was_declared_dead_is_granted_nothing() -> None:
    _, verdicts = after(*ALIVE, ("gateway/a", {"silent_since": 0}), claim("a", 1))
    assert verdicts[-1] is not None
    assert verdicts[-1].refusal == "dead"


def test_unknown_records_are_passed_over() -> None:
    state, _ = after(("", None), ("other/x", {}), ("gateway/a", None), ("claim/a/1", None))
    assert state == SharedState()


@st.composite
def histories(draw: st.DrawFn) -> list[Record]:
    """Records as gateways write them: versions follow the state, and claims that lost are withdrawn."""
    state = SharedState()
    records: list[Record] = []

    def write(record: Record) -> Verdict | None:
        records.append(record)
        return state.apply(len(records) - 1, *record)

    for gateway in "abc":
        write((f"gateway/{gateway}", {"beat": 0}))
    for number in range(draw(st.integers(0, 25))):
        gateway = draw(st.sampled_from("abc"))
        action = draw(st.sampled_from(["define", "define late", "claim", "release", "beat", "die"]))
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
            write((f"gateway/{gateway}", {"beat": number}))
        elif action == "die" and gateway in state.gateways:
            lost = [one for claims in state.claims.values() for one in claims if one.gateway == gateway]
            write((f"gateway/{gateway}", {"silent_since": state.gateways[gateway]}))
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
        # a gateway's first sign of life comes before its claims, and the compactor keeps only the last one
        if last[key] == offset or key.startswith("gateway/"):
            compacted.apply(offset, key, value)
    assert compacted.claims == whole.claims
    assert (compacted.version, compacted.definitions) == (whole.version, whole.definitions)
