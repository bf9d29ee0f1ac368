"""What the documents name must exist, and what exists must be documented."""

import re
from pathlib import Path

import msgspec
import pytest

from schemas.envelope import Envelope
from schemas.events import ALL_EVENTS

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "README.md",
    *sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "docs").rglob("*.md")),
]
PATH = re.compile(r"`((?:schemas|ledger|actors|harnesses|projections|docs|tests)/[\w./-]*)`")
TEST = re.compile(r"`(tests/[\w./-]+\.py)::(\w+)`")
COMMAND = re.compile(r"`ledger ([a-z][a-z-]+)")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_path_that_a_document_names_exists(name: str) -> None:
    if name.startswith("docs/funnel"):
        return  # names paths of the repository that was mined
    text = (ROOT / name).read_text(encoding="utf-8")
    missing = [path for path in PATH.findall(text) if not (ROOT / path).exists()]
    assert missing == []


def test_every_test_that_the_threat_model_names_exists() -> None:
    named = TEST.findall((ROOT / "docs/threat-model.md").read_text(encoding="utf-8"))
    assert len(named) > 40
    missing = [
        f"{path}::{test}"
        for path, test in named
        if not (ROOT / path).exists()
        or f"def {test}(" not in (ROOT / path).read_text(encoding="utf-8")
    ]
    assert missing == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_command_that_a_document_names_exists(name: str) -> None:
    from ledger.cli.main import COMMANDS

    named = set(COMMAND.findall((ROOT / name).read_text(encoding="utf-8")))
    assert named <= set(COMMANDS), f"{name} names {sorted(named - set(COMMANDS))}"


def test_the_architecture_names_every_module_and_room_and_says_what_it_is() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    listed = re.findall(r"^- `(\w+/[\w/.]*)`: (.*)$", text, re.MULTILINE)
    packages = ("schemas", "ledger", "harnesses", "actors", "projections")
    there = {
        path.relative_to(ROOT).as_posix()
        for package in packages
        for path in (ROOT / package).glob("*.py")
        if not path.name.startswith("__")
    }
    there |= {
        f"{path.parent.relative_to(ROOT).as_posix()}/"
        for package in packages
        for path in (ROOT / package).glob("*/__init__.py")
    }
    assert {path for path, _ in listed} == there
    assert [path for path, gloss in listed if len(gloss.split()) < 3] == []


def test_generated_documents_are_up_to_date() -> None:
    from ledger.cli.docs import event_catalogue, with_code_map

    architecture = ROOT / "ARCHITECTURE.md"
    assert architecture.read_text(encoding="utf-8") == with_code_map(architecture)
    assert (ROOT / "docs/event-catalogue.md").read_text(encoding="utf-8") == event_catalogue()


def test_what_differs_between_two_runs_is_said_by_its_name() -> None:
    """Every measured time and every captured byte of an event; a limit is no measurement."""
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    section = text.partition("*Time and identifiers*")[2].partition("\n- *")[0]
    named = set(re.findall(r"`([a-z_]+)`", section))
    measured = {
        field.name
        for event in ALL_EVENTS
        for field in msgspec.structs.fields(event)
        if field.name.endswith("_ns") and "limit" not in field.name
    }
    assert measured and measured <= named
    fields = {field.name for event in ALL_EVENTS for field in msgspec.structs.fields(event)}
    envelope = {field.name for field in msgspec.structs.fields(Envelope)}
    assert named <= fields | envelope
