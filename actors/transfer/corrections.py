"""Corrections in the ledger: adding records and moving them through their lifecycle.

proposed → approved → superseded | expired | disputed → resolved; withdrawn from anywhere. Each
handler reads what the log knows, refuses what a rule forbids and says why, and appends one fact in
the stream of each record that it is about. Secret-shaped content is refused *before* the command is
requested (:func:`carry_out`): a request is a record too, and no record can be taken back.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from actors import loop
from actors.families.defaults import records_with_defaults
from actors.families.yaml_file import Document, read_yaml
from actors.loop import Context, Done, Handlers, Work
from ledger.errors import Refused
from ledger.log import NewEvent
from projections.transfer.corrections import Corrections, corrections_at
from schemas.commands import (
    AddCorrections,
    ApproveCorrection,
    Command,
    DisputeCorrection,
    ExpireCorrection,
    ResolveDispute,
    SupersedeCorrection,
    WithdrawCorrection,
)
from schemas.events.correction import (
    CorrectionApproved,
    CorrectionDisputed,
    CorrectionExpired,
    CorrectionProposed,
    CorrectionSuperseded,
    CorrectionWithdrawn,
    DisputeResolved,
)
from schemas.identifiers import correction_stream
from schemas.look_alikes import same_person, scripts
from schemas.secret_shapes import secrets_in
from schemas.transfer.correction import Correction
from schemas.transfer.correction_rules import instant_problem, record_problems
from schemas.transfer.lifecycle import Standing, disagree, successors

# --- files ---------------------------------------------------------------------------------------


def read_records(content: bytes, name: str) -> tuple[Correction, ...]:
    """The records of a YAML file: one record, a list of them, or a mapping with the key `records`
    (a family file is one).

    Raises :class:`~actors.families.yaml_file.BadFile`. Secret-shaped content is refused first, by
    its key and kind, so that no later message can repeat it.
    """
    document = read_yaml(content, name)
    value, prefix = document.value, ""
    if isinstance(value, dict) and "records" in value:
        value, prefix = value["records"], "records"
    records = value if isinstance(value, list) else [value]
    place = "{prefix}[{index}]" if isinstance(value, list) else "{prefix}"
    for index, record in enumerate(records):
        for key, kind in secrets_in(record):
            at = ".".join(filter(None, (place.format(prefix=prefix, index=index), key)))
            raise document.refuse(
                at,
                f"looks like it holds {kind}. Nothing was recorded. Put a pointer in its place; if "
                "it is a real one, change it where it is used",
            )
    if not records:
        raise document.refuse("", "there is no record in it")
    if prefix and all(isinstance(record, dict) for record in records):
        records = records_with_defaults(records)
    return tuple(
        _converted(document, record, place.format(prefix=prefix, index=index))
        for index, record in enumerate(records)
    )


def _converted(document: Document, record: Any, place: str) -> Correction:
    lines = {
        key.removeprefix(place).lstrip("."): line
        for key, line in document.lines.items()
        if key.startswith(place)
    }
    return Document(document.name, record, lines).convert(Correction)


# --- carrying out --------------------------------------------------------------------------------


def carry_out(context: Context, command: Command) -> str:
    """Carry a command on corrections out in this process; returns its id.

    Raises Refused, and then nothing of secret-shaped content has reached the log.
    """
    for key, kind in secrets_in(msgspec.to_builtins(command)):
        raise Refused(
            f"`{key}` looks like it holds {kind}: nothing was recorded. Put a pointer in its "
            "place; if it is a real one, change it where it is used"
        )
    return loop.carry_out(context, command, HANDLERS)


def add_corrections(work: Work) -> Done:
    """Propose records, those that are replaced before those that replace them."""
    command: AddCorrections = work.command
    known = _known(work)
    records = {name: standing.record for name, standing in known.standings.items()}
    problems: list[str] = []
    for record in command.records:
        name = record.correction_id
        if name in records:
            same = records[name] == record
            problems.append(
                f"{name}: "
                + (
                    "is there already, as it is written here: leave it out"
                    if same
                    else "is there already with other content: a record is never rewritten; give "
                    "this one a new id, and let it supersede the other"
                )
            )
        records.setdefault(name, record)
    names = [record.correction_id for record in command.records]
    problems += [
        f"{name}: duplicate id in what is added"
        for index, name in enumerate(names)
        if name in names[:index]
    ]
    if not problems:
        for record in command.records:
            problems += [
                f"{record.correction_id}: `{field}`: {why}"
                for field, why in record_problems(record, records)
            ]
            predecessor = known.standings.get(record.supersedes or "")
            if predecessor is not None and predecessor.state == "withdrawn":
                problems.append(
                    f"{record.correction_id}: `supersedes`: {record.supersedes} was withdrawn, "
                    "there is nothing to replace: null"
                )
    if problems:
        raise Refused("; ".join(problems))
    return Done(
        [
            NewEvent(
                correction_stream(record.correction_id),
                CorrectionProposed(record=record, proposer=command.proposer),
            )
            for record in _predecessors_first(command.records)
        ]
    )


def _predecessors_first(records: Sequence[Correction]) -> list[Correction]:
    by_id = {record.correction_id: record for record in records}
    ordered: dict[str, Correction] = {}
    for record in records:
        chain: list[Correction] = []
        step: Correction | None = record
        while step is not None and step.correction_id not in ordered:
            chain.append(step)
            step = by_id.get(step.supersedes or "")
        for found in reversed(chain):
            ordered[found.correction_id] = found
    return list(ordered.values())


def approve_correction(work: Work) -> Done:
    """High consequence needs a second person, and `conditional` a named condition."""
    command: ApproveCorrection = work.command
    known = _known(work)
    standing = _standing(known, command.correction_id)
    record = standing.record
    if standing.state != "proposed":
        raise Refused(f"{record.correction_id} is {standing.state} already: only what is proposed")
    _second_person(known, [record.correction_id], command.approver, "approves it")
    if record.persistence_allowed == "conditional" and not command.condition.strip():
        raise Refused(
            f"{record.correction_id} says `persistence_allowed: conditional`: name the condition "
            "under which it may be kept (--condition)"
        )
    if command.condition and record.persistence_allowed != "conditional":
        raise Refused(
            f"{record.correction_id} says `persistence_allowed: "
            f"{str(record.persistence_allowed).lower()}`: a condition belongs to `conditional`"
        )
    if command.keep_residual_scope and record.supersedes is None:
        raise Refused(
            f"{record.correction_id} supersedes nothing, so there is no residual scope to keep"
        )
    if record.supersedes is not None:
        predecessor = _standing(known, record.supersedes)
        if predecessor.state == "withdrawn":
            raise Refused(
                f"{record.supersedes}, which {record.correction_id} supersedes, was withdrawn: "
                "propose a record that supersedes nothing"
            )
        if predecessor.state == "proposed":
            raise Refused(
                f"{record.supersedes}, which {record.correction_id} supersedes, is not approved: "
                "approve or withdraw it first"
            )
    event = CorrectionApproved(
        correction_id=record.correction_id,
        approver=command.approver,
        condition=command.condition,
        keep_residual_scope=command.keep_residual_scope,
    )
    return _about([record.correction_id], event)


def supersede_correction(work: Work) -> Done:
    command: SupersedeCorrection = work.command
    known = _known(work)
    old = _approved(known, command.correction_id, "superseded")
    new = _approved(known, command.by, "put in another's place")
    if command.by == command.correction_id:
        raise Refused("a record cannot replace itself")
    if command.by in successors(command.correction_id, known.standings):
        raise Refused(f"{command.by} replaces {command.correction_id} already")
    if not old.record.scope.overlaps(new.record.scope):
        raise Refused(
            f"the scopes of {command.by} and {command.correction_id} have no session in common, "
            "so the one cannot replace the other"
        )
    if command.correction_id in _all_successors(command.by, known):
        raise Refused(
            f"a cycle: {command.correction_id} already stands in the place of {command.by}"
        )
    _second_person(known, [command.correction_id, command.by], command.approver, "replaces it")
    event = CorrectionSuperseded(
        correction_id=command.correction_id,
        by=command.by,
        reason=command.reason,
        approver=command.approver,
    )
    return _about([command.correction_id], event)


def expire_correction(work: Work) -> Done:
    command: ExpireCorrection = work.command
    known = _known(work)
    standing = _approved(known, command.correction_id, "expired")
    if instant_problem(command.at):
        raise Refused(instant_problem(command.at))
    if command.at <= standing.record.valid_from:
        raise Refused(
            f"{command.at} is not after valid_from {standing.record.valid_from}: the record would "
            "never have held; `ledger corrections withdraw` says that"
        )
    end = standing.end()
    if end is not None and command.at >= end:
        raise Refused(
            f"{command.correction_id} ends at {end} already: its validity can be shortened, and "
            "prolonged only by a record that supersedes it"
        )
    _second_person(known, [command.correction_id], command.approver, "ends it")
    event = CorrectionExpired(
        correction_id=command.correction_id,
        at=command.at,
        reason=command.reason,
        approver=command.approver,
    )
    return _about([command.correction_id], event)


def dispute_correction(work: Work) -> Done:
    """The dispute stands in the streams of both records."""
    command: DisputeCorrection = work.command
    known = _known(work)
    one = _approved(known, command.correction_id, "disputed")
    other = _approved(known, command.against, "disputed")
    if command.against == command.correction_id:
        raise Refused("a record cannot contradict itself: withdraw it, or propose another one")
    if command.against in one.disputed_with:
        raise Refused(f"{command.correction_id} and {command.against} are disputed already")
    if not one.record.scope.overlaps(other.record.scope):
        raise Refused(
            f"the scopes of {command.correction_id} and {command.against} have no session in "
            "common, so they do not contradict each other"
        )
    for old, new in (
        (command.correction_id, command.against),
        (command.against, command.correction_id),
    ):
        if new in _all_successors(old, known):
            raise Refused(f"{new} replaces {old}: what is replaced contradicts nothing")
    return Done(
        [
            NewEvent(
                correction_stream(name),
                CorrectionDisputed(correction_id=name, against=against, reason=command.reason),
            )
            for name, against in (
                (command.correction_id, command.against),
                (command.against, command.correction_id),
            )
        ]
    )


def resolve_dispute(work: Work) -> Done:
    command: ResolveDispute = work.command
    known = _known(work)
    winner = _approved(known, command.winner, "the winner")
    if len(set(command.losers)) != len(command.losers) or command.winner in command.losers:
        raise Refused("winner and losers are different records, each named once")
    for name in command.losers:
        loser = _approved(known, name, "a loser")
        seen = name not in winner.settled_with and disagree(winner.record, loser.record)
        if name not in winner.disputed_with and not seen:
            raise Refused(
                f"{command.winner} and {name} are not disputed and do not contradict each other: "
                "nothing is to be decided between them"
            )
        if name in _all_successors(command.winner, known):
            raise Refused(f"{name} replaces {command.winner}: it cannot lose against it")
    _second_person(known, [command.winner, *command.losers], command.approver, "decides for it")
    event = DisputeResolved(
        winner=command.winner,
        losers=command.losers,
        approver=command.approver,
        reason=command.reason,
    )
    return _about([command.winner, *command.losers], event)


def withdraw_correction(work: Work) -> Done:
    command: WithdrawCorrection = work.command
    known = _known(work)
    standing = _standing(known, command.correction_id)
    if standing.state == "withdrawn":
        raise Refused(f"{command.correction_id} was withdrawn already")
    if standing.state != "proposed":  # what nobody has approved may be taken back alone
        _second_person(known, [command.correction_id], command.approver, "takes it back")
    event = CorrectionWithdrawn(
        correction_id=command.correction_id, reason=command.reason, approver=command.approver
    )
    return _about([command.correction_id], event)


# --- reading the log -----------------------------------------------------------------------------


def _known(work: Work) -> Corrections:
    return corrections_at(work.context.log_facts())


def _standing(known: Corrections, name: str) -> Standing:
    standing = known.standings.get(name)
    if standing is None:
        there = ", ".join(sorted(known.standings)) or "none yet"
        raise Refused(f"the ledger knows no correction {name}; there are: {there}")
    return standing


def _approved(known: Corrections, name: str, what: str) -> Standing:
    standing = _standing(known, name)
    if standing.state != "approved":
        raise Refused(f"{name} is {standing.state}: only an approved record can be {what}")
    return standing


def _all_successors(name: str, known: Corrections) -> set[str]:
    found: set[str] = set()
    waiting = [name]
    while waiting:
        for successor in successors(waiting.pop(), known.standings):
            if successor not in found:
                found.add(successor)
                waiting.append(successor)
    return found


def _second_person(known: Corrections, names: Sequence[str], who: str, what: str) -> None:
    """Refuse where one of the records has high consequence, and ``who`` is nobody, cannot be told
    from its proposer, or is written in letters of several scripts."""
    for name in names:
        if not _has_high_consequence(name, known):
            continue
        proposer = known.proposers[name]
        why = f"{name} has high consequence and was proposed by {proposer}: somebody else {what}"
        if not who.strip():
            raise Refused(f"{why}; name who does, with --by")
        if same_person(who, proposer):
            raise Refused(why)
        for person in (who, proposer):
            if len(scripts(person)) > 1:
                raise Refused(
                    f"{why}, and a name that mixes {' and '.join(sorted(scripts(person))).lower()} "
                    "letters tells nobody who it is: a name is written in one script"
                )


def _has_high_consequence(name: str, known: Corrections) -> bool:
    """Of a record, or of one that it stands in the place of: a successor is not weighed less."""
    waiting, seen = [name], {name}
    while waiting:
        step = waiting.pop()
        standing = known.standings.get(step)
        if standing is None:
            continue
        if standing.record.consequence == "high":
            return True
        replaced = {other for other, its in known.standings.items() if step in its.superseded_by}
        replaced |= {standing.record.supersedes} if standing.record.supersedes else set()
        waiting += sorted(replaced - seen)
        seen |= replaced
    return False


def _about(names: Iterable[str], event: Any) -> Done:
    return Done([NewEvent(correction_stream(name), event) for name in names])


HANDLERS: Handlers = {
    AddCorrections: add_corrections,
    ApproveCorrection: approve_correction,
    SupersedeCorrection: supersede_correction,
    ExpireCorrection: expire_correction,
    DisputeCorrection: dispute_correction,
    ResolveDispute: resolve_dispute,
    WithdrawCorrection: withdraw_correction,
}
