"""``ledger check-proof``."""

import json
from pathlib import Path
from typing import Any

import click
import msgspec

from ledger.cli.options import json_option, notes_in, print_json, printable, read_given
from ledger.errors import Integrity
from schemas.counted import counted


@click.command("check-proof")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option
@click.option("--key", metavar="STRING", help="Verifier string of the key that must have signed.")
@click.option(
    "--against",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    help="A signed note that you have kept; it must be a checkpoint of the proof.",
)
@click.option(
    "--record",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The record's line, where the proof does not carry it.",
)
def command(
    file: Path, as_json: bool, key: str | None, against: tuple[Path, ...], record: Path | None
) -> int:
    """Check a proof that `ledger prove` has printed; no ledger is needed.

        ledger check-proof record.tlog-proof --key "$KEY" --against kept-note

    The signer's verifier string is what `ledger checkpoint` prints as `key`. Without --key your own
    key is tried. Status 0: proven; 3: it does not hold; 4: it holds, but nobody has said who must
    have signed.
    """
    from ledger.checkpoint import check_signature, parse_checkpoint
    from ledger.signing_keys import config_home, load_signing_key, parse_verifier_key
    from ledger.verify.proofs import InclusionProof, Refuted, check_proof, parse_proof

    line = read_given(record).removesuffix(b"\n") if record is not None else None
    verifier = parse_verifier_key(key) if key is not None else None
    whose = "the key that you gave"
    kept = [note for path in against for note in notes_in(path)]
    try:
        proof = parse_proof(read_given(file))
        own = load_signing_key(config_home()) if verifier is None else None
        if own is not None:
            signed = parse_checkpoint(proof.note)
            candidate = own.verifier(signed.checkpoint.origin)
            if check_signature(signed, candidate) == "valid":
                verifier, whose = candidate, "your own key"
        proven = check_proof(proof, verifier, kept, line)
    except Integrity as error:
        part = error.part if isinstance(error, Refuted) else "form"
        if not as_json:
            raise Refuted(part, f"NOT PROVEN, what fails is {error}") from None
        print_json({"status": "refuted", "part": part, "why": str(error)})
        return error.exit_status
    tree = proven.checkpoint
    carried = line
    if isinstance(proof, InclusionProof) and carried is None:
        carried = proof.record
    if as_json:
        print_json(
            {
                "status": "proven" if proven.signed else "unsigned",
                "origin": tree.origin,
                "size": tree.size,
                "root": tree.root.hex(),
                "key": str(verifier) if verifier else None,
                "seq": proven.index,
                "leaf": proven.leaf.hex() if proven.leaf else None,
                "record": _document(carried) if carried else None,
                "old_size": proven.old.size if proven.old else None,
            }
        )
        return 0 if proven.signed else 4
    records = counted(tree.size, "record")
    holds = "proven" if proven.signed else "unsigned"
    if proven.old is not None:
        print(f"{holds:<10} the first {proven.old.size} of {records} are unchanged")
        print(f"{'by':<10} the checkpoint over {records}, which continues the older one")
    else:
        print(f"{holds:<10} this is record {proven.index} of the first {tree.size}, byte for byte")
        if carried is not None:
            print(f"{'record':<10} {printable(carried.decode('utf-8', 'replace'))}")
        print(f"{'by':<10} the checkpoint over {records}")
    print(f"{'ledger':<10} {printable(tree.origin)}")
    print(f"{'root':<10} {tree.root.hex()}")
    if verifier is None:
        print(f"{'signed':<10} unknown by whom: give the verifier string with --key")
    else:
        print(f"{'signed':<10} {verifier}, {whose}")
    if kept:
        print(f"{'kept':<10} the note that you have kept is a checkpoint of this proof")
    print(f"{'not proven':<10} that what is recorded is true; anything after {records}")
    return 0 if proven.signed else 4


def _document(record: bytes) -> Any:
    """The record; its text where it is no JSON that can be printed again. A proof holds for bytes,
    whatever they are: a stranger's may be anything."""
    try:
        document = msgspec.json.decode(record)
        json.dumps(document, allow_nan=False)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return record.decode("utf-8", "replace")
    return document
