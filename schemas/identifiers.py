"""Names of things in the log: cells, streams and the rules for every identifier.

A cell is ``{unit, arm, agent, repeat}`` for both kinds of study (repair: task, treatment, model,
seed; transfer: case, memory, driver, trial). Its stream is ``cell/<unit>/<arm>/<agent>/<repeat>``.
"""

import re
import unicodedata
from typing import Annotated

from msgspec import Meta

from schemas.base import END, Value

_PATTERN = rf"^[A-Za-z0-9][A-Za-z0-9._-]{{0,63}}{END}"
IDENTIFIER_RULE = "1 to 64 characters of A-Z a-z 0-9 . _ - and the first one a letter or a digit"

Identifier = Annotated[str, Meta(pattern=_PATTERN, description=IDENTIFIER_RULE)]


def check_identifier(text: str, what: str) -> str:
    """Return ``text`` unchanged, or raise ValueError naming ``what`` and the rule it breaks."""
    if unicodedata.normalize("NFC", text) != text or not re.match(_PATTERN, text):
        raise ValueError(f"{what} {text!r} is not an identifier: {IDENTIFIER_RULE}")
    return text


class CellId(Value, order=True):
    """One planned cell. ``str()`` gives ``unit/arm/agent/repeat``, the form used everywhere."""

    unit: Annotated[Identifier, Meta(description="task (repair) or case (transfer)")]
    arm: Annotated[Identifier, Meta(description="treatment or memory")]
    agent: Annotated[Identifier, Meta(description="model or driver")]
    repeat: Annotated[int, Meta(ge=0, description="seed or trial, from 0")]

    def __str__(self) -> str:
        return f"{self.unit}/{self.arm}/{self.agent}/{self.repeat}"

    @property
    def stream(self) -> str:
        return f"cell/{self}"


def parse_cell_id(text: str) -> CellId:
    """Read ``unit/arm/agent/repeat`` (a leading ``cell/`` is allowed).

    Raises ValueError that shows the form and an example.
    """
    parts = text.removeprefix("cell/").split("/")
    if len(parts) != 4 or not re.fullmatch(r"[0-9]{1,6}", parts[3]):
        raise ValueError(
            f"{text!r} is not a cell: write UNIT/ARM/AGENT/REPEAT, for example R001-003/H000/M002/0"
        )
    unit, arm, agent = (check_identifier(part, "the cell's part") for part in parts[:3])
    return CellId(unit=unit, arm=arm, agent=agent, repeat=int(parts[3]))


LEDGER_STREAM = "ledger"
STUDY_STREAM = "study"
RUN_STREAM = "runs"


def role_stream(role: str) -> str:
    """Where the requests for a role stand."""
    return f"role/{role}"


def command_stream(command_id: str) -> str:
    """Where the one record stands that ends a command."""
    return f"command/{command_id}"


def repository_stream(repository: str) -> str:
    return f"repository/{repository}"


def task_stream(task: str) -> str:
    return f"task/{task}"


def server_stream(server: str) -> str:
    return f"server/{server}"


def correction_stream(correction_id: str) -> str:
    return f"correction/{correction_id}"
