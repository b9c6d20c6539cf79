"""Service principals in their file, and the command that edits it."""

from __future__ import annotations

import json
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidegate.azure.management import PrincipalError, PrincipalRole, Principals
from tidegate.azure.management.access import principals as principals_module
from tidegate.azure.management.access.principals import FILE_NAME, FOLDER
from tidegate.cli import main
from tidegate.durable_files import DirectoryLock


def test_a_principal_from_its_creation_to_its_end(tmp_path: Path) -> None:
    principals = Principals(tmp_path)
    secret = principals.create("Pipeline", PrincipalRole.CONTRIBUTOR)
    assert len(secret) >= 32
    found = principals.verify("pipeline", secret)
    assert found is not None
    assert (found.name, found.role) == ("Pipeline", PrincipalRole.CONTRIBUTOR)
    assert principals.verify("pipeline", secret + "x") is None
    assert principals.verify("nobody", secret) is None
    changed = principals.reset("pipeline", "another secret of mine")
    assert principals.verify("pipeline", secret) is None
    assert principals.verify("pipeline", changed) is not None
    principals.delete("PIPELINE")
    assert principals.all() == []


def test_the_file_holds_no_secret_and_is_for_its_owner_only(tmp_path: Path) -> None:
    secret = Principals(tmp_path).create("one", PrincipalRole.READER)
    path = tmp_path / FOLDER / FILE_NAME
    assert secret not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_change_by_another_process_is_seen(tmp_path: Path) -> None:
    running, command = Principals(tmp_path), Principals(tmp_path)
    assert running.all() == []
    command.create("one", PrincipalRole.READER)
    assert [one.name for one in running.all()] == ["one"]
    command.assign("one", PrincipalRole.OWNER)
    found = running.find("ONE")
    assert found is not None
    assert found.role is PrincipalRole.OWNER


@pytest.mark.parametrize("name", ["", "-", "a/b", "a b", "x" * 129, "é"])
def test_a_name_that_is_none(tmp_path: Path, name: str) -> None:
    with pytest.raises(PrincipalError, match="is no name"):
        Principals(tmp_path).create(name, PrincipalRole.READER)


def test_what_cannot_be_done_says_what_to_do(tmp_path: Path) -> None:
    principals = Principals(tmp_path)
    principals.create("one", PrincipalRole.READER)
    with pytest.raises(PrincipalError, match="principal reset"):
        principals.create("ONE", PrincipalRole.READER)
    with pytest.raises(PrincipalError, match="principal list"):
        principals.reset("two")
    with pytest.raises(PrincipalError, match="at least 16"):
        principals.reset("one", "short")
    (tmp_path / FOLDER / FILE_NAME).write_text("{")
    with pytest.raises(PrincipalError, match="damaged"):
        principals.all()


def test_the_command(tmp_path: Path) -> None:
    def run(*arguments: str) -> str:
        result = CliRunner().invoke(main, ["principal", "--data", str(tmp_path), *arguments])
        assert result.exit_code == 0, result.output
        return result.output

    made = json.loads(run("create", "pipeline", "--role", "reader", "-o", "json"))
    assert Principals(tmp_path).verify("pipeline", made["clientSecret"]) is not None
    given = run("create", "other", "--secret", "a secret of my own")
    assert "a secret of my own" not in given
    run("assign", "pipeline", "--role", "owner")
    listed = json.loads(run("list", "-o", "json"))
    assert [(one["clientId"], one["role"]) for one in listed] == [("other", "contributor"), ("pipeline", "owner")]
    assert json.loads(run("reset", "pipeline", "-o", "json"))["clientSecret"] != made["clientSecret"]
    run("delete", "pipeline")
    assert "pipeline" not in run("list")


def test_principals_that_are_created_at_the_same_time_are_all_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(principals_module, "_verifier", lambda secret, salt: secret)  # it takes longer than a change
    names = [f"p{number}" for number in range(24)]
    with ThreadPoolExecutor(8) as pool:
        # Each as a process of its own would.
        list(pool.map(lambda name: Principals(tmp_path).create(name, PrincipalRole.READER, "s" * 16), names))
    assert {one.name for one in Principals(tmp_path).all()} == set(names)


def test_a_change_of_principals_that_takes_too_long_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(principals_module, "_LONGEST_WAIT_S", 0.0)
    lock = DirectoryLock(tmp_path / FOLDER, principals_module._LOCK_NAME)
    with pytest.raises(PrincipalError, match=r"are being changed by another process: .* is in use by process"):
        Principals(tmp_path).create("p", PrincipalRole.READER)
    lock.release()
    Principals(tmp_path).create("p", PrincipalRole.READER)


def test_a_change_where_there_is_no_principal_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(PrincipalError, match="there is no principal 'p'"):
        Principals(tmp_path / "typo").delete("p")
    assert not (tmp_path / "typo").exists()
