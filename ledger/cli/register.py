"""``ledger register``."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from actors.loop import Context
from ledger.cli.options import (
    json_option,
    print_json,
    printable,
    read_given,
    reading,
    study_option,
    writing,
)
from ledger.errors import LedgerError, Refused, Usage
from schemas.credentials import carries_credentials
from schemas.secret_shapes import marked_secrets

if TYPE_CHECKING:
    from projections.progress import Progress

CARD_LABEL = "laboratory-ledger registration card v1"
MAX_LEDGERS_READ = 100


@click.command("register")
@study_option
@json_option
@click.option(
    "--where",
    metavar="ENTRY",
    help="Where the card was deposited: the registry and its entry, like a URL or a DOI.",
)
@click.option(
    "--receipt",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with what the registry gave back: a saved page, a mail, a signed statement.",
)
def command(study: Path, as_json: bool, where: str | None, receipt: Path | None) -> None:
    """Print the card of the frozen study; with --where and --receipt record its registration.

    The card names the study's digest, the ledger and the key that signs it: whoever holds the card
    can tell this ledger from every other one of the same study. Deposit it before the first run,
    where you cannot change it afterwards:

    \b
        ledger register > card.txt
        ledger register --where https://registry.example/r/4711 --receipt page.pdf

    A pushed commit or a time stamp does the same for somebody who trusts those: `ledger checkpoint
    --push`, `--time-token`. `ledger audit registration` says what came first. Other ledgers of the
    same study that were signed or verified on this machine are listed.
    """
    if (where is None) != (receipt is None):
        raise Usage("--where and --receipt go together: where the card lies, and what came back")
    with reading(study) as context:
        card = _card(context)
        digest = _frozen(context).frozen
        assert digest is not None
        others = _other_ledgers(context, digest.digest)
    if where is not None and receipt is not None:
        seq = _record(study, card, where, receipt)
        if as_json:
            print_json({"recorded_at": seq, "where": where, "card": card, "other_ledgers": others})
            return
        print(f"recorded at record {seq}; `ledger audit registration` says what came first")
    elif as_json:
        print_json({"card": card, "other_ledgers": others})
        return
    else:
        print(card, end="")
    for other in others:
        click.echo(f"another ledger of this study: {printable(other)}", err=True)


def _card(context: Context) -> str:
    """The card: the same for ever, since it says nothing of what came after the freeze."""
    from ledger.last_seen import known_ledger
    from ledger.log import decode
    from ledger.signing_keys import config_home
    from schemas.events.ledger import LedgerCreated
    from schemas.events.study import StudyFrozen

    progress = _frozen(context)
    frozen, study = progress.frozen, progress.study
    assert frozen is not None and study is not None
    created = decode(next(context.log.read(0, 1))).event
    assert isinstance(created, LedgerCreated)
    stored = next(
        stored
        for stored in context.log.read_stream("study")
        if stored.envelope().type == StudyFrozen.TYPE
    )
    known = known_ledger(config_home(), context.directory.ledger)
    key = known.key if known is not None else "unknown here; `ledger import --key` tells it"
    lines = (
        CARD_LABEL,
        f"study digest  {frozen.digest}",
        f"study         {study.id}",
        f"title         {study.title}",
        f"question      {study.question}",
        f"ledger        {created.uuid}",
        f"frozen at     record {stored.seq}, leaf {stored.leaf.hex()}",
        f"key           {key}",
    )
    return "".join(f"{printable(line)}\n" for line in lines)


def _frozen(context: Context) -> "Progress":
    from projections.fold import fold
    from projections.progress import Progress

    progress = fold(Progress(context.artifacts.get), context.study_facts())
    if progress.frozen is None:
        raise Refused("the study is not frozen: there is nothing to register; `ledger freeze`")
    return progress


def _record(study: Path, card: str, where: str, receipt: Path) -> int:
    from actors.loop import carry_out
    from actors.study.orders import HANDLERS
    from schemas.commands import RegisterStudy

    if carries_credentials(where) or marked_secrets(where):
        raise Usage("--where carries a password or a token, and it is recorded: give it without")
    content = read_given(receipt)
    with writing(study) as context:
        put = context.artifacts.put
        order = RegisterStudy(
            card=put(card.encode(), "text/plain"),
            where=where,
            receipt=put(content, "application/octet-stream"),
        )
        carry_out(context, order, HANDLERS)
        head = context.log.head()
    assert head is not None
    return head.seq


def _other_ledgers(context: Context, digest: str) -> list[str]:
    """Paths of further ledgers that froze the same study: the one that is shown could be the one
    that went well."""
    from ledger.last_seen import known_ledgers
    from ledger.log import decode
    from ledger.signing_keys import config_home
    from ledger.stores import open_log
    from schemas.events.study import StudyFrozen

    own = str(context.directory.ledger)
    found = []
    for known in known_ledgers(config_home())[:MAX_LEDGERS_READ]:
        if known.path == own:
            continue
        try:
            log = open_log(Path(known.path), "read")
        except LedgerError:
            continue  # gone, or damaged: verification says so where it lies
        try:
            for stored in log.read_stream("study"):
                if stored.envelope().type == StudyFrozen.TYPE:
                    event = decode(stored).event
                    if isinstance(event, StudyFrozen) and event.digest == digest:
                        found.append(known.path)
        except LedgerError:
            continue
        finally:
            log.close()
    return found
