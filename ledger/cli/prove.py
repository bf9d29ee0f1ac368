"""``ledger prove``."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ledger.cli.options import json_option, notes_in, print_json, reading, study_option
from ledger.errors import Integrity, Refused, Usage

if TYPE_CHECKING:
    from ledger.log import EventLog

VERIFY = "run `ledger verify-chain` and go on with a copy"


@click.command("prove")
@click.argument("seq", type=click.IntRange(0), required=False)
@study_option
@json_option
@click.option(
    "--consistency",
    "sizes",
    nargs=2,
    type=click.IntRange(1),
    metavar="OLD NEW",
    help="Prove instead that the checkpoint over NEW records continues the one over OLD.",
)
@click.option(
    "--from",
    "start",
    type=click.IntRange(1),
    metavar="OLD",
    help="The same, up to the newest checkpoint.",
)
@click.option(
    "--against",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Prove it for the signed note in this file, which somebody has kept.",
)
@click.option("--reason", help="Why a record with an outcome is shown; recorded first.")
def command(
    seq: int | None,
    study: Path,
    as_json: bool,
    sizes: tuple[int, int] | None,
    start: int | None,
    against: Path | None,
    reason: str | None,
) -> None:
    """Print a proof that record SEQ is under a signed checkpoint, or that one checkpoint continues
    another. It can be checked without the ledger:

        ledger prove 4711 > record.tlog-proof

        ledger check-proof record.tlog-proof --key "$KEY"

    Inclusion proofs have the form of C2SP tlog-proof and carry the record; one that carries an
    outcome is left out unless --reason is given.
    """
    from ledger.cli.inspection_gate import pass_gate
    from ledger.verify.proofs import (
        ConsistencyProof,
        InclusionProof,
        prove_consistency,
        prove_inclusion,
    )

    if (seq is not None) + (sizes is not None) + (start is not None) != 1:
        raise Usage("name one record (`ledger prove 4711`), or give --consistency OLD NEW")
    hidden = seq is not None and _carries_outcome(study, seq)
    if hidden and reason is not None:
        pass_gate(study, reason, f"record {seq}")
        hidden = False
    kept = _newest_note_in(against) if against is not None else None
    proof: InclusionProof | ConsistencyProof
    with reading(study) as context:
        log = context.log
        if seq is not None:
            proof = prove_inclusion(log, seq, kept or _newest(log, seq + 1), not hidden)
        else:
            old, new = sizes or (start, None)
            assert old is not None
            newer = _of_size(log, new) if new is not None else kept or _newest(log, old)
            proof = prove_consistency(log, _of_size(log, old), newer)
    if hidden:
        print(
            f"record {seq} carries an outcome and is left out; --reason shows it, recorded first",
            file=sys.stderr,
        )
    text = proof.text().decode()
    if as_json:
        kind = "consistency" if isinstance(proof, ConsistencyProof) else "inclusion"
        print_json({"kind": kind, "hashes": [one.hex() for one in proof.hashes], "proof": text})
        return
    print(text, end="")


def _carries_outcome(study: Path, seq: int) -> bool:
    from ledger.cli.inspection_gate import outcome_test

    with reading(study) as context:
        head = context.log.head()
        if head is None or seq > head.seq:
            last = "it has none" if head is None else f"the last is {head.seq}"
            raise Usage(f"the ledger has no record {seq}: {last}")
        stored = next(context.log.read(seq, seq + 1), None)
        if stored is None:
            raise Integrity(f"record {seq} is missing: nothing can be proven of it; {VERIFY}")
        return outcome_test(context)(stored.envelope())


def _newest(log: "EventLog", size: int) -> bytes:
    """The newest checkpoint, which must be over at least so many records."""
    rows = log.checkpoints()
    if not rows or rows[-1][0] < size:
        raise Refused(
            f"no checkpoint covers {size} records yet: `ledger checkpoint` signs the present root"
        )
    return rows[-1][1]


def _of_size(log: "EventLog", size: int) -> bytes:
    rows = dict(log.checkpoints())
    if size not in rows:
        near = sorted(sorted(rows, key=lambda one: abs(one - size))[:5])
        raise Usage(
            f"no checkpoint was signed over {size} records; the nearest are over "
            f"{', '.join(map(str, near)) or 'none'}"
        )
    return rows[size]


def _newest_note_in(path: Path) -> bytes:
    """Of a file that may hold several."""
    from ledger.checkpoint import parse_checkpoint

    try:
        return max(notes_in(path), key=lambda note: parse_checkpoint(note).checkpoint.size)
    except Integrity as error:
        raise Usage(f"{path}: {error}") from None
