"""The rules of Microsoft's CheckpointStore, over SQLite and PostgreSQL alike."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from azure.eventhub import CheckpointStore
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.patience import PATIENCE_S
from tests.profiles import example_count
from tidegate.checkpoints import CheckpointError, PostgresCheckpointStore, SqliteCheckpointStore
from tidegate.checkpoints.database import CheckpointDatabase
from tidegate.checkpoints.postgres import PostgresCheckpoints

GROUP = ("localhost", "tolls", "$Default")
Open = Callable[[], CheckpointDatabase]


def ownership(
    partition: str, owner: str, etag: str | None = None, group: tuple[str, str, str] = GROUP
) -> dict[str, Any]:
    namespace, hub, consumer_group = group
    claim = {
        "fully_qualified_namespace": namespace,
        "eventhub_name": hub,
        "consumer_group": consumer_group,
        "partition_id": partition,
        "owner_id": owner,
    }
    return claim if etag is None else {**claim, "etag": etag}


def checkpoint(partition: str, sequence_number: int, group: tuple[str, str, str] = GROUP) -> dict[str, Any]:
    place = ownership(partition, "", group=group)
    del place["owner_id"]
    return {**place, "offset": str(10 * sequence_number), "sequence_number": sequence_number}


def test_the_stores_are_microsofts_kind_of_store(tmp_path: Path) -> None:
    assert issubclass(SqliteCheckpointStore, CheckpointStore)
    assert issubclass(PostgresCheckpointStore, CheckpointStore)


def test_nothing_is_there_at_first(store: CheckpointDatabase) -> None:
    assert store.list_ownership(*GROUP) == []
    assert store.list_checkpoints(*GROUP) == []
    assert store.positions() == []


def test_a_first_claim_wins_and_a_second_does_not(store: CheckpointDatabase) -> None:
    began = time.time()
    (won,) = store.claim_ownership([ownership("0", "a")])
    claimed = time.time()
    assert store.claim_ownership([ownership("0", "b")]) == []
    assert (won["owner_id"], won["partition_id"]) == ("a", "0")
    assert began - 0.01 <= won["last_modified_time"] <= claimed + 0.01
    (listed,) = store.list_ownership(*GROUP)
    assert {**listed, "last_modified_time": 0} == {**won, "last_modified_time": 0}
    assert began - 0.01 <= listed["last_modified_time"] <= claimed + 0.01


def test_an_ownership_changes_hands_by_its_etag(store: CheckpointDatabase) -> None:
    (first,) = store.claim_ownership([ownership("0", "a")])
    (stolen,) = store.claim_ownership([{**first, "owner_id": "b"}])
    assert stolen["etag"] != first["etag"]
    assert store.claim_ownership([first]) == []
    assert [listed["owner_id"] for listed in store.list_ownership(*GROUP)] == ["b"]
    (released,) = store.claim_ownership([{**stolen, "owner_id": ""}])
    assert [listed["owner_id"] for listed in store.list_ownership(*GROUP)] == [""]
    assert len(store.claim_ownership([{**released, "owner_id": "c"}])) == 1


def test_a_renewal_makes_an_ownership_young(store: CheckpointDatabase) -> None:
    (first,) = store.claim_ownership([ownership("0", "a")])
    time.sleep(0.05)
    (renewed,) = store.claim_ownership([first])
    (listed,) = store.list_ownership(*GROUP)
    assert listed["last_modified_time"] >= first["last_modified_time"] + 0.04
    assert listed["etag"] == renewed["etag"]


def test_some_of_several_claims_may_win(store: CheckpointDatabase) -> None:
    (first,) = store.claim_ownership([ownership("1", "a")])
    won = store.claim_ownership(iter([ownership("0", "b"), ownership("1", "b"), ownership("2", "b")]))
    assert sorted(claim["partition_id"] for claim in won) == ["0", "2"]
    assert store.claim_ownership([ownership("9", "b", etag="of a row that is not there")]) == []
    assert store.claim_ownership([]) == []
    assert first["etag"] in {listed["etag"] for listed in store.list_ownership(*GROUP)}


def test_names_compare_without_case_and_come_back_as_asked(store: CheckpointDatabase) -> None:
    store.claim_ownership([ownership("0", "a", group=("LOCALHOST", "Tolls", "$default"))])
    store.update_checkpoint(checkpoint("0", 5, group=("LOCALHOST", "Tolls", "$default")))
    (listed,) = store.list_ownership(*GROUP)
    assert (listed["fully_qualified_namespace"], listed["eventhub_name"], listed["consumer_group"]) == GROUP
    assert store.list_checkpoints(*GROUP) == [checkpoint("0", 5)]
    assert store.list_ownership("localhost", "tolls", "other") == []
    assert store.list_checkpoints("localhost", "toll", "$Default") == []


def test_a_checkpoint_is_where_it_was_put_last(store: CheckpointDatabase) -> None:
    store.update_checkpoint(checkpoint("0", 5))
    store.update_checkpoint(checkpoint("1", 7))
    store.update_checkpoint(checkpoint("0", 3))
    listed = sorted(store.list_checkpoints(*GROUP), key=lambda item: item["partition_id"])
    assert listed == [checkpoint("0", 3), checkpoint("1", 7)]


def test_events_are_taken_once(store: CheckpointDatabase) -> None:
    assert store.advance_checkpoint(checkpoint("0", 5), 0)
    assert not store.advance_checkpoint(checkpoint("0", 5), 0)
    assert not store.advance_checkpoint(checkpoint("0", 4), 4)
    assert not store.advance_checkpoint(checkpoint("0", 9), 5), "event 5 is another consumer's"
    assert store.advance_checkpoint(checkpoint("0", 9), 6)
    assert store.list_checkpoints(*GROUP) == [checkpoint("0", 9)]


def test_a_group_can_be_forgotten(store: CheckpointDatabase) -> None:
    other = ("localhost", "tolls", "other")
    for group in (GROUP, other):
        store.claim_ownership([ownership("0", "a", group=group)])
        store.update_checkpoint(checkpoint("0", 5, group=group))
    store.forget(*GROUP)
    assert store.list_ownership(*GROUP) == store.list_checkpoints(*GROUP) == []
    assert len(store.list_ownership(*other)) == len(store.list_checkpoints(*other)) == 1


def test_positions_are_in_order_with_their_owners(store: CheckpointDatabase) -> None:
    began = time.monotonic()
    for partition in ("10", "9", "0"):
        store.update_checkpoint(checkpoint(partition, int(partition)))
    store.update_checkpoint(checkpoint("0", 1, group=("localhost", "alpha", "g")))
    store.claim_ownership([ownership("9", "me")])
    found = store.positions()
    assert [(row.eventhub_name, row.consumer_group, row.partition_id, row.sequence_number) for row in found] == [
        ("alpha", "g", "0", 1),
        ("tolls", "$default", "0", 0),
        ("tolls", "$default", "9", 9),
        ("tolls", "$default", "10", 10),
    ]
    assert [row.owner_id for row in found] == ["", "", "me", ""]
    assert all(0 <= row.age_s < time.monotonic() - began + 0.1 for row in found)


@pytest.mark.parametrize("attempt", range(5))
def test_of_many_first_claims_one_wins(open_another: Open, attempt: int) -> None:
    stores = [open_another() for _ in range(8)]
    barrier = threading.Barrier(len(stores))

    def claim(number: int) -> list[str]:
        barrier.wait()
        mine = stores[number].claim_ownership([ownership(str(partition), f"owner{number}") for partition in range(4)])
        return [str(won["partition_id"]) for won in mine]

    with ThreadPoolExecutor(len(stores)) as pool:
        won = [partition for mine in pool.map(claim, range(len(stores))) for partition in mine]
    assert sorted(won) == ["0", "1", "2", "3"]


def test_of_many_who_steal_one_wins(open_another: Open) -> None:
    stores = [open_another() for _ in range(6)]
    claims = stores[0].claim_ownership([ownership(str(partition), "former") for partition in range(4)])
    barrier = threading.Barrier(len(stores))

    def steal(number: int) -> list[str]:
        barrier.wait()
        # Each in another order: who takes rows in another order than others must not make them wait for each other.
        order = claims[number % 4 :] + claims[: number % 4]
        return [
            str(won["partition_id"])
            for won in stores[number].claim_ownership({**c, "owner_id": str(number)} for c in order)
        ]

    with ThreadPoolExecutor(len(stores)) as pool:
        won = [partition for mine in pool.map(steal, range(len(stores))) for partition in mine]
    assert sorted(won) == ["0", "1", "2", "3"]


def test_of_many_who_advance_one_is_told_so_for_each_event(open_another: Open) -> None:
    stores = [open_another() for _ in range(4)]

    def advance(store: CheckpointDatabase) -> list[int]:
        return [number for number in range(20) if store.advance_checkpoint(checkpoint("0", number), number)]

    with ThreadPoolExecutor(len(stores)) as pool:
        taken = [number for mine in pool.map(advance, stores) for number in mine]
    assert len(taken) == len(set(taken))
    assert max(taken) == 19


CLAIM = """
import sys
from tidegate.checkpoints.store import open_store
from tests.checkpoints.test_database import ownership
store = open_store(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
claims = [ownership(str(partition), sys.argv[2]) for partition in range(8)]
print(",".join(claim["partition_id"] for claim in store.claim_ownership(claims)), flush=True)
"""


@pytest.mark.slow
def test_of_several_processes_one_wins(location: str) -> None:
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CLAIM, location, f"owner{number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    outputs = [child.communicate("\n", timeout=PATIENCE_S)[0].strip() for child in children]
    assert sorted(filter(None, ",".join(outputs).split(","))) == [str(number) for number in range(8)]
    assert all(child.returncode == 0 for child in children)


moves = st.lists(
    st.tuples(st.sampled_from(["claim", "old etag", "no etag"]), st.sampled_from("01"), st.sampled_from("ab")),
    max_size=20,
)


@settings(max_examples=example_count(20), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moves)
def test_ownership_is_as_a_dictionary_would_have_it(
    store: CheckpointDatabase, moves: list[tuple[str, str, str]]
) -> None:
    store.forget(*GROUP)
    model: dict[str, dict[str, Any]] = {}
    former: dict[str, str] = {}
    for kind, partition, owner in moves:
        there = model.get(partition)
        etag = {"claim": there and there["etag"], "old etag": former.get(partition, "never"), "no etag": None}[kind]
        fits = etag is None if there is None else etag == there["etag"]
        won = store.claim_ownership([ownership(partition, owner, etag)])
        assert bool(won) == fits
        if won:
            if there is not None:
                former[partition] = there["etag"]
            model[partition] = won[0]
    listed = {row["partition_id"]: (row["owner_id"], row["etag"]) for row in store.list_ownership(*GROUP)}
    assert listed == {partition: (row["owner_id"], row["etag"]) for partition, row in model.items()}


def test_what_the_database_says_is_passed_on(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"nowhere/checkpoints\.db: unable to open"):
        SqliteCheckpointStore(tmp_path / "nowhere" / "checkpoints.db")
    (tmp_path / "text.db").write_text("not a database, but long enough to be looked at as if it were one" * 20)
    with pytest.raises(CheckpointError, match="not a database"):
        SqliteCheckpointStore(tmp_path / "text.db")


def test_a_store_that_was_closed_says_so(store: CheckpointDatabase) -> None:
    store.close()
    store.close()
    with pytest.raises(CheckpointError, match="closed"):
        store.list_ownership(*GROUP)


@pytest.mark.sdk
def test_postgres_that_is_not_there_is_named_without_the_password() -> None:
    with pytest.raises(CheckpointError) as failure:
        PostgresCheckpointStore("postgresql://me:secret@127.0.0.1:9/none")
    assert "127.0.0.1" in str(failure.value)
    assert "secret" not in str(failure.value)


@pytest.mark.sdk
def test_who_only_looks_makes_no_tables(postgres_server: str) -> None:
    elsewhere = f"{postgres_server}&options=-csearch_path%3Dpg_temp"
    with pytest.raises(CheckpointError, match="no checkpoint store"):
        PostgresCheckpoints(elsewhere, create=False)
    PostgresCheckpoints(postgres_server).close()
    PostgresCheckpoints(postgres_server, create=False).close()


@pytest.mark.sdk
def test_a_broken_connection_is_made_anew(postgres_server: str) -> None:
    store = PostgresCheckpointStore(postgres_server)
    other = PostgresCheckpointStore(postgres_server)
    ((pid,),) = store.query("SELECT pg_backend_pid()")
    other.query("SELECT pg_terminate_backend(?)", (pid,))
    with pytest.raises(CheckpointError):
        store.positions()
    assert store.list_ownership("localhost", "nothing", "here") == []
    store.close()
    other.close()


def test_checkpoints_are_translated_once(store: CheckpointDatabase) -> None:
    for partition, number, offset in (("0", 5, "20"), ("1", 150, "600"), ("2", 7, "28")):
        store.update_checkpoint({**checkpoint(partition, number), "offset": offset})
    store.update_checkpoint({**checkpoint("0", 150, group=("localhost", "other", "$default")), "offset": "600"})
    shifts = {("tolls", "0"): 100, ("tolls", "1"): 100, ("tolls", "2"): 0}
    found = [("0", 0, "0"), ("1", 50, "50"), ("2", 7, "7")]
    for expected in (3, 0):
        assert store.shift(shifts) == expected
        rows = store.list_checkpoints(*GROUP)
        assert sorted((row["partition_id"], row["sequence_number"], row["offset"]) for row in rows) == found
    (other,) = store.list_checkpoints("localhost", "other", "$default")
    assert (other["sequence_number"], other["offset"]) == (150, "600")
    store.update_checkpoint({**checkpoint("1", 60), "offset": "60"})  # by a processor at a gateway
    assert store.shift(shifts) == 0
