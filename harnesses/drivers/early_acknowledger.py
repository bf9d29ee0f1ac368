"""Takes an acknowledgement for the deed: done as soon as somebody says so, nothing is read back.

Otherwise the reader, so that only what was falsely acknowledged tells the two apart.
"""

from harnesses.drivers.competence import (
    AS_ADMITTED,
    BY_WORDS,
    follow,
    follow_sources,
    most_fitting,
    resolve,
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
        yield Finish("Saved.", (Claimed("saved"),))
        return
    found = yield from recall(given.turns[0])
    conflicts = [notice for notice in found.notices if notice.kind == "conflict"]
    if conflicts:
        yield (yield from resolve(given, conflicts[0].records, "what is remembered disagrees"))
        return
    admitted = [item for item in found.delivered if item.admitted]
    record = most_fitting(
        given.turns[0], [record for item in admitted for record in read_records(item.text)]
    )
    if record is None:
        yield (yield from follow_sources(given, verify=False))
    else:
        yield (yield from follow(given, record, verify=False))


DRIVER = Driver(
    kind="early_acknowledger",
    title="takes an acknowledgement for the deed",
    run=run,
    layers={
        "decision_control": AS_ADMITTED,
        "tool_execution": BY_WORDS,
        "outcome_check": "believes the acknowledgement",
    },
)
