"""``ledger corrections``: records of what somebody was told to do differently, and their life."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ledger.cli.command_group import CommandGroup
from ledger.cli.options import (
    json_option,
    print_json,
    print_table,
    printable,
    reading,
    study_option,
    writing,
)
from ledger.errors import Refused, Usage

if TYPE_CHECKING:
    from projections.transfer.corrections import Corrections
    from schemas.commands import Command
    from schemas.transfer.correction import Correction

F = TypeVar("F", bound=Callable[..., Any])


def by_option(function: F) -> F:
    return click.option("--by", "who", metavar="NAME", required=True, help="Who does this.")(
        function
    )


def maybe_by_option(function: F) -> F:
    return click.option(
        "--by",
        "who",
        metavar="NAME",
        default="",
        help="Who does this; needed, and another than the proposer, where consequence is high.",
    )(function)


def reason_option(function: F) -> F:
    return click.option("--reason", required=True, help="Why, for everyone who looks later.")(
        function
    )


@click.group("corrections", cls=CommandGroup)
def command() -> None:
    """Add corrections and move them through their life; every step is a record in the ledger.

    In this order: `add` proposes a correction, `approve` lets it be used, `ledger transfer new`
    makes a family of it; in the end it is superseded, expired, disputed and resolved, or withdrawn.
    How to write one: docs/corrections-and-families.md.
    """


@command.command("add")
@study_option
@json_option
@by_option
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
def add(study: Path, as_json: bool, who: str, files: tuple[Path, ...]) -> None:
    """Propose the records of YAML files: all of them, or none.

    A file holds one record, a list of records, or a mapping with the key `records`. What looks like
    a secret is refused before anything reaches the ledger.
    """
    from actors.families.yaml_file import BadFile
    from actors.transfer.corrections import read_records
    from schemas.commands import AddCorrections

    records: list[Correction] = []
    for file in files:
        try:
            records += read_records(file.read_bytes(), str(file))
        except FileNotFoundError:
            raise Usage(f"there is no file {file}") from None
        except IsADirectoryError:
            raise Usage(f"{file} is a folder; name the file") from None
        except BadFile as error:
            raise Refused(str(error)) from None
    added = [record.correction_id for record in records]
    _record(study, AddCorrections(records=tuple(records), proposer=who))
    _say(as_json, added, "proposed", "`ledger corrections approve ID` lets it be used")


@command.command("list")
@study_option
@json_option
@click.option("--at", "position", type=click.IntRange(min=0), help="As known at this record (seq).")
@click.option(
    "--now", metavar="TIME", help="As it holds at this instant, like 2026-07-01T09:00:00Z."
)
def list_(study: Path, as_json: bool, position: int | None, now: str | None) -> None:
    """List every correction with its state.

    Two times are kept apart: `--at SEQ` shows what was known when that record was the last, `--now
    TIME` what holds at that instant. Without `--now` the state is the recorded one.
    """
    instant = _instant(now) if now is not None else None
    known = _corrections(study, position)
    rows = [
        {
            "correction_id": row.correction_id,
            "class": row.class_,
            "consequence": row.consequence,
            "state": _lifecycle(known, row.correction_id, instant) if instant else row.state,
            "valid_from": row.valid_from,
            "ends": row.ends,
            "supersedes": row.supersedes,
        }
        for row in known.correction_rows()
    ]
    if as_json:
        print_json({"at": position, "now": now, "corrections": rows})
        return
    print_table(
        rows,
        ["correction_id", "class", "consequence", "state", "valid_from", "ends", "supersedes"],
    )


@command.command("show")
@study_option
@json_option
@click.option("--at", "position", type=click.IntRange(min=0), help="As known at this record (seq).")
@click.argument("correction")
def show(study: Path, as_json: bool, position: int | None, correction: str) -> None:
    """Show one correction: the record, who did what to it, and what it is linked with."""
    import msgspec

    known = _corrections(study, position)
    standing = known.standings.get(correction)
    if standing is None:
        there = ", ".join(sorted(known.standings)) or "none"
        raise Usage(f"there is no correction {correction!r}; there are: {there}")
    history = [row.as_dict() for row in known.transitions if row.correction_id == correction]
    if as_json:
        print_json({"standing": msgspec.to_builtins(standing), "transitions": history})
        return
    for key, value in msgspec.to_builtins(standing.record).items():
        shown = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else value
        if isinstance(value, dict):
            shown = " · ".join(f"{name} {_plain(part)}" for name, part in value.items())
        print(f"{key:<28}{printable(shown) if shown is not None else '–'}")
    print(f"{'state':<28}{standing.state}")
    for label, names in (
        ("superseded by", standing.superseded_by),
        ("disputed with", standing.disputed_with),
        ("settled with", standing.settled_with),
    ):
        if names:
            print(f"{label:<28}{', '.join(names)}")
    print()
    print_table(history, ["seq", "transition", "by", "other", "reason"])


@command.command("approve")
@study_option
@json_option
@by_option
@click.option("--condition", default="", help="Under which it may be kept (`conditional` only).")
@click.option(
    "--keep-residual-scope",
    is_flag=True,
    help="Outside this narrower record's scope, what it supersedes goes on.",
)
@click.argument("correction")
def approve(
    study: Path, as_json: bool, who: str, condition: str, keep_residual_scope: bool, correction: str
) -> None:
    """Let a proposed record be used; high consequence needs somebody other than its proposer."""
    from schemas.commands import ApproveCorrection

    order = ApproveCorrection(
        correction_id=_identifier(correction),
        approver=who,
        condition=condition,
        keep_residual_scope=keep_residual_scope,
    )
    _record(study, order)
    _say(as_json, [correction], "approved")


@command.command("supersede")
@study_option
@json_option
@maybe_by_option
@reason_option
@click.option("--with", "successor", required=True, help="The approved record in its place.")
@click.argument("correction")
def supersede(
    study: Path, as_json: bool, who: str, reason: str, successor: str, correction: str
) -> None:
    """Put an approved record in the place of another one that does not name it itself."""
    from schemas.commands import SupersedeCorrection

    order = SupersedeCorrection(
        correction_id=_identifier(correction),
        by=_identifier(successor),
        reason=reason,
        approver=who,
    )
    _record(study, order)
    _say(as_json, [correction], "superseded")


@command.command("expire")
@study_option
@json_option
@maybe_by_option
@reason_option
@click.option("--at", "instant", required=True, help="First instant at which it no longer holds.")
@click.argument("correction")
def expire(
    study: Path, as_json: bool, who: str, reason: str, instant: str, correction: str
) -> None:
    """End an approved record's validity earlier than it says; it can never be prolonged."""
    from schemas.commands import ExpireCorrection

    order = ExpireCorrection(
        correction_id=_identifier(correction), at=_instant(instant), reason=reason, approver=who
    )
    _record(study, order)
    _say(as_json, [correction], "expired")


@command.command("dispute")
@study_option
@json_option
@reason_option
@click.option("--against", required=True, help="The record that it contradicts.")
@click.argument("correction")
def dispute(study: Path, as_json: bool, reason: str, against: str, correction: str) -> None:
    """Record that two approved records contradict each other and nobody has decided."""
    from schemas.commands import DisputeCorrection

    order = DisputeCorrection(
        correction_id=_identifier(correction), against=_identifier(against), reason=reason
    )
    _record(study, order)
    _say(as_json, [correction, against], "disputed")


@command.command("resolve")
@study_option
@json_option
@by_option
@reason_option
@click.argument("winner")
@click.argument("losers", nargs=-1, required=True)
def resolve(
    study: Path, as_json: bool, who: str, reason: str, winner: str, losers: tuple[str, ...]
) -> None:
    """Decide a dispute: WINNER stays active, the LOSERS become superseded."""
    from schemas.commands import ResolveDispute

    order = ResolveDispute(
        winner=_identifier(winner),
        losers=tuple(map(_identifier, losers)),
        approver=who,
        reason=reason,
    )
    _record(study, order)
    _say(as_json, [winner, *losers], "resolved")


@command.command("withdraw")
@study_option
@json_option
@maybe_by_option
@reason_option
@click.argument("correction")
def withdraw(study: Path, as_json: bool, who: str, reason: str, correction: str) -> None:
    """Take a record back: it is never eligible again, and it stays in the ledger."""
    from schemas.commands import WithdrawCorrection

    _record(
        study,
        WithdrawCorrection(correction_id=_identifier(correction), reason=reason, approver=who),
    )
    _say(as_json, [correction], "withdrawn")


def _record(study: Path, order: "Command") -> None:
    """Carry the command out; what its types do not allow is the caller's mistake."""
    import msgspec

    from actors.transfer.corrections import carry_out
    from schemas.validation_messages import explain

    try:
        msgspec.convert(msgspec.to_builtins(order), type(order))
    except msgspec.ValidationError as error:
        raise Usage(explain(error, msgspec.to_builtins(order), type(order))) from None
    with writing(study) as context:
        carry_out(context, order)


def _identifier(text: str) -> str:
    from schemas.identifiers import check_identifier

    try:
        return check_identifier(text, "the correction")
    except ValueError as error:
        raise Usage(str(error)) from None


def _instant(text: str) -> str:
    import re

    from schemas.transfer.correction_rules import instant_problem

    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", text) or instant_problem(text):
        raise Usage(f"{text!r} is no instant: write it in UTC, like 2026-07-01T09:00:00Z")
    return text


def _corrections(study: Path, position: int | None) -> "Corrections":
    from projections.transfer.corrections import corrections_at

    with reading(study) as context:
        return corrections_at(context.log_facts(), position)


def _lifecycle(known: "Corrections", name: str, now: str) -> str:
    """In a session that falls into the record's own scope, from a store of all that is known."""
    from schemas.transfer.correction import Session
    from schemas.transfer.lifecycle import effective_lifecycle

    scope = known.standings[name].record.scope
    session = Session(
        principal=scope.principal,
        project=scope.project,
        task_class=scope.task_classes[0],
        now=now,
    )
    found = effective_lifecycle(name, known.standings, list(known.standings), session)
    early = found == "active" and known.standings[name].record.valid_from > session.now
    return "active, not yet valid" if early else found


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _say(as_json: bool, corrections: list[str], became: str, next_step: str = "") -> None:
    if as_json:
        print_json({"corrections": corrections, "became": became})
        return
    print(f"{became}: {', '.join(map(printable, corrections))}")
    if next_step:
        print(f"next: {next_step}")
