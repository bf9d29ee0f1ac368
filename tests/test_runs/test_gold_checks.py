"""What a check of gold records, and what it does not."""

from dataclasses import replace
from pathlib import Path

import pygit2
import pytest

from actors.languages.contract import Environment
from actors.loop import Context, carry_out
from actors.mining import pack_trees
from actors.repair.frozen_study import FrozenRepair
from actors.repair.grading import Grader
from actors.sandbox import open_sandbox
from ledger.errors import SafetyStop
from ledger.memory_log import MemoryLog
from schemas.commands import CheckGold
from schemas.events.grading import GoldChecked
from tests.projections.tiny_study import TinyStudy, of_type


def test_gold_that_the_machine_did_not_let_run_has_not_failed(
    environment: Environment, tmp_path: Path
) -> None:
    """A failed check at the end voids every cell of its task, and nothing takes that back."""
    tiny = TinyStudy(tmp_path / "study", MemoryLog())
    repository = pygit2.init_repository(str(tmp_path / "repository"), bare=True)
    test = repository.TreeBuilder()
    blob = repository.create_blob(b"def test_a(): pass\n")
    test.insert("test_a.py", blob, pygit2.enums.FileMode.BLOB)
    root = repository.TreeBuilder()
    root.insert("tests", test.write(), pygit2.enums.FileMode.TREE)
    tiny.base_tree = str(root.write())
    tiny.pack = pack_trees(Path(repository.path), [tiny.base_tree])
    for write in (tiny.create, tiny.mine, tiny.freeze):
        write()
    context = Context(tiny.log, tiny.artifacts, tiny.directory, "test")
    grader = Grader(FrozenRepair(context))
    grader._environments = {tiny.task().environment: environment}
    sandbox = open_sandbox("none", tmp_path, unsafe=True)
    order = CheckGold(task="R001-001", number=1)

    grader._sandbox = replace(sandbox, user=-5)
    with pytest.raises(SafetyStop, match="could not be tested here"):
        carry_out(context, order, {CheckGold: grader.check_gold})
    assert list(of_type(tiny.facts(), GoldChecked)) == []

    grader._sandbox = sandbox
    carry_out(context, order, {CheckGold: grader.check_gold})
    (checked,) = [f.event for f in tiny.facts() if isinstance(f.event, GoldChecked)]
    assert checked.passed
