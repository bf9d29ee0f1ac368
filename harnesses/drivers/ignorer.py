"""Asks the memory and does not heed the answer; keeps nothing that it is told to keep."""

from harnesses.drivers.competence import (
    BY_SOURCES,
    BY_WORDS,
    READS_BACK,
    follow_sources,
)
from harnesses.drivers.contract import Driver, Finish, SessionInput, Steps, recall


def run(given: SessionInput) -> Steps:
    if given.purpose == "write":
        yield Finish("Understood.")
        return
    yield from recall(given.turns[0])
    yield (yield from follow_sources(given, verify=True))


DRIVER = Driver(
    kind="ignorer",
    title="asks the memory and does not heed it",
    run=run,
    layers={
        "decision_control": BY_SOURCES,
        "tool_execution": BY_WORDS,
        "outcome_check": READS_BACK,
    },
)
