"""What the documents say is there, is there; what is there, the documents say."""

import re
from pathlib import Path

import click
import pytest

from scripts.reference import (
    GENERATED,
    PART,
    PARTS,
    REFERENCE,
    SCHEMA,
    SECRETS,
    commands,
    filled,
    schema,
    secret_settings,
)
from tests.source import ROOT
from tests.test_layers import FOLDERS
from tidegate.connectors.model.metrics import COUNTERS

DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)(?:#[^)]*)?\)|src=\"([^\"]+)\"")


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: path.name)
def test_generated_parts_are_what_the_code_says(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text == filled(text), "run `make reference`"


def test_the_schema_of_the_job_file_is_what_the_code_says() -> None:
    assert SCHEMA.read_text(encoding="utf-8") == schema(), "run `make reference`"


def test_the_hub_knows_which_settings_are_secret() -> None:
    assert SECRETS.read_text(encoding="utf-8") == secret_settings(), "run `make reference`"


def test_every_generated_part_stands_in_a_document() -> None:
    found = {match["name"] for path in GENERATED for match in PART.finditer(path.read_text("utf-8"))}
    assert found == set(PARTS)


@pytest.mark.parametrize(("name", "command"), [(name, command) for name, command, _ in commands()])
def test_every_command_has_help_with_an_example(name: str, command: click.Command) -> None:
    assert command.help
    assert "Example:" in command.help
    assert all(parameter.help for parameter in command.params if isinstance(parameter, click.Option))


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    targets = [first or second for first, second in LINK.findall(path.read_text(encoding="utf-8"))]
    assert not [target for target in targets if not (path.parent / target).exists()]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_make_commands_in_documents_exist(path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    used = set(re.findall(r"(?:`|^)make ([a-z]+)", path.read_text(encoding="utf-8"), re.MULTILINE))
    assert used <= targets


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_tidegate_commands_in_documents_exist(path: Path) -> None:
    known = {name for name, _, _ in commands()}
    lines = re.findall(r"(?:^|`|\| )tidegate ((?:[a-z][a-z-]* ?){1,2})", path.read_text(encoding="utf-8"), re.MULTILINE)
    for words in (line.split() for line in lines):
        assert f"tidegate {words[0]}" in known, f"tidegate {' '.join(words)}"
        if words[0] == "job" and len(words) > 1:
            assert f"tidegate job {words[1]}" in known, f"tidegate {' '.join(words)}"


def test_every_metric_of_a_job_is_documented() -> None:
    text = (REFERENCE / "metrics.md").read_text(encoding="utf-8")
    assert not [name for name in COUNTERS if f"`{name}`" not in text]


def test_make_alone_names_every_command_that_is_meant_for_people() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert {"install", "demo", "test", "check", "bench"} <= set(re.findall(r"^([a-z]+):.*## ", makefile, re.MULTILINE))


def test_the_map_of_packages_has_every_folder_of_the_layers() -> None:
    text = (ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `([a-z_/]+)` \|", text, re.MULTILINE))
    assert rows == set(FOLDERS) - {"", "pyspark_tidegate"}


def test_the_folders_that_contributors_are_sent_to_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:src|tests|scripts|docs|packaging|\.ci|\.github)/[^` *]+)`", text)
    assert named
    assert not [path for path in named if not (ROOT / path).exists()]
