# ruff: noqa: T201  (a program of its own: printing is what it is for)
"""Checks a ledger without any code of the program that wrote it: one file, standard library only.

    python independent_verifier.py PATH [--key VERIFIER_STRING]

PATH is a study directory, its var/, a ledger.db, an exported folder or a file of JSON lines. Take
the verifier string of the owner's key (NAME+ID+BASE64) from where the owner cannot change it. Exit
status: 0 nothing contradicts, 3 something does, 5 it could not be read. What it rests on:
A record is one line of JSON; leaf = SHA-256(0x00 ‖ record); `prev` of a record is the leaf of the
one before; node = SHA-256(0x01 ‖ left ‖ right) (RFC 6962); a checkpoint is a signed note (C2SP); an
artifact is the zlib stream of bytes whose SHA-256 is its name.
"""

import argparse
import base64
import functools
import hashlib
import json
import os
import pathlib
import re
import sqlite3
import sys
import urllib.parse
import zlib
from collections.abc import Container, Iterable, Iterator
from typing import Any

MAX_RECORD = 1 << 20
COLUMNS = ("id", "type", "stream", "version", "at", "actor", "cause", "index", "run")
NOTE = re.compile(rb"([!-~]+)\n(\d{1,20})\n([A-Za-z0-9+/=]{44})\n\n((?:\xe2\x80\x94 [^\n]+\n)+)")
Rows = Iterator[tuple[int | None, Any, Any, tuple[Any, ...] | None]]
Point = tuple[int, int, int, int]
findings: list[str] = []


def finding(code: str, seq: int | None, text: str) -> None:
    findings.append(code)
    print("FINDING", code, "-" if seq is None else f"seq {seq}", ascii(text)[1:400])


# --- Ed25519 (RFC 8032, section 5.1; points in extended coordinates, section 5.1.4) ---------------

P, L = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P


def add(p: Point, q: Point) -> Point:
    a = (p[1] - p[0]) * (q[1] - q[0]) % P
    b = (p[1] + p[0]) * (q[1] + q[0]) % P
    c, d = 2 * p[3] * q[3] * D % P, 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def times(scalar: int, point: Point) -> Point:
    result = (0, 1, 1, 0)
    while scalar:
        if scalar & 1:
            result = add(result, point)
        point, scalar = add(point, point), scalar >> 1
    return result


def decode_point(data: bytes) -> Point | None:
    """Section 5.1.3; None for what is no point."""
    y = int.from_bytes(data, "little")
    sign, y = y >> 255, y & ((1 << 255) - 1)
    if len(data) != 32 or y >= P:
        return None
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    if (x * x - square) % P or (x == 0 and sign):
        return None
    x = P - x if x & 1 != sign else x
    return x, y, 1, x * y % P


BASE = decode_point((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))


def signed_by(public_key: bytes, text: bytes, signature: bytes) -> bool:
    """Section 5.1.7: [S]B = R + [k]A."""
    a, r = decode_point(public_key), decode_point(signature[:32])
    s = int.from_bytes(signature[32:], "little")
    if a is None or r is None or BASE is None or s >= L or len(signature) != 64:
        return False
    k = int.from_bytes(hashlib.sha512(signature[:32] + public_key + text).digest(), "little") % L
    left, right = times(s, BASE), add(r, times(k, a))
    return all((left[i] * right[2] - right[i] * left[2]) % P == 0 for i in (0, 1))


def open_ledger(path: str) -> tuple[Rows, str | None, bytes]:
    """(rows, artifacts' folder, notes); a row is (seq, record, leaf, columns) or only a record."""
    if os.path.isdir(path):
        names = ("ledger.db", os.path.join("var", "ledger.db"), "records.jsonl")
        path = next((p for n in names if os.path.exists(p := os.path.join(path, n))), path)
    with open(path, "rb") as file:
        database = path.endswith(".db") or file.read(16) == b"SQLite format 3\0"
    folder = pathlib.Path(path).absolute().parent
    in_folder = database or os.path.basename(path) == "records.jsonl"
    kept = (folder / "artifacts").is_dir() or database and not (folder / "imported").exists()
    artifacts = str(folder / "artifacts") if in_folder and kept else None
    log = in_folder and folder / "checkpoints.log"
    notes = log.read_bytes() if log and log.exists() else b""
    if database:
        at_rest = not os.path.exists(wal := path + "-wal") or not os.path.getsize(wal)
        mode = "ro&immutable=1" if at_rest else "ro"
        uri = f"file:{urllib.parse.quote(os.path.abspath(path))}?mode={mode}"
        connection = sqlite3.connect(uri, uri=True)
        connection.execute("PRAGMA trusted_schema = OFF")
        try:
            rows = connection.execute("SELECT note FROM checkpoints")
            notes = b"".join(note + b"\n" for (note,) in rows) + notes
        except (sqlite3.Error, TypeError) as error:
            finding("DB_CORRUPT", None, f"checkpoints: {error}")
        return read_rows(connection), artifacts, notes
    return read_lines(path), artifacts, notes


def read_lines(path: str) -> Rows:
    with open(path, "rb") as file:
        while line := file.readline(MAX_RECORD + 2):
            yield None, line.removesuffix(b"\n"), None, None


def read_rows(connection: sqlite3.Connection) -> Rows:
    try:
        if connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
            finding("DB_CORRUPT", None, "SQLite's own check of the file fails")
        names = ", ".join(f'"{name}"' for name in COLUMNS)
        query = f"SELECT seq, record, leaf, {names} FROM records ORDER BY seq"
        yield from ((row[0], row[1], row[2], row[3:]) for row in connection.execute(query))
    except sqlite3.Error as error:
        finding("DB_CORRUPT", None, f"reading stopped: {error}")


def parse(record: bytes) -> dict[str, Any] | None:
    """The record; None unless encoding it gives the same bytes (floats have more than one form)."""
    floats: list[str] = []
    try:
        value = json.loads(record, parse_float=floats.append)
        same = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode() == record
    except (ValueError, RecursionError, TypeError):
        return None
    wanted = ["seq", "prev", *COLUMNS, "data"]
    if not isinstance(value, dict) or [name for name in value if name != "clock"] != wanted:
        return None
    kinds = [type(value[name]) for name in ("seq", "version", "prev", "stream")]
    depth, layer = 0, [value]
    while layer := [item for item in layer if isinstance(item, dict | list)]:
        depth += 1
        layer = [x for v in layer for x in (v.values() if isinstance(v, dict) else v)]
    sound = kinds == [int, int, str, str] and depth <= 64 and len(record) <= MAX_RECORD
    return value if sound and (same or floats) else None


def named(value: Any) -> Iterator[tuple[str, Any, bool]]:
    """Every (digest, length, erasable) that is named in a record's data."""
    if isinstance(value, dict):
        if {"digest", "length", "media_type"} <= value.keys():
            yield str(value["digest"]), value["length"], value.get("erasable") is True
        value = list(value.values())
    for item in value if isinstance(value, list) else ():
        yield from named(item)


def check_artifact(folder: str, digest: str, length: Any, erasable: bool, seq: int) -> None:
    path = os.path.join(folder, digest[:2], digest)
    if not re.fullmatch("[0-9a-f]{64}", digest) or not isinstance(length, int):
        return finding("ARTIFACT_ALTERED", seq, f"{digest} is not a digest")
    if not os.path.lexists(path):
        if erasable:
            return print("NOTE", f"artifact {digest} is gone; it was recorded as erasable")
        return finding("ARTIFACT_MISSING", seq, digest)
    if os.path.islink(os.path.dirname(path)) or os.path.islink(path) or not os.path.isfile(path):
        return finding("ARTIFACT_ALTERED", seq, f"{digest} is not a regular file")
    hasher, size, expand = hashlib.sha256(), 0, zlib.decompressobj()
    try:
        with open(path, "rb") as file:
            while size <= length and not expand.eof and (packed := file.read(1 << 16)):
                while packed and size <= length:
                    plain = expand.decompress(packed, 1 << 20)
                    packed, size = expand.unconsumed_tail, size + len(plain)
                    hasher.update(plain)
            whole = expand.eof and not expand.unused_data and not file.read(1)
    except zlib.error:
        whole = False
    if not whole or size != length or hasher.hexdigest() != digest:
        finding("ARTIFACT_ALTERED", seq, digest)


def node_hash(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def check_records(
    source: Rows, artifacts: str | None, sizes: Container[int]
) -> tuple[int, dict[int, bytes], int]:
    """(how many positions, root by wanted size, how many artifacts)"""
    expected, link, whole = 0, "0" * 64, True
    edge: list[bytes] = []  # roots of the tree's perfect subtrees, largest first
    versions: dict[str, int] = {}
    roots: dict[int, bytes] = {}
    checked: set[tuple[str, Any]] = set()
    for count, (seq, record, stored_leaf, columns) in enumerate(source):
        if not isinstance(record, bytes):
            finding("NON_CANONICAL", seq, "not bytes")
            record = str(record).encode("utf-8", "replace")
        leaf, value = hashlib.sha256(b"\x00" + record).digest(), parse(record)
        if value is None:
            finding("NON_CANONICAL", expected if seq is None else seq, "not a canonical record")
        position = seq if seq is not None else value["seq"] if value else expected
        if position != expected:
            finding("SEQ_GAP" if position > expected else "SEQ_DUP", position, f"not {expected}")
            whole = False
        elif value and value["prev"] != link:
            finding("LINK", position, f"not the leaf {link} of the record before")
        if seq is not None and stored_leaf != leaf:
            finding("LEAF", position, f"column differs from {leaf.hex()}")
        if value:
            says = [value[name] for name in ("seq", *COLUMNS)]
            if columns is not None and says != [seq, *columns]:
                finding("COLUMN_MISMATCH", position, "columns differ from the record")
            version, following = value["version"], versions.get(value["stream"], 0)
            if version != following and (whole or version < following):
                finding("STREAM_VERSION", position, f"{version}, not {following}")
            versions[value["stream"]] = version + 1
            for digest, length, erasable in named(value["data"]) if artifacts else ():
                if (digest, length) not in checked:
                    checked.add((digest, length))
                    check_artifact(artifacts or "", digest, length, erasable, position)
        if position >= expected:
            expected, link = position + 1, leaf.hex()
        node, size = leaf, count
        while size & 1:
            node, size = node_hash(edge.pop(), node), size >> 1
        edge.append(node)
        if whole and count + 1 in sizes:
            root = functools.reduce(lambda right, left: node_hash(left, right), edge[::-1])
            roots[count + 1] = root
    return expected, roots, len(checked)


def check_notes(
    notes: Iterable[re.Match[bytes]], key: str | None, count: int, roots: dict[int, bytes]
) -> int:
    """Compare every note with the computed roots; returns the largest size that matches."""
    name, _, encoded = key.split("+", 2) if key else ("", "", "")
    public_key, proven = base64.b64decode(encoded)[1:], 0
    key_id = hashlib.sha256(name.encode() + b"\n\x01" + public_key).digest()[:4]
    for match in notes:
        size, text = int(match[2]), match[0].split(b"\n\n")[0] + b"\n"
        if key:
            signatures = [line.rsplit(" ", 1) for line in match[4].decode().splitlines()]
            ours = [base64.b64decode(s) for n, s in signatures if n == f"\u2014 {name}"]
            genuine = [signed_by(public_key, text, s[4:]) for s in ours if s[:4] == key_id]
            if not genuine or not all(genuine) or match[1].decode() != name:
                code = "SIG_BAD" if genuine else "KEY_UNKNOWN"
                finding(code, size - 1, f"not signed by {key}")
                continue
        if size > count:
            finding("TRUNCATED_BELOW_CHECKPOINT", size - 1, f"{count} records, {size} were signed")
        elif roots.get(size) != base64.b64decode(match[3]):
            finding("ROOT_MISMATCH", size - 1, f"the root over {size} records is another")
        else:
            proven = max(proven, size)
    return proven


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("path")
    parser.add_argument("--key", help="verifier string of the owner's key")
    arguments = parser.parse_args()
    try:
        source, artifacts, content = open_ledger(arguments.path)
        notes = {match[0]: match for match in NOTE.finditer(content)}.values()
        if b"".join(NOTE.split(content)[:-1:5]).strip(b"\n"):
            finding("SIG_BAD", None, "something between the checkpoints is none")
        wanted = {int(match[2]) for match in notes}
        count, roots, contents = check_records(source, artifacts, wanted)
        proven = check_notes(notes, arguments.key, count, roots)
    except (OSError, sqlite3.Error, ValueError, MemoryError) as error:
        print("UNFINISHED", ascii(str(error)))
        return 5
    print(f"""\
CHECKED {count} positions: order, links, canonical form, versions in streams, columns
{f"CHECKED {contents} artifacts" if artifacts else "NOT CHECKED artifacts"}
CHECKED {len(notes)} checkpoints; the largest that matches covers {proven} records
{"" if arguments.key else "NOT "}CHECKED signatures of checkpoints (--key)
NOT CHECKED events by their types, artifacts named inside artifacts, triggers, indices
NOT PROVEN anything about events after the first {proven}, or against the owner of the key""")
    return 3 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
