"""Service principals in their file, and the command that edits it."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidegate.azure.management import PrincipalError, PrincipalRole, Principals
from tidegate.azure.management.access.principals import FILE_NAME, FOLDER
from tidegate.cli import main


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
