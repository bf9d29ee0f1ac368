"""How a ledger begins: record 0, whose UUID makes its chain unlike any other."""

import os

from ledger.atomic_file import make_folder, sync_directory
from ledger.checkpoint import Checkpointer
from ledger.clock import new_id
from ledger.errors import Integrity
from ledger.log import Batch, NewEvent
from ledger.stores import open_log
from ledger.study_directory import StudyDirectory, refuse_links
from schemas.envelope import FORMAT_VERSION
from schemas.events.ledger import LedgerCreated
from schemas.identifiers import LEDGER_STREAM


def create_ledger(directory: StudyDirectory) -> str:
    """Create ``var/ledger.db`` with record 0 and its first checkpoint; returns the ledger's UUID.

    A ledger whose creation was killed before record 0 is gone on with. Raises StaleVersion where
    one was begun, Integrity where one has lost its records or its database; Refused, Unfinished or
    Usage where the user's key cannot be used.
    """
    checkpointer = Checkpointer(directory)  # before anything is made where it could not be signed
    refuse_links(directory.root, (directory.var.name,))
    refuse_links(directory.var)
    make_folder(directory.var, 0o700)
    sync_directory(directory.root)  # also where a process made var and was killed before its sync
    made = os.path.lexists(directory.ledger)
    log = open_log(directory.ledger, "append") if made else None
    if (log is None or log.head() is None) and os.path.lexists(directory.checkpoints):
        raise Integrity(
            f"{directory.checkpoints} is of a ledger whose records are gone: put a backup of the "
            f"study in its place, or move {directory.var} away before a new one is begun"
        )
    log = log or open_log(directory.ledger, "create")
    uuid = new_id()
    created = LedgerCreated(
        format=FORMAT_VERSION, hash="sha-256", uuid=uuid, name=directory.root.name
    )
    try:
        log.append(
            Batch(
                events=[NewEvent(LEDGER_STREAM, created)],
                actor="operator",
                run=uuid,
                expected={LEDGER_STREAM: 0},
            )
        )
        checkpointer.sign(log)
    finally:
        log.close()
    return uuid
