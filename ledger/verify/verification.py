"""Verification: read every value again and say what is proven, and what is not.

Nothing is believed: leaves, links, columns, canonical form, stream versions, artifacts and the
Merkle root are computed from the stored bytes, the root is compared with every signed checkpoint,
and the newest that matches says up to where the ledger is anchored. Reading goes on behind every
fault. There is no command that repairs a chain.

The checks stand in tables: ``RECORD_CHECKS`` (objects that see every page of records once), those
of the store (``RecordSource.own_checks``) and ``FINAL_CHECKS`` (functions that see the whole
afterwards). Taking one out of its table switches exactly that check off.

Memory: one page of records, and one number for each stream.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from ledger.chain import leaf_hash
from ledger.checkpoint import (
    Checkpoint,
    check_signature,
    is_cut_off,
    known_origin,
    origin_of_first_record,
    parse_checkpoint,
    split_notes,
)
from ledger.errors import Integrity, LedgerError, Unfinished
from ledger.evidence import Evidence, Note
from ledger.finding import Finding, shown
from ledger.last_seen import (
    LastSeen,
    known_ledger,
    live_ledgers,
    recall,
    remember,
    remember_ledger,
)
from ledger.merkle import Frontier
from ledger.record_page import Page, read_record
from ledger.record_source import Damaged, ForeignTable, RecordSource
from ledger.signing_keys import VerifierKey, config_home, load_signing_key, parse_verifier_key
from ledger.stores import open_records, records_at
from ledger.verify.anchors import check_receipt
from ledger.verify.final_checks import (
    check_checkpoint_rows,
    check_forks,
    check_length,
    check_signatures,
)
from ledger.verify.record_checks import (
    CanonicalForm,
    Clock,
    KnownTypes,
    Links,
    NamedArtifacts,
    Positions,
    RecordCheck,
    Roots,
    StoredLeaves,
    StreamVersions,
    Subject,
    Target,
)
from schemas.counted import counted
from schemas.events.ledger import CheckpointAnchored

MAX_FINDINGS = 10_000

RECORD_CHECKS: tuple[type[RecordCheck], ...] = (
    Positions,
    Links,
    StoredLeaves,
    CanonicalForm,
    StreamVersions,
    KnownTypes,
    Clock,
    NamedArtifacts,
    Roots,
)

FINAL_CHECKS: tuple[Callable[[Evidence], Iterator[Finding]], ...] = (
    check_signatures,
    check_checkpoint_rows,
    check_forks,
    check_length,
)

Status = Literal["verified", "violated", "unanchored", "unfinished"]
EXIT_STATUS: dict[Status, int] = {"verified": 0, "violated": 3, "unanchored": 4, "unfinished": 5}

Requirement = Literal["self", "git", "time", "copy"]
OUTSIDE: tuple[Requirement, ...] = ("git", "time", "copy")


class Anchor(msgspec.Struct, frozen=True):
    """A checkpoint whose root is the root of the records that were read."""

    kind: Literal["self", "git", "time", "copy", "last_seen"]
    where: str
    size: int
    root: str
    age: int
    """Records after it."""
    counts: bool
    """True where it satisfies what was required."""
    detail: str


class VerifiedHead(msgspec.Struct, frozen=True):
    seq: int
    leaf: str
    root: str | None
    """None where records are missing, so that there is no root."""


class Report(msgspec.Struct, frozen=True):
    """What ``ledger verify-chain --json`` prints."""

    path: str
    """The file that was judged."""
    ledger: str
    """Its origin, NAME/UUID, as record 0 says; empty where that cannot be read."""
    status: Status
    events: int
    unsigned: int
    """Records at the end that no checkpoint covers whose root matches."""
    head: VerifiedHead | None
    anchors: tuple[Anchor, ...]
    findings: tuple[Finding, ...]
    assurance: str


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What to demand. ``home`` is the user's configuration folder."""

    key: str | None = None
    """Verifier string of the key that must have signed; None: the one that was configured for this
    path, or else the user's own."""
    require: Requirement | None = None
    """Kind of anchor that counts; None: `self` for a ledger (or an export of one) that the user's
    own key signed, any outside one for an imported ledger and for every other."""
    max_anchor_age: int | None = None
    """Most records that may follow the newest anchor that counts."""
    against: tuple[bytes, ...] = ()
    """Signed notes that the caller has kept; one that matches is a `copy`."""
    time_authority: Path | None = None
    """Certificate (PEM) of a time-stamping authority that the caller trusts."""
    git_clone: Path | None = None
    """A repository in which to look for pushed notes whose remote is not on this machine."""
    check_artifacts: bool = True
    last_seen: bool = True
    """Compare with, and add to, what this user's verifier remembers."""
    home: Path | None = None


def exit_status(report: Report) -> int:
    """0 only when everything was read, nothing was violated and an anchor that counts matches."""
    return EXIT_STATUS[report.status]


def report_json(report: Report) -> bytes:
    """The report as the documented JSON object."""
    return msgspec.json.encode(report)


def verify(path: Path, artifacts: Path | None = None, options: Options | None = None) -> Report:
    """Verify what stands at ``path``: a study directory, its ``var/``, a database, an exported
    bundle, or a file of JSON lines. ``artifacts`` is their folder where it is not beside.

    Faults are findings of the report, never exceptions. Raises Usage where there is nothing to
    verify or an option cannot be used, Unfinished where it cannot be opened, Refused where the
    user's own key file is open to others. Never writes to the ledger.
    """
    options = options or Options()
    home = options.home or config_home()
    live = False
    while True:
        try:
            source = open_records(path, artifacts, live)
        except Damaged as error:
            finding = Finding("DB_CORRUPT", None, "a ledger", shown(str(error)))
            return Report(
                str(records_at(path)),
                "",
                "violated",
                0,
                0,
                None,
                (),
                (finding,),
                "Nothing could be read.",
            )
        try:
            return _Verification(source, options, home).run()
        except _WriterCame:
            live = True
        finally:
            source.close()


def _root_of(path: Path, size: int) -> bytes | None:
    """The root over the first ``size`` records of a log of this user's; None where they cannot be
    read or are not all there."""
    frontier = Frontier()
    try:
        source = open_records(path)
    except (Damaged, LedgerError):
        return None
    try:
        end = source.end()
        for stretch in source.stretches(None if end is None else min(end, size)):
            for row in stretch.rows:
                if row[0] != frontier.size or not isinstance(row[1], bytes):
                    return None
                frontier.extend([leaf_hash(row[1])])
    except (Damaged, LedgerError):
        return None
    finally:
        source.close()
    return frontier.root() if frontier.size == size else None


def _unchecked(note: Note) -> str:
    return (
        f"its root matches, its signature was not checked: no key is known (it says "
        f"{note.key_ids}), give its verifier string with `ledger verify-chain --key`"
    )


class _WriterCame(Exception):
    """A database at rest was written to while it was read without locks."""


class _Verification:
    """One run over one source."""

    def __init__(self, source: RecordSource, options: Options, home: Path) -> None:
        self.source = source
        self.options = options
        self.home = home
        self.findings: list[Finding] = []
        self.unlisted = 0
        self.violated = False
        self.unfinished = ""
        self.events = 0
        self.following = 0
        self.head: tuple[int, bytes] | None = None
        self.older: LastSeen | None = None
        """What was seen of this ledger, where this is a copy with fewer records."""
        self.own_log: Path | None = None
        """The log of this user whose beginning an older copy is."""

    def run(self) -> Report:
        source, options = self.source, self.options
        try:
            published = source.published()
        except Damaged as error:
            published = b""
            self._add([Finding("SIG_BAD", None, "a file of signed notes", shown(str(error)))])
        rows = source.checkpoint_rows()
        anchored = self._anchored_events()
        self.key, self.key_origin, self.live = self._configured_key(
            [*(note for _, note in rows), *split_notes(published)[0], *options.against]
        )
        notes = self._notes(rows, published, anchored)
        seen = recall(self.home, self.key) if self.key and options.last_seen else None
        targets = {
            id(note): Target(note.checkpoint.size, note.checkpoint.root, mismatch, note.where)
            for note, mismatch in notes
            if note.checkpoint is not None and note.signature in ("valid", "unchecked")
        }
        last_seen = None
        if seen is not None:
            origin = "last seen by this user"
            last_seen = Target(seen.size, bytes.fromhex(seen.root), "FORK", origin)
        known = [*targets.values(), *([last_seen] if last_seen else [])]
        checks_artifacts = options.check_artifacts and source.artifacts is not None
        subject = Subject(
            source,
            source.artifacts if checks_artifacts else None,
            sorted(known, key=lambda target: target.size),
        )
        root = None
        try:
            end = source.end()
            source.begin_own_checks(end)
            root = self._read(subject, end)
        except ForeignTable as error:
            self.unfinished = str(error)  # what the check of the schema finds
        except Damaged as error:
            self._add([Finding("DB_CORRUPT", self.following, "records", shown(str(error)))])
            self.unfinished = str(error)
        except Unfinished as error:
            self.unfinished = str(error)
        if seen is not None and not self.unfinished and seen.size > self.following:
            self._look_at_older_copy(seen, root)
        evidence = Evidence(
            key=self.key,
            notes=[note for note, _ in notes],
            rows=rows,
            seen=seen.size if seen is not None and self.older is None else 0,
            events=self.events,
            following=self.following,
            complete=not self.unfinished,
        )
        for own_check in source.own_checks():
            self._add(own_check(source, evidence))
        for check in FINAL_CHECKS:
            self._add(check(evidence))
        if source.changed_at_rest():
            raise _WriterCame
        anchors = self._anchors(notes, targets, anchored, last_seen)
        return self._report(anchors, root, checks_artifacts)

    def _look_at_older_copy(self, seen: LastSeen, root: bytes | None) -> None:
        """Fewer records than this user has seen: where they are written that is a truncation, in a
        copy it is not, provided that they are the first ones of the log. This user's own log says
        so, where there is one."""
        assert self.key is not None
        if self.live:
            return
        self.older = seen
        if root is None:
            return
        for path in live_ledgers(self.home, self.key):
            own = _root_of(path, self.following)
            if own == root:
                self.own_log = path
                return
            if own is not None:
                expected = f"root {own.hex()} of {self.following} records (this user's own log)"
                self._add([Finding("FORK", self.following - 1, expected, f"root {root.hex()}")])
                return

    def _anchored_events(self) -> list[CheckpointAnchored]:
        events = []
        for record in self.source.find(CheckpointAnchored.TYPE):
            event = read_record(record)[1]
            if isinstance(event, CheckpointAnchored):
                events.append(event)
        return events

    def _configured_key(self, notes: Sequence[bytes]) -> tuple[VerifierKey | None, str, bool]:
        """(the key that must have signed, how it came to be the one, is it the key of a log that is
        written here)"""
        known = known_ledger(self.home, self.source.path)
        configured = parse_verifier_key(known.key) if known is not None else None
        if self.options.key is not None:
            given = parse_verifier_key(self.options.key)
            return given, "given", known is not None and known.live and given == configured
        if known is not None:
            return configured, "configured for this path", known.live
        own = load_signing_key(self.home)
        first = self.source.first()
        if own is None or first is None:
            return None, "", False
        try:
            candidate = own.verifier(origin_of_first_record(first))
        except Integrity:
            return None, "", False
        for note in notes:
            try:
                if check_signature(parse_checkpoint(note), candidate) == "valid":
                    return candidate, "the user's own; the origin is the ledger's word", False
            except Integrity:
                continue
        return None, "", False

    def _whose(self) -> str:
        """The key that must have signed, for a reader who holds it, or took another's word."""
        own = None
        with suppress(LedgerError):  # a file that cannot be used makes no key one's own
            own = load_signing_key(self.home)
        if own is not None and self.key is not None and own.public_key == self.key.public_key:
            return "your own key"
        return "which is not your own"

    def _origin(self) -> str:
        """The origin under which the ledger's own notes are signed; "" where nothing tells."""
        return self.key.name if self.key is not None else self._origin_of_ledger()

    def _origin_of_ledger(self) -> str:
        return known_origin(self.source.first())

    def _notes(
        self,
        rows: Sequence[tuple[int, bytes]],
        published: bytes,
        anchored: Sequence[CheckpointAnchored],
    ) -> list[tuple[Note, Literal["ROOT_MISMATCH", "FORK"]]]:
        """Every different note once, with the finding that a mismatch of its root is.

        A mismatch with the ledger's own notes shows a change; one with a note that was kept outside
        shows that two histories were signed.
        """
        found: dict[bytes, tuple[Note, Literal["ROOT_MISMATCH", "FORK"]]] = {}

        def add(note: bytes, where: str, mismatch: Literal["ROOT_MISMATCH", "FORK"]) -> None:
            if note not in found:
                found[note] = (self._read_note(note, where), mismatch)

        for size, note in rows:
            add(note, f"row of size {size}", "ROOT_MISMATCH")
        listed, strays, end = split_notes(published)
        if end and not is_cut_off(end, self._origin()):
            strays.append(end)
        for note in (*listed, *strays):
            add(note, "checkpoints.log", "ROOT_MISMATCH")
        for event in anchored:
            add(event.note.encode(), f"anchored: {shown(event.where)}", "FORK")
        for note in self.options.against:
            add(note, "given", "FORK")
        return list(found.values())

    def _read_note(self, note: bytes, where: str) -> Note:
        try:
            signed = parse_checkpoint(note)
        except Integrity:
            return Note(note, where, None, None, "unreadable")
        seq = signed.checkpoint.size - 1 if signed.checkpoint.size else None
        ids = ", ".join(f"{s.name}+{s.key_id.hex()}" for s in signed.signatures)
        signature = "unchecked" if self.key is None else check_signature(signed, self.key)
        return Note(note, where, seq, signed.checkpoint, signature, ids)

    def _read(self, subject: Subject, end: int | None) -> bytes | None:
        """Show every page to every check; returns the root, if there is one."""
        checks = [kind(subject) for kind in RECORD_CHECKS]
        for stretch in self.source.stretches(end):
            page = Page(stretch, self.following)
            for check in checks:
                self._add(check.look_at(page))
            self.events += len(page.seqs)
            if page.seqs:
                self.head = (page.seqs[-1], page.leaves[-1])
            self.following = max(self.following, page.following)
            if page.unreadable is not None:
                self.following = max(self.following, page.unreadable.stop)
        return next((check.root() for check in checks if isinstance(check, Roots)), None)

    def _add(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            if finding.severity == "violation":
                self.violated = True
            if len(self.findings) < MAX_FINDINGS:
                self.findings.append(finding)
            else:
                self.unlisted += 1

    def _anchors(
        self,
        notes: Sequence[tuple[Note, Literal["ROOT_MISMATCH", "FORK"]]],
        targets: dict[int, Target],
        anchored: Sequence[CheckpointAnchored],
        last_seen: Target | None,
    ) -> list[Anchor]:
        """Every checkpoint kept outside that matches, and the newest of the ledger's own."""
        matching = {
            note.note: note
            for note, _ in notes
            if id(note) in targets and targets[id(note)].matches
        }
        required = self._required()
        anchors = []

        def add(
            kind: Literal["self", "git", "time", "copy", "last_seen"],
            where: str,
            checkpoint: Checkpoint,
            holds: bool,
            detail: str,
        ) -> None:
            age = self.following - checkpoint.size
            limit = self.options.max_anchor_age
            if holds and kind not in required:
                holds, detail = False, f"{detail}; only {' or '.join(required)} counts here"
            if holds and limit is not None and age > limit:
                holds, detail = False, f"{detail}; more than {limit} records follow it"
            root = checkpoint.root.hex()
            anchors.append(Anchor(kind, where, checkpoint.size, root, age, holds, detail))

        newest: Note | None = None
        for note in matching.values():
            if note.where != "given" and (newest is None or note.size > newest.size):
                newest = note
        if newest is not None and newest.checkpoint is not None:
            if newest.signature == "valid":
                detail = f"signed by {self.key}, key {self.key_origin}"
                holds = self.older is None or self.own_log is not None
                detail += "" if holds else "; older than what was last seen"
                add("self", newest.where, newest.checkpoint, holds, detail)
            else:
                detail = (
                    f"signed by {newest.key_ids}, and no key is known: give its verifier string "
                    "with `ledger verify-chain --key`"
                )
                add("self", newest.where, newest.checkpoint, False, shown(detail))
        for event in anchored:
            kept = matching.get(event.note.encode())
            if kept is None or kept.checkpoint is None:
                continue
            if kept.signature == "valid":
                options = self.options
                holds, detail = check_receipt(
                    event, self.source.path, options.time_authority, options.git_clone
                )
            else:
                holds, detail = False, _unchecked(kept)
            add(event.kind, shown(event.where), kept.checkpoint, holds, shown(detail))
        for content in self.options.against:
            kept = matching.get(content)
            if kept is None or kept.checkpoint is None:
                continue
            if kept.signature == "valid":
                add("copy", "given", kept.checkpoint, True, "a note that the caller has kept")
            else:
                add("copy", "given", kept.checkpoint, False, shown(_unchecked(kept)))
        if last_seen is not None and last_seen.matches:
            seen = Checkpoint("", last_seen.size, last_seen.root)
            add("last_seen", "this user's verifier", seen, False, "not an anchor by itself")
        return anchors

    def _required(self) -> tuple[str, ...]:
        if self.options.require == "self":
            return ("self", *OUTSIDE)
        if self.options.require is not None:
            return (self.options.require,)
        own = load_signing_key(self.home)
        made_here = (
            own is not None and self.key is not None and own.public_key == (self.key.public_key)
        )
        return ("self", *OUTSIDE) if made_here and not self.source.imported else OUTSIDE

    def _report(
        self, anchors: Sequence[Anchor], root: bytes | None, checks_artifacts: bool
    ) -> Report:
        counting = [anchor for anchor in anchors if anchor.counts]
        status: Status = "verified"
        if self.violated:
            status = "violated"
        elif self.unfinished:
            status = "unfinished"
        elif not counting:
            status = "unanchored"
        head = None
        if self.head is not None:
            seq, leaf = self.head
            head = VerifiedHead(seq, leaf.hex(), root.hex() if root is not None else None)
        said = [f"{counted(self.events, 'record')} read and checked one by one."]
        if self.unfinished:
            said.append(f"Reading stopped: {shown(self.unfinished)}.")
        if self.violated:
            said.append("Findings contradict the ledger: what they touch is not proven.")
        if self.unlisted:
            said.append(f"Not listed: {counted(self.unlisted, 'finding')} more.")
        signed = [anchor for anchor in anchors if anchor.kind == "self" and anchor.counts]
        if counting:
            best = max(counting, key=lambda anchor: anchor.size)
            kinds = ", ".join(sorted({anchor.kind for anchor in counting}))
            said.append(
                f"Up to seq {best.size - 1} they are those that were signed ({kinds}) by "
                f"{self.key}, {self._whose()}; nothing is proven about events after seq "
                f"{best.size - 1}."
            )
        else:
            said.append("No anchor that counts matches; nothing is proven about any event.")
        if self.key is None and self.options.against:
            said.append(
                "Whether the given notes are signed by the ledger's owner was not checked: no key "
                "is known for this ledger; give its verifier string with `ledger verify-chain "
                "--key`."
            )
        if signed and len(signed) == len(counting):
            said.append(
                "Checkpoints beside the ledger protect against accidents and partial edits, not "
                "against an owner who holds the key: who does could have rewritten everything and "
                "signed again, which only this user's last-seen state or an outside anchor shows."
            )
        if self.older is not None:
            text = (
                f"It is older than what was last seen: {self.older.size} records under this key, "
                f"{self.following} here"
            )
            if self.own_log is not None:
                text += (
                    f", which are the first ones of this user's own log {shown(str(self.own_log))}"
                )
            said.append(f"{text}.")
        if not checks_artifacts:
            said.append("Artifacts not checked.")
        if self.key is not None and not self.options.last_seen:
            said.append("Last-seen state not used.")
        if status in ("verified", "unanchored") and not self._remember(anchors):
            said.append("What was seen could not be remembered for the next time.")
        findings = sorted(self.findings, key=lambda f: -1 if f.seq is None else f.seq)
        covered = max((a.size for a in anchors if a.kind != "last_seen"), default=0)
        unsigned = max(0, self.following - covered)
        return Report(
            str(self.source.path),
            self._origin_of_ledger(),
            status,
            self.events,
            unsigned,
            head,
            tuple(anchors),
            tuple(findings),
            " ".join(said),
        )

    def _remember(self, anchors: Sequence[Anchor]) -> bool:
        """Keep the newest signed root for the next verification; False where that cannot be."""
        valid = [a for a in anchors if a.kind != "last_seen" and self.key is not None]
        if self.key is None or not valid or not self.options.last_seen:
            return True
        newest = max(valid, key=lambda anchor: anchor.size)
        try:
            remember(self.home, self.key, newest.size, bytes.fromhex(newest.root))
            if self.key_origin.startswith("the user's own"):
                remember_ledger(self.home, self.source.path, self.key, live=False)
        except Unfinished:
            return False
        return True
