"""Every driver by its kind. A literal dictionary: what is not here does not exist."""

from collections.abc import Mapping
from hashlib import sha256
from importlib.resources import files

from harnesses.drivers import (
    chat,
    early_acknowledger,
    ignorer,
    liar,
    null,
    over_applier,
    reader,
)
from harnesses.drivers.contract import Driver

_AS_ADMITTED = "follows the admitted record that fits the prompt best; asks at a conflict"
_BY_SOURCES = "follows governing sources alone"
_BY_WORDS = "by words of names and their order"
_READS_BACK = "reads back what it changed, and repeats what does not show"
_COMPETENCE = ("drivers/contract.py", "drivers/competence.py", "drivers/tool_words.py")

DRIVERS: Mapping[str, Driver] = {
    driver.kind: driver
    for driver in (
        Driver(
            kind="reader",
            title="believes what the memory lets through",
            run=reader.run,
            source_files=("drivers/reader.py", *_COMPETENCE),
            layers={
                "decision_control": _AS_ADMITTED,
                "tool_execution": _BY_WORDS,
                "outcome_check": _READS_BACK,
            },
        ),
        Driver(
            kind="null",
            title="does nothing with the memory",
            run=null.run,
            source_files=("drivers/null.py", *_COMPETENCE),
            layers={
                "decision_control": _BY_SOURCES,
                "tool_execution": _BY_WORDS,
                "outcome_check": _READS_BACK,
            },
        ),
        Driver(
            kind="over_applier",
            title="applies the first record that it is shown",
            run=over_applier.run,
            source_files=("drivers/over_applier.py", *_COMPETENCE),
            layers={
                "decision_control": "follows the first record that is delivered",
                "tool_execution": _BY_WORDS,
                "outcome_check": _READS_BACK,
            },
        ),
        Driver(
            kind="ignorer",
            title="asks the memory and does not heed it",
            run=ignorer.run,
            source_files=("drivers/ignorer.py", *_COMPETENCE),
            layers={
                "decision_control": _BY_SOURCES,
                "tool_execution": _BY_WORDS,
                "outcome_check": _READS_BACK,
            },
        ),
        Driver(
            kind="liar",
            title="claims what it did not do",
            run=liar.run,
            source_files=("drivers/liar.py", "drivers/contract.py"),
            layers={
                "decision_control": "decides nothing",
                "tool_execution": "calls nothing",
                "outcome_check": "reads nothing",
            },
        ),
        Driver(
            kind="early_acknowledger",
            title="takes an acknowledgement for the deed",
            run=early_acknowledger.run,
            source_files=("drivers/early_acknowledger.py", *_COMPETENCE),
            layers={
                "decision_control": _AS_ADMITTED,
                "tool_execution": _BY_WORDS,
                "outcome_check": "believes the acknowledgement",
            },
        ),
        Driver(
            kind="chat",
            title="a model",
            run=chat.run,
            source_files=("drivers/chat.py", "drivers/contract.py", "contract.py"),
            prompt_files=("drivers/prompts/chat_system.md",),
        ),
    )
}


def find_driver(kind: str) -> Driver:
    """Raises LookupError that names the known ones."""
    if kind not in DRIVERS:
        raise LookupError(f"there is no driver {kind!r}; there are: {', '.join(sorted(DRIVERS))}")
    return DRIVERS[kind]


def system_prompt(driver: Driver) -> str:
    """What stands before the first message: the driver's prompt files; empty for most."""
    package = files("harnesses")
    return "\n".join(package.joinpath(name).read_text("utf-8") for name in driver.prompt_files)


def source_digests(driver: Driver) -> dict[str, str]:
    """Digest of every file whose change could change what the driver does, by its path."""
    package = files("harnesses")
    names = sorted((*driver.source_files, *driver.prompt_files))
    return {name: sha256(package.joinpath(name).read_bytes()).hexdigest() for name in names}
