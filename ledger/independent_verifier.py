"""Checks a ledger without any code of the program that wrote it: one file, standard library only.

    python independent_verifier.py STUDY|VAR|LEDGER.DB|EXPORT|RECORDS.JSONL [--key NAME+ID+BASE64]

Exit status: 0 nothing contradicts, 2 usage, 3 something does, 5 it could not be read. A record is a
line of JSON; leaf = SHA-256(0, record); `prev` is the leaf before; node = SHA-256(1, left, right)
(RFC 6962); a checkpoint is a signed note (C2SP); an artifact is a zlib stream, named by SHA-256."""

import argparse
import base64
import contextlib
import functools
import hashlib
import json
import os
import re
import sqlite3
import sys
import urllib.parse
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

MAX_RECORD, MAX_NOTE, MAX_NOTES, MAX_ARTIFACT = 1 << 20, 1 << 14, 64 << 20, 1 << 30
COLUMNS = ("id", "type", "stream", "version", "at", "actor", "cause", "index", "run")
BASE64 = rb"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?"
FORM = rb"([!-~]+)\n(0|[1-9]\d{0,19})\n(%b)\n\n((?:\xe2\x80\x94 [!-~\x80-\xff]+ %b\n){1,16})"
NOTE = re.compile(FORM % (BASE64, BASE64))
SCHEMA = "f5dcbe6875f421865c1ac00708caf160cccdb4e53362d2d1c00b6e1e3489a6cf"
OURS = "sql NOT GLOB 'CREATE TABLE sqlite_stat[14](tbl,idx,*)'"
FLOAT = os.urandom(16).hex()  # marks a number with a fraction, whose text is taken as it stands
Rows = Iterator[tuple[int | None, bytes, Any, Any]]
Point = tuple[int, int, int, int]
findings: dict[str, int] = {}


def finding(code: str, seq: int | None, text: str) -> None:
    findings[code] = findings.get(code, 0) + 1
    if findings[code] <= 20:  # the others are counted
        print("FINDING", code, "-" if seq in (None, -1) else f"seq {seq}", ascii(text)[1:-1][:400])


def sha256(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


P, L = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493  # Ed25519: RFC 8032, 5.1
D, BASE = -121665 * pow(121666, -1, P) % P, (4 * pow(5, -1, P) % P).to_bytes(32, "little")


def add(p: Point, q: Point) -> Point:
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % P, (p[1] + p[0]) * (q[1] + q[0]) % P
    c, d = 2 * p[3] * q[3] * D % P, 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def times(scalar: int, point: Point) -> Point:
    rest = times(scalar >> 1, add(point, point)) if scalar else (0, 1, 1, 0)
    return add(rest, point) if scalar & 1 else rest


def decode_point(data: bytes) -> Point | None:
    """Section 5.1.3; None for what is no point."""
    sign, y = divmod(int.from_bytes(data, "little"), 1 << 255)
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    x = x * pow(2, (P - 1) // 4, P) % P if (x * x - square) % P else x
    if len(data) != 32 or y >= P or (x * x - square) % P or (x == 0 and sign):
        return None
    x = P - x if x & 1 != sign else x
    return x, y, 1, x * y % P


def signed_by(public_key: bytes, text: bytes, signature: bytes) -> bool:
    """Section 5.1.7: [S]B = R + [k]A."""
    a, r, base = map(decode_point, (public_key, signature[:32], BASE))
    s = int.from_bytes(signature[32:], "little")
    if a is None or r is None or base is None or s >= L or len(signature) != 64:
        return False
    k = int.from_bytes(hashlib.sha512(signature[:32] + public_key + text).digest(), "little") % L
    left, right = times(s, base), add(r, times(k, a))
    return all((left[i] * right[2] - right[i] * left[2]) % P == 0 for i in (0, 1))


def regular(path: str) -> BinaryIO:
    """Open a file: no link is followed, and no pipe or device is waited for."""
    if os.lstat(path).st_mode >> 12 not in (4, 8):  # neither a folder, which open refuses, nor one
        raise sqlite3.DatabaseError(f"{path} is not a regular file")
    return open(path, "rb")


def read(path: str, at_most: int) -> bytes:
    with regular(path) as file:
        return file.read(at_most)


def open_ledger(path: str) -> tuple[Rows, str | None, bytes]:
    """(rows, artifacts' folder, notes); a row is (seq, record, leaf, columns) or only a record."""
    is_db = read(path, 16) == b"SQLite format 3\0" or path.endswith(".db")
    folder = os.path.dirname(os.path.abspath(path))
    artifacts, log, mark = (f"{folder}/{n}" for n in ("artifacts", "checkpoints.log", "imported"))
    kept = artifacts if os.path.isdir(artifacts) or (is_db and not os.path.lexists(mark)) else None
    notes = read(log, MAX_NOTES) if os.path.lexists(log) else b""
    if not is_db:
        return read_lines(path), kept, notes
    wal, played = (os.path.lexists(path + n) and read(path + n, 1) for n in ("-wal", "-journal"))
    uri = f"file:{urllib.parse.quote(os.path.abspath(path))}?mode=ro{'' if wal else '&immutable=1'}"
    connection = sqlite3.connect(uri, uri=True)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 4 * MAX_RECORD)
    connection.text_factory = lambda text: text.decode("utf-8", "backslashreplace")
    query = f"SELECT type, name, sql FROM sqlite_master WHERE {OURS} ORDER BY name LIMIT 99"
    marks = "SELECT * FROM pragma_application_id, pragma_user_version"
    found = repr([*connection.execute(query), *connection.execute(marks)])
    if hashlib.sha256(found.encode()).hexdigest() != SCHEMA:
        finding("SCHEMA_DRIFT", None, "not laid out as a ledger is, so no table of it was read")
        return iter(()), kept, notes
    if played or connection.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",):
        finding("DB_CORRUPT", None, "SQLite's own check fails, or it would play in a journal")
    query = f"SELECT size, iif(length(note) > {MAX_NOTE}, x'', note) FROM checkpoints"
    rows = connection.execute(query).fetchmany(MAX_NOTES >> 8)
    for size, note in rows:
        if (match := NOTE.fullmatch(note)) is None or int(match[2]) != size:
            finding("COLUMN_MISMATCH" if match else "SIG_BAD", size - 1, "not what the row says")
    return read_rows(connection), kept, b"\n".join([*(note for _, note in rows), notes])


def read_lines(path: str) -> Rows:
    more = iter(range(64))  # MiB of lines that are too long, in all: they might have no end
    with regular(path) as f:
        while line := f.readline(MAX_RECORD + 2):
            yield None, line.removesuffix(b"\n"), None, None
            if line[-1:] != b"\n" and not any(f.readline(1 << 20)[-1:] == b"\n" for _ in more):
                return


def read_rows(connection: sqlite3.Connection) -> Rows:
    last, names = -(1 << 63) - 1, ", ".join(f'"{name}"' for name in COLUMNS)
    try:
        query = f"SELECT seq, CAST(record AS BLOB), leaf, {names} FROM records ORDER BY seq"
        for seq, record, leaf, *columns in connection.execute(query):
            if seq <= last:  # a damaged tree can lead back without end
                raise sqlite3.Error("rows are out of order")
            yield (last := seq), record or b"", leaf, columns
    except sqlite3.Error as error:
        finding("DB_CORRUPT", None, f"reading stopped: {error}")


def parse(record: bytes) -> dict[str, Any] | None:
    """The record; None unless encoding it gives the same bytes: no key twice, no second form."""
    try:
        value = json.loads(record, parse_float=lambda text: FLOAT + text, parse_constant=int)
        again = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        same = re.sub(f'"{FLOAT}([^"]*)"', r"\1", again).encode() == record
    except (ValueError, RecursionError):
        return None
    wanted = ["seq", "prev", *COLUMNS, "data"]
    if not isinstance(value, dict) or [name for name in value if name != "clock"] != wanted:
        return None
    kinds = "".join(type(value[name]).__name__[0] for name in wanted[:-1])
    depth, layer = 0, [value]
    while layer := [item for item in layer if isinstance(item, dict | list)]:
        depth += 1
        layer = [x for v in layer for x in (v.values() if isinstance(v, dict) else v)]
    sound = re.fullmatch("issssiss[sN]is", kinds) and FLOAT not in again.partition('"data":')[0]
    return value if sound and same and depth <= 64 and len(record) <= MAX_RECORD else None


def named(value: Any) -> Iterator[dict[str, Any]]:
    """Everything in a record's data that names an artifact."""
    if isinstance(value, dict):
        if {"digest", "length", "media_type"} <= value.keys():
            yield value
        value = list(value.values())
    for item in value if isinstance(value, list) else ():
        yield from named(item)


def check_artifact(folder: str, ref: dict[str, Any], seq: int) -> None:
    digest, length = str(ref["digest"]), ref["length"]
    path = os.path.join(folder, digest[:2], digest)
    sound = re.fullmatch("[0-9a-f]{64}", digest) and type(length) is int and length <= MAX_ARTIFACT
    if not sound or os.path.islink(folder) or os.path.islink(os.path.dirname(path)):
        return finding("ARTIFACT_ALTERED", seq, f"{digest} is no digest, or behind a link")
    if not os.path.lexists(path):
        return None if ref.get("erasable") is True else finding("ARTIFACT_MISSING", seq, digest)
    whole, hasher, size, expand = False, hashlib.sha256(), 0, zlib.decompressobj()
    with contextlib.suppress(OSError, sqlite3.Error, zlib.error), regular(path) as file:
        while size <= length and not expand.eof and (packed := file.read(1 << 16)):
            while packed and size <= length:
                plain = expand.decompress(packed, 1 << 20)
                packed, size = expand.unconsumed_tail, size + len(plain)
                hasher.update(plain)
        whole = expand.eof and not expand.unused_data and not file.read(1)
    if not whole or size != length or hasher.hexdigest() != digest:
        finding("ARTIFACT_ALTERED", seq, digest)


def check_records(source: Rows, folder: str | None, sizes: set[int]) -> tuple[int, Any, int]:
    """(how many positions, root by wanted size, how many artifacts)"""
    expected, link, whole, checked = 0, "0" * 64, True, set[str]()
    edge, roots, versions = list[bytes](), {0: sha256()}, dict[str, int]()  # edge: largest first
    for count, (seq, record, stored_leaf, columns) in enumerate(source):
        leaf, value = sha256(b"\0", record), parse(record)
        if value is None:
            finding("NON_CANONICAL", expected if seq is None else seq, "not a canonical record")
        position = seq if seq is not None else value["seq"] if value else expected
        if position == 0 and value:
            print("RECORD 0", ascii(value["data"])[:400])
        if position != expected:
            finding("SEQ_GAP" if position > expected else "SEQ_DUP", position, f"not {expected}")
            whole = False
        elif value and value["prev"] != link:
            finding("LINK", position, f"not the leaf {link} of the record before")
        if seq is not None and stored_leaf != leaf:
            finding("LEAF", position, f"column differs from {leaf.hex()}")
        if value:
            if seq is not None and [value[n] for n in ("seq", *COLUMNS)] != [seq, *columns]:
                finding("COLUMN_MISMATCH", position, "columns differ from the record")
            version, following = value["version"], versions.get(value["stream"], 0)
            if version != following and (whole or version < following):
                finding("STREAM_VERSION", position, f"{version}, not {following}")
            versions[value["stream"]] = version + 1
            for ref in named(value["data"]) if folder else ():
                if (name := f"{ref['digest']} {ref['length']}"[:99]) not in checked:
                    checked.add(name)
                    check_artifact(folder or "", ref, position)
        if position >= expected:
            expected, link = position + 1, leaf.hex()
        node, size = leaf, count
        while size & 1:
            node, size = sha256(b"\1", edge.pop(), node), size >> 1
        edge.append(node)
        if whole and count + 1 in sizes:
            roots[count + 1] = functools.reduce(lambda r, left: sha256(b"\1", left, r), edge[::-1])
    return expected, roots, len(checked)


def check_notes(notes: Any, key: str | None, count: int, roots: dict[int, bytes]) -> int:
    """Compare every note with the computed roots; returns the largest size that matches."""
    name, _, encoded = key.encode().split(b"+", 2) if key else (b"", b"", b"")
    public_key, proven = base64.b64decode(encoded)[1:], 0
    key_id = sha256(name, b"\n\x01", public_key)[:4]
    for match in filter(lambda _: findings.get("SIG_BAD", 0) < 100, notes):  # each takes time
        size, text = int(match[2]), match[0].partition(b"\n\n")[0] + b"\n"
        lines = map(bytes.split, match[4].splitlines())
        ours = [base64.b64decode(signature) for _, signer, signature in lines if signer == name]
        genuine = [signed_by(public_key, text, s[4:]) for s in ours if s[:4] == key_id]
        if key and not (genuine and all(genuine) and match[1] == name):
            finding("SIG_BAD" if genuine else "KEY_UNKNOWN", size - 1, f"not signed by {key}")
        elif size > count:
            finding("TRUNCATED_BELOW_CHECKPOINT", size - 1, f"{count} records, {size} were signed")
        elif base64.b64encode(roots.get(size, b"")) != match[3]:
            finding("ROOT_MISMATCH", size - 1, f"the root over {size} records is another")
        else:
            proven = max(proven, size)
    return proven


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("path")
    parser.add_argument("--key", help="verifier string of the owner's key")
    arguments = parser.parse_args()
    if arguments.key and not re.fullmatch(r"[!-*,-~]+\+[0-9a-f]{8}\+[\w+/]{44}", arguments.key):
        parser.error("--key is a verifier string: NAME+8 HEX DIGITS+BASE64")
    path, names = arguments.path, ("ledger.db", "var/ledger.db", "records.jsonl")
    found = [p for n in names if os.path.lexists(p := os.path.join(path, n))] or [path]
    if len(found) > 1 or os.path.islink(os.path.join(path, "var")):
        parser.error(f"{path} holds {' and '.join(found)}, or a link: name the one file to check")
    print("FILE", ascii(os.path.realpath(found[0]))[1:-1])
    try:
        source, artifacts, content = open_ledger(found[0])
        *pieces, end = NOTE.split(content)
        origin = pieces[1] if pieces else (arguments.key or "").partition("+")[0].encode()
        cut, strays = end.rstrip(b"\0").lstrip(b"\n"), b"".join(pieces[::5]).strip(b"\n")
        begun = cut[: len(origin)] == origin[: len(cut)] and cut.count(b"\n") < 5
        if strays or not begun or len(end) > MAX_NOTE:  # a crash leaves a note that is begun
            finding("SIG_BAD", None, "something between the checkpoints is none")
        notes = {match[0]: match for match in NOTE.finditer(content)}.values()
        count, roots, contents = check_records(source, artifacts, {int(m[2]) for m in notes})
        proven = check_notes(notes, arguments.key, count, roots)
    except (OSError, sqlite3.Error, ValueError, TypeError, MemoryError) as error:
        if type(error) is sqlite3.DatabaseError:
            finding("DB_CORRUPT", None, str(error))
        print("UNFINISHED", ascii(str(error))[1:-1])
        return 3 if findings else 5
    print(f"""\
FINDINGS {findings or "none"}
CHECKED {count} positions: order, links, canonical form, versions in streams, columns
{f"CHECKED {contents} artifacts" if artifacts else "NOT CHECKED artifacts"}
CHECKED {len(notes)} checkpoints; the largest that matches covers {proven} records
{"" if arguments.key else "NOT "}CHECKED signatures of checkpoints (--key)
NOT CHECKED events by their types, forms of fractions, artifacts in others, an older copy put back
NOT PROVEN anything about events after the first {proven}, or against the owner of the key""")
    return 3 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
