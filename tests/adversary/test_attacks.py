"""One attack for every way in which a ledger can be changed, with exactly what must be found.

Every attack begins with the same sample of 31 records (``tests/verify/sample_ledger.py``) and ends
with the findings (code and seq) and the exit status. The independent verifier, which shares no code
with the ledger, must contradict the same ledgers.
"""

import ast
import base64
import json
import os
import runpy
import shutil
import sqlite3
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sample_ledger import SampleLedger, append_one, store

import ledger.sqlite.checks
import ledger.sqlite.records
import ledger.verify.final_checks
import ledger.verify.record_checks
import ledger.verify.verification
from ledger import independent_verifier
from ledger.chain import leaf_hash
from ledger.checkpoint import Checkpoint, Checkpointer, sign_checkpoint
from ledger.errors import Integrity
from ledger.export import export
from ledger.finding import Code, Finding
from ledger.signing_keys import SigningKey
from ledger.sqlite.log import SqliteLog
from ledger.verify.verification import Options, Report, exit_status, verify
from schemas.events.cell import ProtocolViolated

INDEPENDENT = Path(independent_verifier.__file__)


class Attack(NamedTuple):
    do: Callable[[SampleLedger], None]
    findings: list[tuple[str, int | None]]
    status: int = 3
    options: Callable[[SampleLedger], Options] = lambda sample: Options()


def data_with(**changes: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda record: {**record, "data": {**record["data"], **changes}}


# --- records and columns -------------------------------------------------------------------------


def edit_record(sample: SampleLedger) -> None:
    """One byte of the body of seq 13, the triggers dropped and put back."""
    with sample.tampering() as connection:
        connection.execute(
            "UPDATE records SET record = CAST(replace(CAST(record AS TEXT), '\"rm\"', '\"ls\"') "
            "AS BLOB) WHERE seq = 13"
        )


def edit_record_and_leaf(sample: SampleLedger) -> None:
    sample.rewrite({13: data_with(detail="ls")}, chained=False)


def edit_leaf(sample: SampleLedger) -> None:
    with sample.tampering() as connection:
        connection.execute("UPDATE records SET leaf = zeroblob(32) WHERE seq = 13")


def edit_column(sample: SampleLedger) -> None:
    with sample.tampering() as connection:
        connection.execute("UPDATE records SET actor = 'grader' WHERE seq = 13")


def edit_and_recompute(sample: SampleLedger) -> None:
    """Everything after the edit computed anew: only the checkpoints know."""
    sample.rewrite({13: data_with(detail="ls")})


def edit_behind_the_newest_checkpoint(sample: SampleLedger) -> None:
    """Nothing is anchored there, but the chain's link still holds the old leaf."""
    sample.grow(3, sign=False)
    sample.rewrite({32: data_with(detail="other")}, chained=False)


def delete_rows(sample: SampleLedger) -> None:
    with sample.tampering() as connection:
        connection.execute("DELETE FROM records WHERE seq IN (12, 13)")


def delete_and_close_the_gap(sample: SampleLedger) -> None:
    """Seq 14 is deleted and all later records are moved down by one and chained anew."""
    with sample.tampering() as connection:
        connection.execute("DELETE FROM records WHERE seq = 13")
        connection.execute("UPDATE records SET seq = seq - 1 WHERE seq > 13")
    sample.rewrite({13: lambda record: record})
    with sample.tampering() as connection:
        rows = connection.execute("SELECT seq, record FROM records WHERE seq >= 13").fetchall()
        previous = leaf_hash(sample_record(connection, 12))
        for seq, record in rows:
            fields = json.loads(record)
            fields |= {"seq": seq, "prev": previous.hex()}
            record = json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
            store(connection, seq, record)
            previous = leaf_hash(record)


def sample_record(connection: sqlite3.Connection, seq: int) -> bytes:
    row = connection.execute("SELECT record FROM records WHERE seq = ?", (seq,)).fetchone()
    return bytes(row[0])


def swap_records(sample: SampleLedger) -> None:
    with sample.tampering() as connection:
        first, second = sample_record(connection, 13), sample_record(connection, 14)
        for seq, record in ((13, second), (14, first)):
            connection.execute(
                "UPDATE records SET record = ?, leaf = ? WHERE seq = ?",
                (record, leaf_hash(record), seq),
            )


def replace_through_a_conflict(sample: SampleLedger) -> None:
    """INSERT OR REPLACE at head + 1 with the id of seq 13: the conflict deletes seq 13, and without
    recursive_triggers no DELETE trigger fires."""
    with sample.connected() as connection:
        connection.execute("PRAGMA recursive_triggers = OFF")
        connection.execute(
            "INSERT OR REPLACE INTO records SELECT 31, leaf, id, type, stream, 9, at, actor, "
            'cause, "index", run, record FROM records WHERE seq = 13'
        )


def truncate_head(sample: SampleLedger) -> None:
    with sample.tampering() as connection:
        connection.execute("DELETE FROM records WHERE seq < 3")


def truncate_tail(sample: SampleLedger) -> None:
    with sample.tampering() as connection:
        connection.execute("DELETE FROM records WHERE seq > 27")


def truncate_with_checkpoint_rows(sample: SampleLedger) -> None:
    truncate_tail(sample)
    with sample.connected() as connection:
        connection.execute("DELETE FROM checkpoints WHERE size > 28")


def truncate_and_grow_again(sample: SampleLedger) -> None:
    truncate_with_checkpoint_rows(sample)
    sample.grow(9, sign=False)


def wrong_version(sample: SampleLedger) -> None:
    """A stream skips a version; chained and signed by the owner of the key."""
    sample.rewrite({13: lambda record: {**record, "version": 7}, 14: lambda r: {**r, "version": 8}})
    sample.sign_again()


def clock_backward(sample: SampleLedger) -> None:
    sample.rewrite({13: lambda record: {**record, "at": "2001-01-01T00:00:00.000000Z"}})
    sample.sign_again()


def years_ahead(sample: SampleLedger) -> None:
    """A clock that was far ahead for the last record is odd and no contradiction."""
    sample.rewrite({30: lambda record: {**record, "at": "2099-01-01T00:00:00.000000Z"}})
    sample.sign_again()


def unknown_type(sample: SampleLedger) -> None:
    sample.rewrite({13: lambda record: {**record, "type": "protocol.broken.v9"}})
    sample.sign_again()


def artifact_of_an_unknown_type(sample: SampleLedger) -> None:
    """A later version of this program recorded it; what it names is altered."""
    sample.rewrite({12: lambda record: {**record, "type": "tool.called.v9"}})
    sample.sign_again()
    alter_artifact(sample)


def artifact_of_an_unknown_type_that_is_none(sample: SampleLedger) -> None:
    ref = {"digest": ["a"], "length": 1.5, "media_type": None}
    data = {"of": [{"a": ref}]}
    sample.rewrite({13: lambda record: {**record, "type": "tool.called.v9", "data": data}})
    sample.sign_again()


def hostile_strings(sample: SampleLedger) -> None:
    """Escape sequences and direction marks in what a report would show."""
    sample.rewrite({13: lambda record: {**record, "type": "\x1b[2J\u202e\u0007"}})
    sample.sign_again()


def list_of_tasks_that_is_none(sample: SampleLedger) -> None:
    """An artifact whose content this program cannot read may name others: that is said."""
    ref = json.loads(sample.records()[12])["data"]["result"]
    data = {"tasks": ref, "count": 1, "packs": {}}
    sample.rewrite({13: lambda record: {**record, "type": "tasks.frozen.v1", "data": data}})
    sample.sign_again()


def wrong_data(sample: SampleLedger) -> None:
    """Data that its own type refuses: replay would stop there."""
    sample.rewrite({13: b'{"turn":"none"}'})
    sample.sign_again()


def duplicate_key(sample: SampleLedger) -> None:
    """Two readers could disagree about which of the two counts."""
    sample.rewrite({13: b'{"turn":0,"turn":1,"kind":"unknown_tool","detail":"rm"}'})
    sample.sign_again()


def white_space(sample: SampleLedger) -> None:
    sample.rewrite({13: b'{"turn": 0,"kind":"unknown_tool","detail":"rm"}'})
    sample.sign_again()


def deep_record(sample: SampleLedger) -> None:
    sample.rewrite({13: b"[" * 70 + b"]" * 70})
    sample.sign_again()


def edit_data(data: bytes, raw: bool = False) -> Callable[[SampleLedger], None]:
    """Seq 13 holds this data, signed by the owner. ``raw``: no program of ours would encode it."""

    def attack(sample: SampleLedger) -> None:
        if not raw:
            sample.rewrite({13: data})
            sample.sign_again()
            return
        record = sample.records()[13]
        raw_record(record[: record.index(b'"data":') + 7] + data + b"}")(sample)

    return attack


def raw_record(content: bytes) -> Callable[[SampleLedger], None]:
    """Seq 13 holds bytes that are no record; leaf and all later links are computed from them."""

    def attack(sample: SampleLedger) -> None:
        with sample.tampering() as connection:
            connection.execute(
                "UPDATE records SET record = ?, leaf = ? WHERE seq = 13",
                (content, leaf_hash(content)),
            )
        sample.rewrite({14: lambda record: {**record, "prev": leaf_hash(content).hex()}})
        sample.sign_again()

    return attack


# --- the database --------------------------------------------------------------------------------


def drop_trigger(sample: SampleLedger) -> None:
    with sample.connected() as connection:
        connection.execute("DROP TRIGGER records_delete")


def blunt_trigger(sample: SampleLedger) -> None:
    """A trigger of the right name that does nothing."""
    with sample.connected() as connection:
        connection.execute("DROP TRIGGER records_delete")
        connection.execute(
            "CREATE TRIGGER records_delete BEFORE DELETE ON records BEGIN SELECT 1; END"
        )


def rebuild_table(sample: SampleLedger) -> None:
    """The table made again without keys and rules; its rows are the same."""
    with sample.connected() as connection:
        connection.execute("CREATE TABLE copy AS SELECT * FROM records")
        connection.execute("DROP TABLE records")
        connection.execute("ALTER TABLE copy RENAME TO records")


@contextmanager
def lenient_table(sample: SampleLedger) -> Iterator[sqlite3.Connection]:
    """The table without STRICT for a while; the schema reads as before in the end."""
    query = "UPDATE sqlite_master SET sql = replace(sql, ?, ?) WHERE name = 'records'"
    with sample.tampering() as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(query, (") STRICT", ") /* */"))
    with sample.tampering() as connection:
        yield connection
    with sample.connected() as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(query, (") /* */", ") STRICT"))


def column_of_another_kind(sample: SampleLedger) -> None:
    """A BLOB where text belongs, which no STRICT table takes."""
    with lenient_table(sample) as connection:
        connection.execute("UPDATE records SET actor = CAST('\xff' AS BLOB) WHERE seq = 13")


def extra_table(sample: SampleLedger) -> None:
    with sample.connected() as connection:
        connection.execute("CREATE TABLE notes (text TEXT)")


def another_version(sample: SampleLedger) -> None:
    with sample.connected() as connection:
        connection.execute("PRAGMA user_version = 7")


def drop_delivery(sample: SampleLedger) -> None:
    with sample.connected() as connection:
        connection.execute("DROP TABLE delivery")


def edit_delivery(sample: SampleLedger) -> None:
    """Leases are not facts."""
    with sample.connected() as connection:
        connection.execute("INSERT INTO delivery (seq, command, role) VALUES (9, 'none', 'cell')")
        connection.execute("UPDATE delivery SET lease = 'stolen', deadline = 1 << 60")


def view_instead_of_table(sample: SampleLedger) -> None:
    with sample.connected() as connection:
        for name in ("records_insert", "records_update", "records_delete"):
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute("ALTER TABLE records RENAME TO hidden")
        connection.execute("CREATE VIEW records AS SELECT * FROM hidden")


ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 0 UNION ALL SELECT x + 1 FROM c)"


def endless_records(sample: SampleLedger) -> None:
    """A view with a first row and never a last one."""
    with sample.connected() as connection:
        for name in ("records_insert", "records_update", "records_delete"):
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute("ALTER TABLE records RENAME TO hidden")
        connection.execute(
            f"CREATE VIEW records AS {ENDLESS} SELECT x AS seq, leaf, id, type, stream, version, "
            'at, actor, cause, "index", run, record FROM c JOIN hidden ON hidden.seq = 0'
        )


def endless_checkpoints(sample: SampleLedger) -> None:
    with sample.connected() as connection:
        connection.execute("DROP TABLE checkpoints")
        connection.execute(
            f"CREATE VIEW checkpoints (size, note) AS {ENDLESS} SELECT x, x'00' FROM c"
        )


def generated_column(sample: SampleLedger) -> None:
    """A column that takes long to compute for every row that is read."""
    rebuild_table(sample)
    with sample.connected() as connection:
        connection.execute("ALTER TABLE records RENAME TO hidden")
        connection.execute("CREATE TABLE records (seq INTEGER PRIMARY KEY, record BLOB)")
        connection.execute("INSERT INTO records SELECT seq, record FROM hidden")
        connection.execute(
            "ALTER TABLE records ADD COLUMN leaf BLOB AS (instr(hex(zeroblob(900000)),"
            " hex(zeroblob(800000)) || '1'))"
        )


def extra_trigger(sample: SampleLedger) -> None:
    with sample.connected() as connection:
        connection.execute(
            "CREATE TRIGGER more AFTER INSERT ON records BEGIN DELETE FROM checkpoints; END"
        )


def schema_that_is_no_text(sample: SampleLedger) -> None:
    """Words in the schema that are not UTF-8."""
    with sample.connected() as connection:
        connection.execute("CREATE TABLE strange (text TEXT DEFAULT '?????')")
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "UPDATE sqlite_master SET sql = CAST(replace(CAST(sql AS BLOB), '?????', "
            "x'fffefdfcfb') AS TEXT) WHERE name = 'strange'"
        )


def move_record(seq: int) -> Callable[[SampleLedger], None]:
    def attack(sample: SampleLedger) -> None:
        with sample.tampering() as connection:
            connection.execute("UPDATE records SET seq = ? WHERE seq = 30", (seq,))

    return attack


def hide_a_record_before_the_first(sample: SampleLedger) -> None:
    """A row more, where nobody looks who begins at 0."""
    with sample.tampering() as connection:
        connection.execute(
            "INSERT INTO records SELECT -5, leaf, 'hidden', type, 'hidden', 0, at, actor, NULL, 0, "
            "run, record FROM records WHERE seq = 30"
        )


def delete_every_record(sample: SampleLedger) -> None:
    with sample.tampering() as connection:
        connection.execute("DELETE FROM records")


def delete_first_record(sample: SampleLedger) -> None:
    with sample.tampering() as connection:
        connection.execute("DELETE FROM records WHERE seq = 0")


def delete_delivery(sample: SampleLedger) -> None:
    with sample.connected() as connection:
        connection.execute("DELETE FROM delivery")


def store_text_for_bytes(sample: SampleLedger) -> None:
    """A record as TEXT, which reads the same to many programs."""
    with lenient_table(sample) as connection:
        connection.execute("UPDATE records SET record = CAST(record AS TEXT) WHERE seq = 13")


def column_that_is_no_text(sample: SampleLedger) -> None:
    with sample.tampering() as connection:
        connection.execute("UPDATE records SET actor = CAST(x'fffe' AS TEXT) WHERE seq = 13")


def page_of(sample: SampleLedger, name: str, kind: int) -> int:
    """Offset of a leaf page (kind 13: table, 10: index) of a b-tree; the last such page."""
    content = sample.database.read_bytes()
    with sample.connected() as connection:
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        root = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)
        ).fetchone()[0]
    pending, leaves = [root], []
    while pending:
        page = pending.pop()
        start = (page - 1) * size
        if content[start] == kind:
            leaves.append(start)
            continue
        count = int.from_bytes(content[start + 3 : start + 5], "big")
        pending.append(int.from_bytes(content[start + 8 : start + 12], "big"))
        for cell in range(count):
            place = start + 12 + 2 * cell
            offset = start + int.from_bytes(content[place : place + 2], "big")
            pending.append(int.from_bytes(content[offset : offset + 4], "big"))
    return sorted(leaves)[1 if len(leaves) > 2 else 0]


def zero_page(sample: SampleLedger) -> None:
    """A page in the middle of the table becomes zeros, as after a lost write."""
    start = page_of(sample, "records", 13)
    with open(sample.database, "r+b") as file:
        file.seek(start)
        file.write(bytes(4096))


def zero_last_page(sample: SampleLedger) -> None:
    with sample.connected() as connection:
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        assert size == 4096
    content = bytearray(sample.database.read_bytes())
    last = max(content.rfind(record) for record in sample.records()[-1:])
    content[last // 4096 * 4096 : (last // 4096 + 1) * 4096] = bytes(4096)
    sample.database.write_bytes(bytes(content))


def flip_bit_in_payload(sample: SampleLedger) -> None:
    content = bytearray(sample.database.read_bytes())
    place = content.index(b'"detail":"rm"', content.index(sample.records()[13]))
    content[place + 10] ^= 1
    sample.database.write_bytes(bytes(content))


def flip_bit_in_index(sample: SampleLedger) -> None:
    """The index over causes names a command that does not exist."""
    identifier = json.loads(sample.records()[13])["cause"].encode()
    content = bytearray(sample.database.read_bytes())
    start = page_of(sample, "records_cause", 10)
    place = content.index(identifier, start)
    assert place < start + 4096
    content[place] ^= 1
    sample.database.write_bytes(bytes(content))


def destroy_header(sample: SampleLedger) -> None:
    content = bytearray(sample.database.read_bytes())
    content[:100] = bytes(100)
    sample.database.write_bytes(bytes(content))


def with_records_in_wal(sample: SampleLedger, keep_wal: bool) -> Path:
    """Replace the database by a copy that was made while its newest records were in the WAL."""
    log = SqliteLog.open(sample.database)
    for number in range(3):
        append_one(log, ProtocolViolated(turn=number, kind="later", detail="in the WAL"))
    Checkpointer(sample.directory).sign(log)
    main, wal = sample.database.read_bytes(), Path(f"{sample.database}-wal").read_bytes()
    log.close()
    sample.database.write_bytes(main)
    path = Path(f"{sample.database}-wal")
    if keep_wal:
        path.write_bytes(wal)
    return path


def copy_main_file_alone(sample: SampleLedger) -> None:
    with_records_in_wal(sample, keep_wal=False)


def delete_wal(sample: SampleLedger) -> None:
    """Only the WAL is deleted; the file beside it shows that there was one."""
    with_records_in_wal(sample, keep_wal=False)
    Path(f"{sample.database}-shm").write_bytes(b"")


def flip_bit_in_wal(sample: SampleLedger) -> None:
    """SQLite takes a WAL up to the first frame whose checksum is wrong."""
    path = with_records_in_wal(sample, keep_wal=True)
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(bytes(content))


def plant_journal(sample: SampleLedger) -> None:
    """SQLite would roll it back into the database when the next writer opens that."""
    Path(f"{sample.database}-journal").write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + bytes(504))


# --- checkpoints ---------------------------------------------------------------------------------


def stranger() -> SigningKey:
    return SigningKey(Ed25519PrivateKey.from_private_bytes(b"\x07" * 32))


def sign_with_wrong_key(sample: SampleLedger) -> None:
    edit_and_recompute(sample)
    sample.sign_again(stranger())


def sign_with_right_key(sample: SampleLedger) -> None:
    edit_and_recompute(sample)
    sample.sign_again()


def look_then_sign_with_right_key(sample: SampleLedger) -> None:
    assert verify(sample.directory.root).status == "verified"
    sign_with_right_key(sample)


def break_signature(sample: SampleLedger) -> None:
    """The root of the newest note is changed, its signature is not."""
    note = sample.notes()[-1]
    lines = note.split(b"\n")
    lines[2] = b"A" + lines[2][1:] if lines[2][:1] != b"A" else b"B" + lines[2][1:]
    forged = b"\n".join(lines)
    with sample.connected() as connection:
        connection.execute("UPDATE checkpoints SET note = ? WHERE size = 31", (forged,))
    sample.log_file.write_bytes(sample.log_file.read_bytes().replace(note, forged))


def scribble_between_notes(sample: SampleLedger) -> None:
    first, *others = sample.notes()
    content = first + b"\nnot a note\n\n" + b"".join(note + b"\n" for note in others)
    sample.log_file.write_bytes(content)


def overwrite_checkpoints(sample: SampleLedger) -> None:
    """With what no crash leaves behind; the rows of the database know better."""
    sample.log_file.write_bytes(b"\xff\xfe\0" * 1000)


def pipe_for_checkpoints(sample: SampleLedger) -> None:
    sample.log_file.unlink()
    os.mkfifo(sample.log_file)


def row_with_note(note: str) -> Callable[[SampleLedger], None]:
    def attack(sample: SampleLedger) -> None:
        with sample.connected() as connection:
            connection.execute(f"UPDATE checkpoints SET note = {note} WHERE size = 11")

    return attack


def wrong_size_in_row(sample: SampleLedger) -> None:
    with sample.connected() as connection:
        connection.execute("UPDATE checkpoints SET size = 12 WHERE size = 11")


def two_histories(sample: SampleLedger) -> None:
    """The owner signed another root for the same size."""
    other = sign_checkpoint(Checkpoint(sample.origin, 21, b"\x05" * 32), sample.signing_key)
    sample.log_file.write_bytes(sample.log_file.read_bytes() + other + b"\n")


def restore_older_backup(sample: SampleLedger) -> None:
    """Database and checkpoints of an earlier day are put back; the verifier has seen more."""
    older = sample.directory.root / "older"
    shutil.copytree(sample.directory.var, older)
    sample.grow(5)
    assert verify(sample.directory.root).status == "verified"
    shutil.rmtree(sample.directory.var)
    older.rename(sample.directory.var)


def restore_older_database(sample: SampleLedger) -> None:
    """The same, but checkpoints.log was left in place; nothing was seen before."""
    older = sample.database.read_bytes()
    sample.grow(5)
    sample.database.write_bytes(older)


def forget_checkpoints(sample: SampleLedger) -> None:
    with sample.connected() as connection:
        connection.execute("DELETE FROM checkpoints")
    sample.log_file.unlink()


def another_ledger_in_its_place(sample: SampleLedger) -> None:
    """A ledger with another identity, consistent in itself and signed by the owner."""
    sample.rewrite({0: data_with(uuid="018f0000-0000-7000-8000-000000000000")})
    notes = sample.notes()
    sample.sign_again()
    origin = f"sample/{'018f0000-0000-7000-8000-000000000000'}"
    content = b""
    with sample.connected() as connection:
        for note in sample.notes():
            _, size, root = note.split(b"\n")[:3]
            checkpoint = Checkpoint(origin, int(size), base64.b64decode(root))
            forged = sign_checkpoint(checkpoint, sample.signing_key)
            connection.execute(
                "UPDATE checkpoints SET note = ? WHERE size = ?", (forged, int(size))
            )
            content += forged + b"\n"
    assert len(notes) == 4
    sample.log_file.write_bytes(content)


def kept_note(sample: SampleLedger) -> Options:
    """The note over 21 records as the auditor kept it; the owner's history is another now."""
    return Options(against=((sample.directory.root / "kept").read_bytes(),), last_seen=False)


def split_view(sample: SampleLedger) -> None:
    (sample.directory.root / "kept").write_bytes(sample.notes()[2])
    sign_with_right_key(sample)


# --- artifacts -----------------------------------------------------------------------------------


def alter_artifact(sample: SampleLedger) -> None:
    path = sample.artifact_of(12)
    path.write_bytes(zlib.compress(b"def function_2(): return None\n" * 40))


def damage_artifact(sample: SampleLedger) -> None:
    path = sample.artifact_of(12)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def truncate_artifact(sample: SampleLedger) -> None:
    path = sample.artifact_of(12)
    path.write_bytes(path.read_bytes()[:-7])


def lengthen_artifact(sample: SampleLedger) -> None:
    path = sample.artifact_of(12)
    path.write_bytes(path.read_bytes() + b"more")


def link_artifact(sample: SampleLedger) -> None:
    """The same bytes, but behind a link that can point elsewhere tomorrow."""
    path = sample.artifact_of(12)
    path.rename(sample.directory.root / "elsewhere")
    path.symlink_to(sample.directory.root / "elsewhere")


def link_folder_of_artifact(sample: SampleLedger) -> None:
    folder = sample.artifact_of(12).parent
    folder.rename(sample.directory.root / "elsewhere")
    folder.symlink_to(sample.directory.root / "elsewhere")


def pipe_for_artifact(sample: SampleLedger) -> None:
    path = sample.artifact_of(12)
    path.unlink()
    os.mkfifo(path)


def device_for_artifact(sample: SampleLedger) -> None:
    path = sample.artifact_of(12)
    path.unlink()
    path.symlink_to("/dev/zero")


def folder_for_artifact(sample: SampleLedger) -> None:
    path = sample.artifact_of(12)
    path.unlink()
    path.mkdir()


def file_for_folder_of_artifact(sample: SampleLedger) -> None:
    folder = sample.artifact_of(12).parent
    shutil.rmtree(folder)
    folder.write_bytes(b"")


def remove_folder_of_artifact(sample: SampleLedger) -> None:
    shutil.rmtree(sample.artifact_of(12).parent)


def name_no_artifact(**changes: Any) -> Callable[[SampleLedger], None]:
    """A record, signed by the owner, that names what can be no artifact."""

    def edit(record: dict[str, Any]) -> dict[str, Any]:
        result = {**record["data"]["result"], **changes}
        return {**record, "data": {**record["data"], "result": result}}

    def attack(sample: SampleLedger) -> None:
        sample.rewrite({12: edit})
        sample.sign_again()

    return attack


def bomb_for_artifact(sample: SampleLedger) -> None:
    """64 MiB of zeros in 64 KiB."""
    sample.artifact_of(12).write_bytes(zlib.compress(bytes(64 << 20)))


def remove_artifact(sample: SampleLedger) -> None:
    sample.artifact_of(12).unlink()


def erase_artifact(sample: SampleLedger) -> None:
    """Content that was recorded as erasable may go: the chain stays whole."""
    sample.artifact_of(27, "arguments").unlink()


FULL_TABLE_GONE = [
    ("TRIGGER_MISSING", None),
    ("TRIGGER_MISSING", None),
    ("TRIGGER_MISSING", None),
    ("SCHEMA_DRIFT", None),
]

ATTACKS: dict[str, Attack] = {
    "nothing": Attack(lambda sample: None, [], 0),
    "record edited": Attack(edit_record, [("LEAF", 13), ("LINK", 14), ("ROOT_MISMATCH", 20)]),
    "record and leaf edited": Attack(edit_record_and_leaf, [("LINK", 14), ("ROOT_MISMATCH", 20)]),
    "leaf edited": Attack(edit_leaf, [("LEAF", 13)]),
    "column edited": Attack(edit_column, [("COLUMN_MISMATCH", 13)]),
    "edited and recomputed": Attack(edit_and_recompute, [("ROOT_MISMATCH", 20)]),
    "edited behind the checkpoint": Attack(edit_behind_the_newest_checkpoint, [("LINK", 33)]),
    "rows deleted": Attack(delete_rows, [("SEQ_GAP", 12), ("ROOT_MISMATCH", 20)]),
    "deleted and closed": Attack(
        delete_and_close_the_gap,
        [
            ("WAL_MISSING_SUSPECTED", None),
            ("STREAM_VERSION", 13),
            ("ROOT_MISMATCH", 20),
            ("TRUNCATED_BELOW_CHECKPOINT", 30),
        ],
    ),
    "records swapped": Attack(
        swap_records,
        [
            ("LINK", 13),
            ("COLUMN_MISMATCH", 13),
            ("STREAM_VERSION", 13),
            ("LINK", 14),
            ("COLUMN_MISMATCH", 14),
            ("STREAM_VERSION", 14),
            ("LINK", 15),
            ("ROOT_MISMATCH", 20),
        ],
    ),
    "replaced through a conflict": Attack(
        replace_through_a_conflict,
        [
            ("SEQ_GAP", 13),
            ("ROOT_MISMATCH", 20),
            ("LINK", 31),
            ("COLUMN_MISMATCH", 31),
            ("STREAM_VERSION", 31),
            ("CLOCK_BACKWARD", 31),
        ],
    ),
    "head truncated": Attack(truncate_head, [("SEQ_GAP", 0), ("ROOT_MISMATCH", 0)]),
    "tail truncated": Attack(
        truncate_tail, [("WAL_MISSING_SUSPECTED", None), ("TRUNCATED_BELOW_CHECKPOINT", 30)]
    ),
    "tail and rows truncated": Attack(
        truncate_with_checkpoint_rows,
        [("WAL_MISSING_SUSPECTED", None), ("TRUNCATED_BELOW_CHECKPOINT", 30)],
    ),
    "truncated and grown": Attack(truncate_and_grow_again, [("ROOT_MISMATCH", 30)]),
    "version skipped": Attack(wrong_version, [("STREAM_VERSION", 13)]),
    "clock backward": Attack(clock_backward, [("CLOCK_BACKWARD", 13)], 0),
    "years ahead": Attack(years_ahead, [], 0),
    "unknown type": Attack(unknown_type, [("UNKNOWN_TYPE", 13)], 0),
    "artifact of an unknown type": Attack(
        artifact_of_an_unknown_type, [("UNKNOWN_TYPE", 12), ("ARTIFACT_ALTERED", 12)]
    ),
    "artifact of an unknown type that is none": Attack(
        artifact_of_an_unknown_type_that_is_none, [("UNKNOWN_TYPE", 13), ("ARTIFACT_ALTERED", 13)]
    ),
    "hostile strings": Attack(hostile_strings, [("UNKNOWN_TYPE", 13)], 0),
    "list of tasks that is none": Attack(list_of_tasks_that_is_none, [("UNKNOWN_TYPE", 13)], 0),
    "wrong data": Attack(wrong_data, [("NON_CANONICAL", 13)]),
    "duplicate key": Attack(duplicate_key, [("NON_CANONICAL", 13)]),
    "white space": Attack(white_space, [("NON_CANONICAL", 13)]),
    "deep record": Attack(deep_record, [("NON_CANONICAL", 13)]),
    "a key twice beside a fraction": Attack(
        edit_data(b'{"turn":0,"turn":1,"kind":"k","detail":1.5}'), [("NON_CANONICAL", 13)]
    ),
    "not a number": Attack(edit_data(b'{"turn":NaN}', raw=True), [("NON_CANONICAL", 13)]),
    "half a million deep": Attack(
        edit_data(b"[" * 500_000 + b"]" * 500_000, raw=True), [("NON_CANONICAL", 13)]
    ),
    "a million deep, and too large": Attack(
        edit_data(b"[" * 1_000_000 + b"]" * 1_000_000, raw=True), [("NON_CANONICAL", 13)]
    ),
    "a million brackets": Attack(raw_record(b"[" * 1_000_000), [("NON_CANONICAL", 13)]),
    "invalid UTF-8": Attack(raw_record(b'{"seq":13,"prev":"\xff"}'), [("NON_CANONICAL", 13)]),
    "trigger dropped": Attack(drop_trigger, [("TRIGGER_MISSING", None)]),
    "trigger blunted": Attack(blunt_trigger, [("SCHEMA_DRIFT", None)]),
    "table rebuilt": Attack(rebuild_table, FULL_TABLE_GONE),
    "column of another kind": Attack(
        column_of_another_kind, [("DB_CORRUPT", None), ("COLUMN_MISMATCH", 13)]
    ),
    "endless view of records": Attack(endless_records, FULL_TABLE_GONE),
    "endless view of checkpoints": Attack(endless_checkpoints, [("SCHEMA_DRIFT", None)]),
    "generated column": Attack(generated_column, FULL_TABLE_GONE),
    "extra trigger": Attack(extra_trigger, [("SCHEMA_DRIFT", None)]),
    "schema that is no text": Attack(schema_that_is_no_text, [("DB_CORRUPT", None)]),
    "text for bytes": Attack(store_text_for_bytes, [("DB_CORRUPT", None), ("NON_CANONICAL", 13)]),
    "column that is no text": Attack(column_that_is_no_text, [("COLUMN_MISMATCH", 13)]),
    "record moved to the end of numbers": Attack(
        move_record((1 << 63) - 1),
        [("SEQ_GAP", 30), ("ROOT_MISMATCH", 30), ("COLUMN_MISMATCH", (1 << 63) - 1)],
    ),
    "record moved before the first": Attack(
        move_record(-5),
        [
            ("SEQ_DUP", -5),
            ("CLOCK_BACKWARD", 0),
            ("WAL_MISSING_SUSPECTED", None),
            ("TRUNCATED_BELOW_CHECKPOINT", 30),
        ],
    ),
    "record hidden before the first": Attack(
        hide_a_record_before_the_first, [("SEQ_DUP", -5), ("CLOCK_BACKWARD", 0)]
    ),
    "every record deleted": Attack(
        delete_every_record,
        [("WAL_MISSING_SUSPECTED", None), ("TRUNCATED_BELOW_CHECKPOINT", 30)],
    ),
    "first record deleted": Attack(delete_first_record, [("SEQ_GAP", 0), ("ROOT_MISMATCH", 0)]),
    "delivery deleted": Attack(delete_delivery, [], 0),
    "extra table": Attack(extra_table, [("SCHEMA_DRIFT", None)]),
    "another version": Attack(another_version, [("SCHEMA_DRIFT", None)]),
    "delivery dropped": Attack(drop_delivery, [("SCHEMA_DRIFT", None)]),
    "delivery edited": Attack(edit_delivery, [], 0),
    "view instead of table": Attack(view_instead_of_table, FULL_TABLE_GONE),
    "page zeroed": Attack(
        zero_page, [("DB_CORRUPT", None), ("DB_CORRUPT", 6), ("ROOT_MISMATCH", 10)]
    ),
    "last page zeroed": Attack(
        zero_last_page, [("DB_CORRUPT", None), ("DB_CORRUPT", 27), ("ROOT_MISMATCH", 30)]
    ),
    "bit flipped in payload": Attack(
        flip_bit_in_payload, [("LEAF", 13), ("LINK", 14), ("ROOT_MISMATCH", 20)]
    ),
    "bit flipped in index": Attack(flip_bit_in_index, [("DB_CORRUPT", None)]),
    "header destroyed": Attack(destroy_header, [("DB_CORRUPT", None)]),
    "main file alone": Attack(
        copy_main_file_alone,
        [("WAL_MISSING_SUSPECTED", None), ("TRUNCATED_BELOW_CHECKPOINT", 33)],
    ),
    "WAL deleted": Attack(
        delete_wal, [("WAL_MISSING_SUSPECTED", None), ("TRUNCATED_BELOW_CHECKPOINT", 33)]
    ),
    "bit flipped in WAL": Attack(flip_bit_in_wal, [("TRUNCATED_BELOW_CHECKPOINT", 33)]),
    "journal planted": Attack(plant_journal, [("DB_CORRUPT", None)]),
    "signed with wrong key": Attack(
        sign_with_wrong_key,
        [("KEY_UNKNOWN", 0), ("KEY_UNKNOWN", 10), ("KEY_UNKNOWN", 20), ("KEY_UNKNOWN", 30)],
    ),
    "signed with right key": Attack(sign_with_right_key, [], 0),
    "signed with right key, seen before": Attack(look_then_sign_with_right_key, [("FORK", 30)]),
    "split view": Attack(split_view, [("FORK", 20), ("FORK", 20)], options=kept_note),
    "signature broken": Attack(break_signature, [("SIG_BAD", 30)]),
    "scribbled between notes": Attack(scribble_between_notes, [("SIG_BAD", None)]),
    "checkpoints overwritten": Attack(overwrite_checkpoints, [("SIG_BAD", None)]),
    "checkpoints are a pipe": Attack(pipe_for_checkpoints, [("SIG_BAD", None)]),
    "row that is no note": Attack(row_with_note("x'00'"), [("SIG_BAD", None)]),
    "row without a note": Attack(row_with_note("x''"), [("SIG_BAD", None)]),
    "row with two notes": Attack(
        row_with_note("CAST(note || x'0a' || note AS BLOB)"), [("SIG_BAD", None)]
    ),
    # Larger than what is read at all: the other rows are read all the same.
    "row with 5 MB": Attack(row_with_note("zeroblob(5000000)"), [("SIG_BAD", None)]),
    "wrong size in row": Attack(wrong_size_in_row, [("COLUMN_MISMATCH", 10)]),
    "two histories": Attack(two_histories, [("ROOT_MISMATCH", 20), ("FORK", 20)]),
    "older backup": Attack(
        restore_older_backup,
        [("WAL_MISSING_SUSPECTED", None), ("TRUNCATED_BELOW_CHECKPOINT", 35)],
    ),
    "older database": Attack(
        restore_older_database,
        [("WAL_MISSING_SUSPECTED", None), ("TRUNCATED_BELOW_CHECKPOINT", 35)],
    ),
    "checkpoints forgotten": Attack(forget_checkpoints, [], 4),
    "another ledger": Attack(
        another_ledger_in_its_place,
        [("KEY_UNKNOWN", 0), ("KEY_UNKNOWN", 10), ("KEY_UNKNOWN", 20), ("KEY_UNKNOWN", 30)],
    ),
    "artifact altered": Attack(alter_artifact, [("ARTIFACT_ALTERED", 12)]),
    "artifact damaged": Attack(damage_artifact, [("ARTIFACT_ALTERED", 12)]),
    "artifact truncated": Attack(truncate_artifact, [("ARTIFACT_ALTERED", 12)]),
    "artifact lengthened": Attack(lengthen_artifact, [("ARTIFACT_ALTERED", 12)]),
    "artifact is a link": Attack(link_artifact, [("ARTIFACT_ALTERED", 12)]),
    "artifact behind a link": Attack(link_folder_of_artifact, [("ARTIFACT_ALTERED", 12)]),
    "artifact is a pipe": Attack(pipe_for_artifact, [("ARTIFACT_ALTERED", 12)]),
    "artifact is a link to a device": Attack(device_for_artifact, [("ARTIFACT_ALTERED", 12)]),
    "artifact is a folder": Attack(folder_for_artifact, [("ARTIFACT_ALTERED", 12)]),
    "artifact behind a file": Attack(file_for_folder_of_artifact, [("ARTIFACT_ALTERED", 12)]),
    "artifact's folder removed": Attack(remove_folder_of_artifact, [("ARTIFACT_MISSING", 12)]),
    "artifact that is no digest": Attack(
        name_no_artifact(digest="../../../../etc/passwd"), [("ARTIFACT_ALTERED", 12)]
    ),
    "artifact of another length": Attack(name_no_artifact(length=839), [("ARTIFACT_ALTERED", 12)]),
    "artifact of a petabyte": Attack(
        name_no_artifact(length=(1 << 53) - 1), [("ARTIFACT_ALTERED", 12)]
    ),
    "artifact is a bomb": Attack(bomb_for_artifact, [("ARTIFACT_ALTERED", 12)]),
    "artifact removed": Attack(remove_artifact, [("ARTIFACT_MISSING", 12)]),
    "artifact erased": Attack(erase_artifact, [("ARTIFACT_MISSING", 27)], 0),
}


UNSEEN = {
    "wrong data": "NOT CHECKED events by their types",
    "signed with right key, seen before": "an older copy put back",
    "split view": "or against the owner of the key",
    "older backup": "an older copy put back",
}
"""Where the two verifiers differ: one file without types and without memory cannot know, and says
what it did not check."""


def found(report: Report) -> list[tuple[str, int | None]]:
    return [(finding.code, finding.seq) for finding in report.findings]


def sorted_findings(findings: list[tuple[str, int | None]]) -> list[tuple[str, int]]:
    return sorted((code, -1 if seq is None else seq) for code, seq in findings)


def run_independent(sample: SampleLedger, key: str, capsys: pytest.CaptureFixture[str]) -> int:
    """Run the file as a program does, in this process: it starts without its state."""
    capsys.readouterr()
    namespace = runpy.run_path(str(INDEPENDENT))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [str(INDEPENDENT), str(sample.directory.root), "--key", key])
        status: int = namespace["main"]()
    return status


REACHED: set[tuple[str, int]] = set()
"""(module, line) of every call that made a finding of an attack."""
ATTACKED: set[str] = set()
MODULES = (
    ledger.verify.record_checks,
    ledger.sqlite.checks,
    ledger.verify.final_checks,
    ledger.verify.verification,
)
TABLES = (
    (ledger.verify.verification, "RECORD_CHECKS"),
    (ledger.sqlite.records, "DATABASE_CHECKS"),
    (ledger.verify.verification, "FINAL_CHECKS"),
)


def verify_noting(name: str, path: Path, options: Options) -> Report:
    """Verify, and remember which lines of the code made the findings."""

    def note(*values: Any) -> Finding:
        frame = sys._getframe(1)
        REACHED.add((frame.f_globals["__name__"], frame.f_lineno))
        return Finding(*values)

    ATTACKED.add(name)
    with pytest.MonkeyPatch.context() as patch:
        for module in MODULES:
            patch.setattr(module, "Finding", note)
        return verify(path, options=options)


@pytest.mark.parametrize("name", ATTACKS)
def test_attack(sample: SampleLedger, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    attack = ATTACKS[name]
    key = str(sample.key)
    attack.do(sample)
    before = snapshot(sample.directory.root)
    report = verify_noting(name, sample.directory.root, attack.options(sample))
    assert snapshot(sample.directory.root) == before, "verification wrote to the ledger"
    assert sorted_findings(found(report)) == sorted_findings(attack.findings)
    assert exit_status(report) == attack.status
    # Whatever a ledger holds, a report is one line of printable ASCII for each value.
    for finding in report.findings:
        assert f"{finding.expected}{finding.got}".isascii()
        assert f"{finding.expected}{finding.got}".isprintable()
    status = run_independent(sample, key, capsys)
    output = capsys.readouterr().out
    agreed = 3 if attack.status == 3 and name not in UNSEEN else 0
    assert status == agreed, output
    assert name not in UNSEEN or UNSEEN[name] in output
    assert output.isascii() and output.replace("\n", "").isprintable()


def snapshot(root: Path) -> dict[str, tuple[int, int]]:
    """Size and time of change of every file, but SQLite's shared memory (made where a WAL is)."""
    return {
        str(path): (path.lstat().st_size, path.lstat().st_mtime_ns)
        for path in sorted(root.rglob("*"))
        if not path.is_dir() and path.suffix != ".db-shm"
    }


# --- every check is needed -----------------------------------------------------------------------

SWITCHED_OFF: dict[str, str] = {
    "Positions": "rows deleted",
    "Links": "edited behind the checkpoint",
    "StoredLeaves": "leaf edited",
    "CanonicalForm": "duplicate key",
    "StreamVersions": "version skipped",
    "KnownTypes": "unknown type",
    "Clock": "clock backward",
    "NamedArtifacts": "artifact altered",
    "Roots": "edited and recomputed",
    "check_triggers": "trigger dropped",
    "check_schema": "trigger blunted",
    "check_integrity": "bit flipped in index",
    "check_columns": "column edited",
    "check_missing_wal": "main file alone",
    "check_signatures": "signed with wrong key",
    "check_checkpoint_rows": "wrong size in row",
    "check_forks": "two histories",
    "check_length": "bit flipped in WAL",
}
"""For each check an attack that only it finds completely."""


@pytest.mark.parametrize(
    "check",
    [check for module, table in TABLES for check in getattr(module, table)],
    ids=lambda check: check.__name__,
)
def test_without_a_check_an_attack_is_missed(
    sample: SampleLedger, check: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack = ATTACKS[SWITCHED_OFF[check.__name__]]
    attack.do(sample)
    for module, table in TABLES:
        others = tuple(c for c in getattr(module, table) if c is not check)
        monkeypatch.setattr(module, table, others)
    report = verify(sample.directory.root, options=attack.options(sample))
    missed = [entry for entry in attack.findings if entry not in found(report)]
    assert missed
    assert set(found(report)) < set(attack.findings)


def test_every_code_has_an_attack() -> None:
    codes = {code for attack in ATTACKS.values() for code, _ in attack.findings}
    codes |= {code for attack in EXPORT_ATTACKS.values() for code, _ in attack.findings}
    assert codes == set(get_args(Code))


# --- exports -------------------------------------------------------------------------------------


class ExportAttack(NamedTuple):
    """An attack on the lines of an exported ledger."""

    do: Callable[[list[bytes]], list[bytes]]
    findings: list[tuple[str, int | None]]


EXPORT_ATTACKS: dict[str, ExportAttack] = {
    "nothing": ExportAttack(lambda lines: lines, []),
    "line repeated": ExportAttack(
        lambda lines: [*lines[:14], lines[13], *lines[14:]],
        [("SEQ_DUP", 13), ("STREAM_VERSION", 13), ("ROOT_MISMATCH", 20)],
    ),
    "lines swapped": ExportAttack(
        lambda lines: [*lines[:13], lines[14], lines[13], *lines[15:]],
        [("SEQ_GAP", 13), ("SEQ_DUP", 13), ("STREAM_VERSION", 13), ("ROOT_MISMATCH", 20)],
    ),
    "line removed": ExportAttack(
        lambda lines: [*lines[:13], *lines[14:]], [("SEQ_GAP", 13), ("ROOT_MISMATCH", 20)]
    ),
    "line edited": ExportAttack(
        lambda lines: [*lines[:13], lines[13].replace(b'"rm"', b'"ls"'), *lines[14:]],
        [("LINK", 14), ("ROOT_MISMATCH", 20)],
    ),
    "line of 3 MiB": ExportAttack(
        # What comes behind it is read all the same.
        lambda lines: [
            *lines[:13],
            b" " * (3 << 20),
            *lines[14:17],
            lines[17].replace(b":", b": ", 1),
            *lines[18:],
        ],
        [("NON_CANONICAL", 13), ("NON_CANONICAL", 17), ("LINK", 18), ("ROOT_MISMATCH", 20)],
    ),
    "line of 70 MiB": ExportAttack(
        # It might have no end at all.
        lambda lines: [*lines[:13], b" " * (70 << 20), *lines[14:]],
        [("NON_CANONICAL", 13), ("TRUNCATED_BELOW_CHECKPOINT", 30)],
    ),
    "two lines of 40 MiB": ExportAttack(
        # Nor may many of them take for ever together.
        lambda lines: [*lines[:13], b" " * (40 << 20), b" " * (40 << 20), *lines[15:]],
        [("NON_CANONICAL", 13), ("NON_CANONICAL", 14), ("TRUNCATED_BELOW_CHECKPOINT", 30)],
    ),
    "line cut": ExportAttack(
        lambda lines: [*lines[:-1], lines[-1][:-20]],
        [("NON_CANONICAL", 30), ("ROOT_MISMATCH", 30)],
    ),
    "end cut": ExportAttack(lambda lines: lines[:25], [("TRUNCATED_BELOW_CHECKPOINT", 30)]),
    "carriage returns": ExportAttack(
        lambda lines: [line + b"\r" for line in lines[:2]] + lines[2:],
        [
            ("NON_CANONICAL", 0),
            ("ROOT_MISMATCH", 0),
            ("LINK", 1),
            ("NON_CANONICAL", 1),
            ("LINK", 2),
        ],
    ),
}


@pytest.mark.parametrize(
    "seq", [b"99999999999999999999999", b"-1", b"9007199254740993", b"1.5", b'"13"', b"null"]
)
def test_no_position_in_a_line_breaks_verification(
    sample: SampleLedger, seq: bytes, tmp_path: Path
) -> None:
    folder = tmp_path / "export"
    export(sample.directory.root, folder)
    content = (folder / "records.jsonl").read_bytes()
    (folder / "records.jsonl").write_bytes(content.replace(b'{"seq":13,', b'{"seq":' + seq + b","))
    report = verify(folder, options=Options(key=str(sample.key), require="self"))
    assert exit_status(report) == 3
    assert ("ROOT_MISMATCH", 20) in found(report)


@pytest.mark.parametrize(
    "seq",
    [-9_223_372_036_854_775_808, -5, 4_611_686_018_427_387_904, 9_223_372_036_854_775_807],
)
def test_no_position_in_a_table_breaks_verification(
    sample: SampleLedger, seq: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the column of positions what an attacker likes: a row is moved, and one is added."""
    with sample.tampering() as connection:
        connection.execute("UPDATE records SET seq = ? WHERE seq = 30", (seq,))
    report = verify(sample.directory.root)
    assert exit_status(report) == 3
    assert ("SEQ_GAP", 30) in found(report) if seq > 0 else ("SEQ_DUP", seq) in found(report)
    assert run_independent(sample, str(sample.key), capsys) == 3
    with suppress(Integrity):  # and nothing else
        export(sample.directory.root, tmp_path / "out")
    for open_log in (SqliteLog.open, SqliteLog.open_read_only):
        with suppress(Integrity), closing(open_log(sample.database)) as log:
            assert len(list(log.read(0, 30))) == 30
            Checkpointer(sample.directory).sign(log)


@pytest.mark.parametrize("name", EXPORT_ATTACKS)
def test_attack_on_an_export(
    sample: SampleLedger, name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    attack = EXPORT_ATTACKS[name]
    folder = tmp_path / "export"
    export(sample.directory.root, folder)
    lines = (folder / "records.jsonl").read_bytes().splitlines()
    (folder / "records.jsonl").write_bytes(b"\n".join(attack.do(lines)) + b"\n")
    key = str(sample.key)
    report = verify_noting(f"export: {name}", folder, Options(key=key, require="self"))
    assert sorted_findings(found(report)) == sorted_findings(attack.findings)
    assert exit_status(report) == (3 if attack.findings else 0)
    sample.directory.root = folder
    assert run_independent(sample, key, capsys) == (3 if attack.findings else 0)


# --- every single line that makes a finding is needed --------------------------------------------

FINDINGS_ELSEWHERE = {
    "Finding('DB_CORRUPT', self.following, 'records', shown(str(error)))": (
        "test_verify.py, test_query_that_does_not_end_is_given_up"
    ),
    "Finding('FORK', self.following - 1, expected, f'root {root.hex()}')": (
        "test_verify.py, test_older_copy_of_another_history"
    ),
}
"""By what they are; they take more than one ledger, or a limit that a test must lower."""


def test_every_line_that_makes_a_finding_is_reached() -> None:
    """The attacks expect exactly their findings, so leaving out a line that makes one fails the
    attack which reached it: a mutation test of every single check. It is about the attacks of this
    file, so it follows all of them."""
    every = {*ATTACKS, *(f"export: {name}" for name in EXPORT_ATTACKS)}
    if not every <= ATTACKED:
        pytest.skip("only some of the attacks were run")
    missed = {}
    for module in MODULES:
        tree = ast.parse(Path(str(module.__file__)).read_text("utf-8"))
        for node in ast.walk(tree):
            makes_one = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Finding"
            if makes_one and (module.__name__, node.lineno) not in REACHED:
                missed[ast.unparse(node)] = f"{module.__name__}:{node.lineno}"
    assert missed.keys() == FINDINGS_ELSEWHERE.keys(), missed
