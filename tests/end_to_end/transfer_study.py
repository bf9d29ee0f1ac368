"""A small transfer study on disk: one memory over two families, and what is declared later."""

import shutil
from pathlib import Path

from tests.end_to_end.rehearsal_study import StudyOnDisk, initialise

ONE_MEMORY = """format = 1
kind = "transfer"
id = "small"
title = "Does a memory carry a correction into the next session?"
question = "Is it retained, retrieved, kept in scope, resolved, decided on and acted on?"

[suite]
version = "1"
families = ["families/F101.yaml", "families/F106.yaml"]
distractors = [0]
declared_basis = "captured"

[[memories]]
id = "retrieval"
kind = "store"
policy = "retrieval"

[[drivers]]
id = "reader"
kind = "reader"

[[systems]]
memory = "retrieval"
driver = "reader"
"""
BY_PROJECT = """
[[memories]]
id = "by-project"
kind = "store"
policy = "retrieval"
query = "project"

[[systems]]
memory = "by-project"
driver = "reader"
"""
"""Another system, for an amendment: one layer differs from the first one."""


def begin_transfer_study(folder: Path, families: Path, toml: str = ONE_MEMORY) -> StudyOnDisk:
    """Not frozen yet; its two families come from the folder ``families``."""
    study = StudyOnDisk(folder / "study", folder / "config")
    (study.path / "families").mkdir(parents=True)
    for name in ("F101.yaml", "F106.yaml"):
        shutil.copy(families / name, study.path / "families")
    (study.path / "study.toml").write_text(toml)
    initialise(study)
    return study


def keep_one_family(toml: Path) -> None:
    """Of the template for a transfer study: one family, and no distractors."""
    text = toml.read_text()
    listed = text[text.index("families = [") : text.index("]\n", text.index("families = ["))]
    text = text.replace(listed, 'families = ["families/F106.yaml"')
    toml.write_text(text.replace("distractors = [0, 50]", "distractors = [0]"))
