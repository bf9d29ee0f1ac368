"""The rule-based reader: does what an honest agent does that believes what its memory lets through.

It asks the memory with the prompt, follows the admitted record that fits the prompt best, minds
what the memory says of conflict and lapse, declares before it changes anything, and reads back what
it changed. It does not check scope, validity or supersession itself: that is the memory's part, and
what a memory lets through shows in what the reader does.
"""

from harnesses.drivers.competence import (
    AS_ADMITTED,
    BY_WORDS,
    READS_BACK,
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
        claims: list[Claimed] = []
        for turn in given.turns:
            kept = yield from remember(turn)
            claims += [Claimed("saved")] if kept.acknowledged else []
        yield Finish("Kept." if claims else "Not kept.", tuple(claims[:1]))
        return
    found = yield from recall(given.turns[0])
    conflicts = [notice for notice in found.notices if notice.kind == "conflict"]
    if conflicts:
        yield (yield from resolve(given, conflicts[0].records, "what is remembered disagrees"))
        return
    records = [
        record for item in found.delivered if item.admitted for record in read_records(item.text)
    ]
    record = most_fitting(given.turns[0], records)
    if record is None:
        yield (yield from follow_sources(given, verify=True))
    else:
        yield (yield from follow(given, record, verify=True))


DRIVER = Driver(
    kind="reader",
    title="believes what the memory lets through",
    run=run,
    layers={
        "decision_control": AS_ADMITTED,
        "tool_execution": BY_WORDS,
        "outcome_check": READS_BACK,
    },
)
