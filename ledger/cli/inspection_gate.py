"""The one gate in front of outcomes: written down first, shown afterwards.

It guards what this program shows. What was opened with another program it cannot know.
"""

import os
import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from actors.loop import Context
from actors.study_kinds import kind_by_types
from ledger.checkpoint import (
    check_signature,
    origin_of_first_record,
    parse_checkpoint,
    split_notes,
)
from ledger.cli.options import reading, writing
from ledger.codec import decode_event
from ledger.errors import Integrity, Refused, Unfinished
from ledger.last_seen import known_ledger, recall
from ledger.record_source import Damaged, read_checkpoint_log
from ledger.signing_keys import VerifierKey, config_home, load_signing_key
from ledger.study_directory import IMPORTED_MARK, StudyDirectory
from schemas.base import Event
from schemas.commands import AskModel
from schemas.envelope import Envelope
from schemas.events import EVENT_TYPES
from schemas.events.command import CommandRequested
from schemas.identifiers import STUDY_STREAM, role_stream

if TYPE_CHECKING:
    from projections.progress import Progress


def pass_gate(
    study: Path,
    reason: str | None,
    what: str,
    progress: "Progress | None" = None,
    *,
    announce: bool = True,
) -> None:
    """Commit ``outcomes.inspected`` with the reason, or raise Refused with the rule.

    Called once a command, before it shows ``what``. Somebody else's ledger, imported or not
    writable, keeps no record of who looked: the rule is applied all the same, and a line on
    standard error says that nothing was recorded. In one that the user's own key has signed the
    record is never left out. With ``announce`` another line says so where the study is a rehearsal.
    ``progress``: where the caller has folded it already.
    """
    from actors.loop import carry_out
    from actors.study.orders import HANDLERS
    from projections.fold import fold
    from projections.progress import Progress
    from schemas.commands import InspectOutcomes

    if reason is None or not reason.strip():
        raise Refused(
            f'{what} shows outcomes. Say why with --reason "…": the ledger records that they were '
            "inspected, and every later amendment is exploratory"
        )
    recorded = may_append(study)
    if recorded:
        with writing(study) as context:
            carry_out(context, InspectOutcomes(reason=reason.strip()), HANDLERS)
    with reading(study) as context:
        if not recorded and signed_by_this_user(context):
            raise Refused(_why_unrecorded(context.directory))
        if progress is None:
            progress = fold(Progress(context.artifacts.get), context.log_facts())
    if progress.study is None:
        raise Refused("the study is not frozen: there are no outcomes")
    if progress.study.grading.when == "end" and not progress.completed:
        raise Refused('this study grades at the end ([grading] when = "end") and is not complete')
    if not recorded:
        print(
            "ledger: this copy of the ledger is never written; the inspection is not recorded",
            file=sys.stderr,
        )
    if announce and progress.simulated:
        print("SIMULATED: a rehearsal, not evidence", file=sys.stderr)


def outcome_test(context: Context) -> Callable[[Envelope], bool]:
    """A function that says whether a record is shown behind the gate only: by its type, and by
    where it stands if the kind of study says so. A type that this version does not know may carry
    anything."""

    @cache
    def shown_of_a_cell() -> Collection[type[Event]] | None:
        types = {stored.envelope().type for stored in context.log.read_stream(STUDY_STREAM)}
        kind = kind_by_types(types)
        return kind.shown_of_a_cell if kind is not None else ()

    def carries_outcome(envelope: Envelope) -> bool:
        kind = EVENT_TYPES.get(envelope.type)
        if kind is None or kind.CARRIES_OUTCOME:
            return True
        if envelope.stream == role_stream("model_server"):
            # A request repeats the conversation so far: deliveries, calls, answers.
            event = decode_event(envelope)
            asks = isinstance(event, CommandRequested) and isinstance(event.command, AskModel)
            return asks and shown_of_a_cell() is not None
        if not envelope.stream.startswith("cell/"):
            return False
        shown = shown_of_a_cell()
        return shown is not None and kind not in shown

    return carries_outcome


def may_append(study: Path) -> bool:
    """False for an imported ledger and for one that this user cannot write."""
    directory = StudyDirectory(study)
    return not directory.is_imported and all(
        os.access(path, os.W_OK) for path in (directory.ledger, directory.var)
    )


def signed_by_this_user(context: Context) -> bool:
    """Whether the user's own key has signed this ledger: a checkpoint of it lies here, or the
    user's verifier remembers one."""
    home = config_home()
    own = load_signing_key(home)
    first = next(context.log.read(0, 1), None)
    if own is None or first is None:
        return False
    key = own.verifier(origin_of_first_record(first.record))
    known = known_ledger(home, context.directory.ledger)
    if recall(home, key) is not None or (known is not None and known.key == str(key)):
        return True
    notes = [note for _, note in context.log.checkpoints()]
    with suppress(Damaged, Unfinished):
        notes += split_notes(read_checkpoint_log(context.directory.checkpoints))[0]
    return any(_is_valid(note, key) for note in notes)


def _is_valid(note: bytes, key: VerifierKey) -> bool:
    try:
        return check_signature(parse_checkpoint(note), key) == "valid"
    except Integrity:
        return False


def _why_unrecorded(directory: StudyDirectory) -> str:
    if directory.is_imported:
        mark = directory.ledger.with_name(IMPORTED_MARK)
        return (
            "this ledger is marked as imported, and your own key has signed it: look at outcomes "
            f"in the study itself, where that is recorded. If this is the study, remove {mark}"
        )
    return (
        "this ledger cannot be written, and your own key has signed it: outcomes are shown when "
        f"that can be recorded. Make {directory.var} and what is in it writable"
    )
