"""``ledger show``."""

import difflib
import re
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from actors.loop import Context
from ledger.artifacts import SALT_BYTES
from ledger.cli.options import (
    json_option,
    print_json,
    print_table,
    printable,
    reading,
    study_option,
)
from ledger.codec import decode_as_recorded, is_canonical
from ledger.errors import Integrity, LedgerError, Usage
from ledger.log import StoredRecord
from ledger.named_artifacts import named_artifacts
from projections.presentable_text import presentable
from schemas.base import ArtifactRef, Event
from schemas.envelope import Envelope
from schemas.events import EVENT_TYPES
from schemas.events.study import AnalysisCompleted
from schemas.events.transfer import (
    FixtureCalled,
    MemoryRetrieved,
    MemorySeeded,
    MemoryWritten,
    SessionClosed,
    SessionOpened,
    SurfaceRead,
)
from schemas.identifiers import parse_cell_id
from schemas.repair.study import RepairStudy
from schemas.study import StudyError, of_kind

if TYPE_CHECKING:
    from projections.progress import Progress

SHORT_TEXT = 60
MAX_STORY_TEXT = 400
MAX_STORY_BYTES = 4 * MAX_STORY_TEXT
STORY = {
    SessionOpened.TYPE: ("prompt", "system_prompt"),
    MemorySeeded.TYPE: ("renderings",),
    MemoryRetrieved.TYPE: ("content",),
    MemoryWritten.TYPE: ("text",),
    FixtureCalled.TYPE: ("arguments", "result"),
    SessionClosed.TYPE: ("text",),
    SurfaceRead.TYPE: ("before", "after"),
}
"""By type of record the artifacts that tell what happened in a run, shown with its timeline."""

_DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@click.command("show")
@click.argument("target")
@study_option
@json_option
@click.option("--artifacts", is_flag=True, help="Also print the artifacts that are named.")
@click.option(
    "--max-bytes",
    type=click.IntRange(1),
    default=4000,
    show_default=True,
    help="Print at most so much of each artifact.",
)
@click.option("--reason", help="Why outcomes are looked at; recorded before they are shown.")
def command(
    target: str, study: Path, as_json: bool, artifacts: bool, max_bytes: int, reason: str | None
) -> None:
    """Show a record, a cell or a stream.

    TARGET is the position of a record (4711), a cell (R001-003/H000/M002/0), a stream (study, runs,
    repository/R001, task/R001-003, server/<server.kind of study.toml>, command/<id> …), `tasks` for
    the frozen tasks, or `analysis` for the results of the last analysis. A run of a transfer study
    (F106-01-positive.d0/full/reader/0) is told with its prompt, what its memory delivered, its
    calls, its last words and the surface. Records that carry outcomes (there all that the system
    did) are masked unless --reason is given; that is recorded first. An analysis is not shown
    without.
    """
    from ledger.cli.inspection_gate import outcome_test, pass_gate

    with reading(study) as context:
        if target == "tasks":
            _show_tasks(context, as_json)
            return
        if target == "analysis":
            _show_analysis(context, study, reason)
            return
        carries_outcome = outcome_test(context)
        found = [_Shown(stored, carries_outcome) for stored in _records(context, target)]
        outcomes = any(record.carries_outcome for record in found)
        unmasked = outcomes and reason is not None
        if unmasked:
            pass_gate(study, reason, target)
        for record in found:
            record.masked = record.carries_outcome and not unmasked
        contents = _contents(context, found, max_bytes) if artifacts else {}
    single = target.isdecimal()
    if as_json:
        documents = [record.document() for record in found]
        rendered: dict[str, Any] = (
            {"record": documents[0]}
            if single
            else {"stream": found[0].envelope.stream, "records": documents}
        )
        print_json({**rendered, **({"artifacts": contents} if artifacts else {})})
        return
    if single:
        print(_pretty(found[0].document()))
    else:
        for record in found:
            print(record.line())
            for line in record.story(context):
                print(f"{'':>9}{line}")
    for digest, content in contents.items():
        print(f"\nartifact {digest}")
        print(textwrap.indent("\n".join(map(printable, content.splitlines())), "  "))
    if any(record.masked for record in found):
        print('(masked: outcomes are shown with --reason "…", which is recorded)')


class _Shown:
    """One record on its way to the screen."""

    def __init__(self, stored: StoredRecord, carries_outcome: Callable[[Envelope], bool]) -> None:
        if not is_canonical(stored.record):
            # What is shown could be read in two ways, or is nested deeper than anything goes.
            raise Integrity(
                f"seq {stored.seq}: not a canonical record; `ledger verify-chain` says more"
            )
        self.stored = stored
        self.envelope: Envelope = stored.envelope()
        self.event: Event | None = None
        if self.envelope.type in EVENT_TYPES:
            self.event = decode_as_recorded(self.envelope)
        self.carries_outcome = carries_outcome(self.envelope)
        self.masked = True

    def document(self) -> dict[str, Any]:
        """The whole record, its leaf first."""
        decoded = msgspec.json.decode(self.stored.record)
        if self.masked:
            decoded["data"] = "masked: carries an outcome"
        return {"leaf": self.stored.leaf.hex(), **decoded}

    def line(self) -> str:
        """One line of a timeline: position, time, type, and the fields that fit."""
        envelope = self.envelope
        head = f"{envelope.seq:>7}  {envelope.at[:19]}Z  {envelope.type:<22}"
        if self.masked:
            return f"{head}  (masked)"
        data = msgspec.json.decode(envelope.data)
        parts = [text for name, value in data.items() if (text := _short(name, value))]
        return f"{head}  {'  '.join(parts)}".rstrip()

    def story(self, context: Context) -> list[str]:
        """What was said, in lines of their own: the texts that a run of a transfer study names. A
        record of a repair has none; its texts are long (``--artifacts``)."""
        names = STORY.get(self.envelope.type, ())
        if self.masked or self.event is None:
            return []
        lines = []
        for name in names:
            content = _content(context, getattr(self.event, name), MAX_STORY_BYTES)
            text = presentable(" ".join(content.split()), MAX_STORY_TEXT)
            lines.append(f"{name:<14}  {printable(text) or '(nothing)'}")
        return lines


def _short(name: str, value: Any) -> str:
    """``name=value`` where the value fits into a line; the number of items of a list; nothing for
    what says nothing."""
    if value is None or value == "" or value == [] or value == {}:
        return ""
    if isinstance(value, dict):
        if "digest" in value and "length" in value:
            return f"{name}={value['digest'][:12]}({value['length']} bytes)"
        if name == "cell":
            return ""
        inner = "  ".join(text for key, item in value.items() if (text := _short(key, item)))
        return f"{name}({inner})" if len(inner) <= 2 * SHORT_TEXT else f"{name}(…)"
    if isinstance(value, list):
        texts = [printable(item) for item in value if isinstance(item, str)]
        joined = ",".join(texts)
        whole = len(texts) == len(value) and len(joined) <= SHORT_TEXT
        return f"{name}={joined}" if whole else f"{name}=[{len(value)}]"
    if name.endswith("_ns"):
        return f"{name[:-3]}={value / 1e9:.3f}s"
    text = printable(value)
    if _DIGEST.fullmatch(text):
        return f"{name}={text[:12]}"
    return f"{name}={text if len(text) <= SHORT_TEXT else text[:SHORT_TEXT] + '…'}"


def _records(context: Context, target: str) -> list[StoredRecord]:
    """The records of a target. Raises Usage with what comes close."""
    if target.isdecimal():
        # SQLite's integers end at 2^63.
        seq = int(target) if len(target) <= 18 else 10**18
        stored = next(context.log.read(seq, seq + 1), None)
        if stored is None:
            head = context.log.head()
            if head is not None and seq < head.seq:
                raise Integrity(f"record {seq} is missing; run `ledger verify-chain`")
            last = "is empty" if head is None else f"ends at record {head.seq}"
            raise Usage(f"there is no record {target}: the ledger {last}")
        return [stored]
    stream = target
    if re.fullmatch(r"(cell/)?[^/]+/[^/]+/[^/]+/[^/]+", target):
        try:
            stream = parse_cell_id(target).stream
        except ValueError as error:
            raise Usage(str(error)) from None
    found = list(context.log.read_stream(stream))
    if not found:
        raise Usage(_nothing_there(context, target, stream))
    return found


def _nothing_there(context: Context, target: str, stream: str) -> str:
    """Why a stream is empty: a planned cell that has not begun, or a name that comes close."""
    from projections.fold import fold
    from projections.progress import Progress

    progress = fold(Progress(context.artifacts.get), context.log_facts())
    planned = progress.cells.get(stream.removeprefix("cell/"))
    if planned is not None:
        return (
            f"cell {planned.cell} has not begun: it is number {planned.planned.position} of "
            f"{len(progress.cells)} in the plan"
        )
    names = {stored.envelope().stream for stored in context.log.read()}
    names |= {f"cell/{cell}" for cell in progress.cells}
    shown = {name.removeprefix("cell/"): name for name in names}
    close = difflib.get_close_matches(target.removeprefix("cell/"), sorted(shown), n=3)
    hint = (
        f"did you mean {' or '.join(map(printable, close))}?"
        if close
        else ("write a record's number, UNIT/ARM/AGENT/REPEAT, or a stream such as study or runs")
    )
    return f"there is no cell and no stream {target!r}: {hint}"


def _contents(context: Context, records: Sequence[_Shown], max_bytes: int) -> dict[str, str]:
    """Content by digest of what the records name, each once, cut at ``max_bytes``."""
    contents: dict[str, str] = {}
    for record in records:
        if record.masked or record.event is None:
            continue
        for ref, _ in named_artifacts(record.event):
            if ref.digest not in contents:
                contents[ref.digest] = _content(context, ref, max_bytes)
    return contents


def _content(context: Context, ref: ArtifactRef, max_bytes: int) -> str:
    try:
        content = context.artifacts.get_beginning(ref, max_bytes)
    except LedgerError as error:
        return f"({error})"
    text = content.decode("utf-8", "backslashreplace")
    left = ref.length - (SALT_BYTES if ref.erasable else 0) - max_bytes
    return f"{text}\n({left} more bytes; --max-bytes shows more)" if left > 0 else text


def _pretty(document: dict[str, Any]) -> str:
    text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    return "\n".join(map(printable, text.splitlines()))


def _show_analysis(context: Context, study: Path, reason: str | None) -> None:
    """Print the results artifact of the last analysis; JSON with and without ``--json``."""
    from ledger.cli.inspection_gate import pass_gate

    last = None
    for fact in context.log_facts():
        if isinstance(fact.event, AnalysisCompleted):
            last = fact.event
    if last is None:
        raise Usage("there is no analysis yet: `ledger analyze` computes it")
    pass_gate(study, reason, "an analysis")
    print_json(msgspec.json.decode(context.artifacts.get(last.results)))


def require_tasks(progress: "Progress") -> None:
    """Raises Usage where a study of another kind is frozen, which has no tasks."""
    if progress.study is None:
        return
    try:
        of_kind(RepairStudy, progress.study)
    except StudyError as error:
        raise Usage(
            f"{error}, which has no tasks: `ledger status --cells` lists its cells, `ledger show "
            "CELL` tells one"
        ) from None


def _show_tasks(context: Context, as_json: bool) -> None:
    from projections.fold import fold
    from projections.progress import Progress

    progress = fold(Progress(context.artifacts.get), context.log_facts())
    require_tasks(progress)
    tasks = progress.tasks
    rows = [
        {
            "task": task.id,
            "repository": task.repository,
            "commit": task.commit[:12],
            "committed": task.committed,
            "files": len(task.production_paths),
            "lines": task.changed_production_lines,
            "fail_to_pass": len(task.fail_to_pass),
            "pass_to_pass": task.pass_to_pass_count,
            "needs_gold_symbol": task.needs_gold_symbol,
            "statement_words": task.statement_words,
        }
        for task in tasks.values()
    ]
    if as_json:
        print_json({"tasks": rows})
    else:
        print_table(rows)
