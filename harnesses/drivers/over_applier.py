"""Applies the first record that it is shown: whatever its scope, whatever the memory says of it.

Neither that a record was not admitted, nor a conflict, nor another subject keeps it from acting.
"""

from harnesses.drivers.competence import (
    BY_WORDS,
    READS_BACK,
    follow,
    follow_sources,
)
from harnesses.drivers.contract import (
    Claimed,
    Driver,
    Finish,
    SessionInput,
    Steps,
    recall,
    remember,
)
from schemas.transfer.rendering import read_records


def run(given: SessionInput) -> Steps:
    if given.purpose == "write":
        for turn in given.turns:
            yield from remember(turn)
        yield Finish("Kept.", (Claimed("saved"),))
        return
    found = yield from recall(given.turns[0])
    for item in found.delivered:
        for record in read_records(item.text):
            yield (yield from follow(given, record, verify=True))
            return
    yield (yield from follow_sources(given, verify=True))


DRIVER = Driver(
    kind="over_applier",
    title="applies the first record that it is shown",
    run=run,
    layers={
        "decision_control": "follows the first record that is delivered",
        "tool_execution": BY_WORDS,
        "outcome_check": READS_BACK,
    },
)
