"""A transfer study with one family whose driver is a model, on disk."""

from pathlib import Path

from tests.end_to_end.rehearsal_study import StudyOnDisk, initialise

FAMILY = "F106"
CASES = 7
TOML = """
format = 1
kind = "transfer"
id = "a-model-acts"
title = "A model as the driver"
question = "Does a model that is given the corrections that apply follow them?"
documents = ["protocol.md"]

[suite]
version = "0.1.0"
families = ["families/F106.yaml"]
trials = 1
distractors = [0]
declared_basis = "captured"
session_s = 3600
max_turns = {turns}

[[memories]]
id = "full"
kind = "store"
policy = "full"

[[drivers]]
id = "model"
kind = "chat"
model = "M1"

[[systems]]
memory = "full"
driver = "model"

[[models]]
id = "M1"
key = "{key}"
variant = "{key}"
quantization = "{quantization}"
format = "gguf"
context_length = 2048
max_context_length = 8192
reasoning = "off"
files = {{ {files} }}

[models.generation]
max_completion_tokens = 96
temperature = {temperature}

[server]
{server}
"""


def begin(
    folder: Path,
    *,
    server: str,
    key: str,
    quantization: str = "",
    files: str = "",
    turns: int = 3,
    temperature: float = 0.0,
) -> StudyOnDisk:
    """Make the study, and freeze it."""
    study = StudyOnDisk(folder / "study", folder / "config")
    initialise(study, "--template", "transfer")
    text = TOML.format(
        server=server,
        key=key,
        quantization=quantization,
        files=files,
        turns=turns,
        temperature=temperature,
    )
    (study.path / "study.toml").write_text(text)
    frozen = study.ledger_command("freeze", "--json")
    assert frozen.status == 0, frozen.err
    assert frozen.json["cells"] == CASES
    return study
